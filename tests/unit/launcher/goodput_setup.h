/*
 * goodput_setup — a small run with faults, for the tests of launcher/goodput.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_GOODPUT_SETUP_H
#define MUSTER_TESTS_UNIT_LAUNCHER_GOODPUT_SETUP_H

#include "launcher/goodput/run.h"

static const double hour = 3600, day = 86400; /* seconds */

/* A list of one kind of fault: one in so many seconds on all nodes together. */
static inline struct goodput_faults only(enum goodput_shows shows, int nodes, double each,
					 double node_out)
{
	struct goodput_faults f = { .n = 1, .name = "test" };
	f.of[0] = (struct goodput_fault){ .name = "fault",
					  .rate = 1 / (each * nodes),
					  .shows = shows,
					  .slowdown = 1.3,
					  .node_out = node_out };
	return f;
}

/* 16 nodes with 4 replicas, a step of 2 s, a checkpoint in 100 steps. */
static inline struct goodput_setup make_setup(const struct goodput_faults *f)
{
	return (struct goodput_setup){
		.nodes = 16,
		.replicas = 4,
		.spares = 4,
		.seconds = 10 * day,
		.steps = 1000000,
		.costs = { .step = 2,
			   .snapshot = 0.1,
			   .write = 20,
			   .copy = 1,
			   .closed = 0.1,
			   .silent = 15,
			   .hang = 65,
			   .numbers = 30,
			   .slow = 40,
			   .end = 0.2,
			   .respawn = 30,
			   .replace = 10,
			   .recall = 2,
			   .load = 20,
			   .start = 10,
			   .queue = 600,
			   .person = 1800 },
		.rules = { .warm = true,
			   .finds = 1.2,
			   .leaves_slow = true,
			   .shrinks = true,
			   .regrows = true,
			   .restarts = -1,
			   .patience = 600,
			   .every = 100,
			   .copy_every = 5 },
		.faults = f,
	};
}

#endif
