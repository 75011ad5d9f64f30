/*
 * blame — the ranks that wrong numbers were traced to, for the supervisor.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_BLAME_H
#define MUSTER_AGENT_ENGINE_TRAIN_BLAME_H

#include <stdbool.h>
#include <stdint.h>

enum { BLAME_RANKS = 8, BLAME_NAME = 64 };

struct train_blame {
	int ranks[BLAME_RANKS]; /* in order; the first ones, if there are more */
	int n;                  /* 0: no rank is known */
	bool suspect;     /* their nodes are suspects: the numbers tell of a fault of hardware */
	int64_t step;     /* the step that has wrong numbers, from 1 */
	const char *kind; /* a literal: "weights", "optimizer-state", "activations", "gradient" */
	char tensor[BLAME_NAME]; /* "": none in particular */
};

#endif
