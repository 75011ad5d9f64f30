/*
 * replicas — compares what several ranks must hold with equal bits (holdings.h).
 *
 * A difference is a sign of a fault: a bit that flipped in the memory or in a unit of one node, or
 * a transfer that delivered something else. If most of the ranks that hold a part agree, the others
 * are at fault. If as many hold one thing as another, for example with two replicas, all of them
 * are named.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_REPLICAS_H
#define MUSTER_AGENT_ENGINE_TRAIN_REPLICAS_H

#include "agent/engine/train/holdings.h"
#include "base/err.h"

#include <stdbool.h>

struct trainer;

struct replicas_verdict {
	enum held_class class; /* the first one in which ranks differ */
	int reference;         /* the first rank that holds what most hold; -1: no majority */
	int compared;          /* how many ranks hold the part */
};

/* all: [world][HELD_CLASSES]. Returns how many ranks are at fault, and sets differs [world]; 0: all
 * agree. Only the first class in which ranks differ counts. */
int train_replicas_judge(const struct held_sum *all, int world, bool *differs,
			 struct replicas_verdict *out);

/* Collective. ERR_REPLICAS names the ranks, their nodes and the first tensor that differs, and
 * t->env->blame gets them. states: also compares masters and the optimizer's states. */
int train_replicas_compare(struct trainer *t, bool states, struct err *e);

#endif
