/*
 * exports — what other tools read of a run while it goes on: TensorBoard, Prometheus, node_exporter.
 *
 * The supervisor reports what happens by the calls below, from its loop's thread. They only note
 * numbers and append to memory: files are written, and scrapes are answered, by threads of their
 * own (background.h, listener.c). An export that fails is reported once, with a remedy, and the run
 * goes on without it.
 *
 * To add an export: its struct export_ops in a file of its own (export_ops.h), its row in the list
 * of exports.c, its keys in the section [metrics] of the job. To add a number for Prometheus: its
 * row in gauges.h, and where it is set in exports.c.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_EXPORTS_H
#define MUSTER_LAUNCHER_EXPORTS_EXPORTS_H

#include "base/messages.h"
#include "base/time_parts.h"
#include "launcher/rundir/state.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>
#include <stdint.h>

struct exports;

struct export_rank {
	const char *node;
	int64_t step;   /* finished steps; -1: unknown */
	double still_s; /* seconds since it made progress */
};

struct exports_options {
	const struct job *job;
	const char *run; /* the run folder */
	/* Tells people. warning: an export does not work; otherwise where one can be read. */
	void (*tell)(void *arg, bool warning, const char *text);
	/* The state of a rank, for metrics.ranks; false: there are fewer ranks. May be NULL. */
	bool (*rank)(void *arg, int rank, struct export_rank *out);
	/* The microseconds of all ranks so far, by enum time_part. May be NULL. */
	const int64_t *(*time)(void *arg);
	void *arg;
};

/* A generation is ready to train. */
struct export_begin {
	uint32_t generation;
	const struct job *job; /* what it runs */
	const char *plan;      /* for people */
	double predicted_s;    /* seconds of a step */
	int64_t step;          /* that it continues from; 0: the beginning */
	int ranks, nodes;
};

/* NULL: the job asks for no export, or none works. Everything below takes NULL. */
struct exports *exports_open(const struct exports_options *o);
void exports_begin(struct exports *x, const struct export_begin *b);
void exports_step(struct exports *x, const struct msg_metrics *m);
void exports_eval(struct exports *x, const struct msg_eval *m);
void exports_checkpoint(struct exports *x, const struct msg_ckpt *m);
/* restarts: so far. */
void exports_state(struct exports *x, enum rundir_state_id state, int64_t restarts);
/* Often. now: of a monotonic clock, in seconds. */
void exports_tick(struct exports *x, double now);
/* The run has ended in this state: what is left is written, and everything is closed. */
void exports_close(struct exports *x, enum rundir_state_id state);

#endif
