/*
 * run_inner — the state of a simulated run, for run.c (the faults), pace.c (the training between them) and
 * spares.c (the nodes) only.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_RUN_INNER_H
#define MUSTER_LAUNCHER_GOODPUT_RUN_INNER_H

#include "launcher/goodput/run.h"
#include "launcher/simulate/random.h"

enum { AWAY_MOST = 4096 };

struct run {
	const struct goodput_setup *s;
	struct goodput_result *out;
	struct simulate_random dice;
	double now;                    /* seconds */
	int64_t step;                  /* finished ones */
	int64_t saved, copied;         /* the last checkpoint and copy that count; copied 0: none */
	int exposed;                   /* the node whose state has one copy only; -1: none */
	double slow_until, slowed_out; /* a node is slow until then, and then away for so long */
	struct {
		double at; /* INFINITY: there is none */
		int kind, node;
	} next;         /* fault */
	int64_t losses; /* since a person has begun the run */
	/* nodes: that no rank uses; replicas that are left out; when those that are away return */
	int free, left_out;
	double away[AWAY_MOST];
	int n_away;
};

/* --- pace.c --- */
/* Trains up to this time, or until the run's last step. */
void goodput_train(struct run *r, double until);
/* When the run has done its steps, at its pace. INFINITY: it ends by the clock. */
double goodput_train_end(const struct run *r);
/* The run continues from this step, at most the last one that it has finished. */
void goodput_go_back(struct run *r, int64_t step);

/* --- spares.c --- */
/* The nodes that work. */
int goodput_nodes_used(const struct run *r);
/* A node is away from now on, for so many seconds. */
void goodput_node_leaves(struct run *r, double seconds);
/* When the next node is back. INFINITY: none is away. */
double goodput_node_returns(const struct run *r);
/* Takes back the nodes that have returned by now. */
void goodput_nodes_take(struct run *r);
/* A node is missing: a spare replaces it (1), replicas are left out (0), or neither is possible (-1). */
int goodput_node_replace(struct run *r);
/* Whether replicas that are left out could work again; they do from now on. */
bool goodput_nodes_regrow(struct run *r);
/* How many times longer a step takes with the replicas that there are. */
double goodput_fewer(const struct run *r);

#endif
