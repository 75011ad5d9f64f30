/*
 * queue — virtual time, and what happens next in it. Events of the same time happen in the order in which
 * they were added.
 */
#ifndef MUSTER_LAUNCHER_SIMULATE_QUEUE_H
#define MUSTER_LAUNCHER_SIMULATE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

/* An event that is due; fire() runs at now == at. */
struct simulate_event {
	double at; /* seconds */
	uint64_t order;
	void (*fire)(void *arg);
	void *arg;
};

struct simulate_queue {
	double now;
	struct simulate_event *heap;
	int n, room;
	uint64_t added;
	bool failed; /* there was no memory for an event, so the simulation is not valid */
};

void simulate_queue_close(struct simulate_queue *q);
/* The event happens `delay` seconds from now. */
void simulate_queue_add(struct simulate_queue *q, double delay, void (*fire)(void *arg), void *arg);
/* The time of the next event; infinite: there is none. */
double simulate_queue_due(const struct simulate_queue *q);
/* Removes the next event; now becomes its time. The queue is not empty. */
struct simulate_event simulate_queue_next(struct simulate_queue *q);

#endif
