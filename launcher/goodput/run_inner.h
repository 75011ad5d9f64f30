/*
 * run_inner — the state of a simulated run, for the files that simulate it only: run.c (its course), clock.c
 * (the time, and the faults that come), pace.c (the training between two faults), recover.c (a loss), move.c
 * (what loses no step), spares.c (the nodes) and blame.c (their faults).
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_RUN_INNER_H
#define MUSTER_LAUNCHER_GOODPUT_RUN_INNER_H

#include "launcher/goodput/history.h"
#include "launcher/goodput/run.h"
#include "base/random.h"

/* More nodes than these are not away, or slow, at the same time: the others do not return, or are not slow. Of
 * more nodes no faults are known: the oldest are forgotten. */
enum { AWAY_MOST = 384, SLOW_MOST = 64, BLAMED_MOST = 64 };

/* What the supervisor holds against a node. */
struct blame {
	double at; /* of the last fault */
	int faults;
	bool excluded; /* the node is not used any more */
};

struct away_node {
	double until;
	struct blame blame;
};

struct slow_node {
	double until;    /* it is found, or repaired */
	double repaired; /* if the run stays on it */
	double slowdown; /* how many times longer a step takes */
	double out;      /* seconds for which it is away if the run leaves it */
	int place;
};

struct run {
	const struct goodput_setup *s;
	struct goodput_result *out;
	struct goodput_history *history; /* NULL: it is not recorded */
	struct random_stream dice;
	double now;            /* seconds */
	int64_t step;          /* finished ones */
	int64_t saved, copied; /* the last checkpoint and copy that count; 0: none */
	struct {
		int64_t step; /* 0: none */
		double at;    /* from when on it counts */
	} saving;             /* the checkpoint that is being written */
	int exposed;          /* the node whose state has one copy only; -1: none */
	struct slow_node slow[SLOW_MOST];
	int n_slow;
	struct {
		double at; /* INFINITY: there is none */
		int kind, node;
	} next; /* fault */
	/* since the supervisor started: losses, futile ones in a row, the last step and checkpoint */
	int64_t losses, futile, best_step, best_saved;
	bool progress; /* of this generation */
	bool ending;   /* its loss is counted, and the next one has not been started */
	/* nodes that no rank uses; replicas that are left out; nodes that are there, but excluded */
	int free, left_out, excluded;
	struct away_node away[AWAY_MOST];
	int n_away;
	/* nodes with faults: those at work, in places 0 to goodput_nodes_used() - 1, and those that are free */
	struct {
		int place;
		struct blame of;
	} blamed[BLAMED_MOST];
	struct blame rested[BLAMED_MOST];
	int n_blamed, n_rested;
};

/* What is still to be done after a fault, before training goes on. */
struct recovery {
	enum goodput_shows shows;
	bool elsewhere; /* ranks start on another node */
	bool all;       /* all processes start */
	bool by_hand;
};

/* --- clock.c --- */
double goodput_end(const struct run *r); /* by the clock; INFINITY: none */
bool goodput_is_over(const struct run *r);
const struct goodput_fault *goodput_next_fault(const struct run *r);
/* Takes the next fault, and draws the one after it. counts: it happens to this run. */
void goodput_take_fault(struct run *r, bool counts);
/* Spends the time. False: a fault has come that interrupts; the others change nothing meanwhile. */
bool goodput_spend(struct run *r, enum goodput_part part, double seconds);
/* The same while nothing runs, so that no fault happens. */
void goodput_pass(struct run *r, enum goodput_part part, double seconds);

/* --- pace.c --- */
/* Trains up to this time, or to the run's last step if it comes before. */
void goodput_train(struct run *r, double until);
/* The run continues from this step, at most the last one that it has finished. */
void goodput_go_back(struct run *r, int64_t step);

/* --- recover.c --- */
/* The next fault has come, and costs the run its last steps. */
void goodput_recover(struct run *r);
/* The node of this place is missing: takes another one, or leaves out replicas, or waits. here: it is there, but
 * excluded, and stays if there is no other one. False: the run has waited, or the node stays. */
bool goodput_replace_node(struct run *r, int place, bool here, struct recovery *pending);
/* Another supervisor starts: it has counted nothing yet. */
void goodput_start_supervisor(struct run *r);

/* --- move.c --- */
void goodput_stop_as_planned(struct run *r);
void goodput_become_slow(struct run *r);
/* When the next slow node is found or repaired, and what follows. INFINITY: there is none. */
double goodput_slow_until(const struct run *r);
void goodput_leave_slow_node(struct run *r);
/* Another node has this place now: no rank waits any more for one that was slow. */
void goodput_slow_forget(struct run *r, int place);
/* Lets replicas work again for which there are nodes. False: there are none. */
bool goodput_regrow(struct run *r);

/* --- spares.c --- */
int goodput_nodes_used(const struct run *r);
/* The node of this place is away from now on, for so many seconds. excluded: it is not used after them. */
void goodput_node_leaves(struct run *r, int place, double seconds, bool excluded);
/* When the next node is back. INFINITY: none is away. */
double goodput_node_returns(const struct run *r);
/* The node that would be back next does not return to this run. */
void goodput_node_forget(struct run *r);
/* Takes back the nodes that have returned by now. */
void goodput_nodes_take(struct run *r);
/* How a missing node would be replaced: by a free one (1), by leaving out replicas (0), not at all (-1). */
int goodput_node_choice(const struct run *r);
/* Replaces the node of this place as goodput_node_choice() says, which it returns. */
int goodput_node_replace(struct run *r, int place);
/* Lets replicas that are left out work again, as far as there are free nodes. False: for none. */
bool goodput_nodes_regrow(struct run *r);
/* How many times longer a step takes without the replicas that are left out, and so many more of them:
 * those of one more node (1), or none (0). */
double goodput_fewer(const struct run *r, int more);

/* --- blame.c --- */
/* Counts a fault of the node of this place. True: it is to be excluded. */
bool goodput_blame(struct run *r, int place);
/* The node leaves its place, or returns to the free ones, with what is held against it. */
struct blame goodput_blame_take(struct run *r, int place);
void goodput_blame_rest(struct run *r, struct blame b);
/* One of the free nodes takes a place: one without a fault if there is one. r->free counts it still. */
void goodput_blame_place(struct run *r, int place);
/* The places from `from` on are no longer used: their nodes, blamed or slow, take those from `to` on, whose nodes are
 * free. */
void goodput_blame_shrink(struct run *r, int to, int from, int places);
void goodput_blame_forget(struct run *r);

#endif
