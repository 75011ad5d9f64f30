/*
 * times — when the message times is sent, and what it says: where the training thread's time went
 * since the rank was ready in this generation (agent/engine/train/times.h).
 *
 * The first one follows soon after the rank was ready, so that a short run is accounted for, too; from
 * one to the next the interval doubles up to its limit. Any thread may call these functions.
 */
#ifndef MUSTER_AGENT_TIMES_H
#define MUSTER_AGENT_TIMES_H

#include "agent/engine/train/times.h"

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

struct times {
	pthread_mutex_t lock;
	bool ready;              /* the supervisor knows that the rank is ready */
	bool news;               /* the sums have changed since they were due */
	bool owed;               /* nobody has handed on what was due then */
	struct train_times sums; /* since then */
	double every, most;      /* seconds until the next message, and at most */
	double sent;             /* time of the last one */
};

/* world: number of ranks. In a large one messages are rarer, so that the supervisor gets at most
 * 100 per second. */
void agent_times_init(struct times *t, int world, double now);
void agent_times_fini(struct times *t);

/* The supervisor was told that the rank is ready, and the sums begin. */
void agent_times_begin(struct times *t, double now);
/* Another generation begins: nothing is sent until its rank is ready. */
void agent_times_end(struct times *t);
void agent_times_set(struct times *t, const struct train_times *sums);

/* Whether a message is due; *sums: what it says. The supervisor is owed it until it is settled. */
bool agent_times_due(struct times *t, double now, struct train_times *sums);
/* Whether it is owed one; *sums: what that says now. */
bool agent_times_owed(struct times *t, struct train_times *sums);
/* It has got it, or it is on its way. */
void agent_times_settle(struct times *t);
/* The body of the message if the sums have changed and the last one is at least `least` seconds old, a new
 * reference; otherwise NULL. least 0: also if it is owed one. */
json_t *agent_times_next(struct times *t, double now, double least);
/* The body of the message, a new reference; NULL: no memory. */
json_t *agent_times_json(const struct train_times *sums);

#endif
