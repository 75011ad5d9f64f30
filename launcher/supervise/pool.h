/*
 * pool — the nodes and devices that a run may use, and why it may not use the others.
 *
 * A node is used if the last survey found it up, it is not excluded, and it has not failed the
 * check that node_checks.h makes when it is back, or before the first generation. A node is
 * excluded for the rest of the run after [restart] exclude_after faults, if the run leaves it
 * because it is slow (exclude.h), and at once if it fails again before the first step after it had
 * come back, or was a suspect before the run (launcher/suspects). A node that has no fault for
 * POOL_FAULT_MEMORY seconds begins at 0 again: a run of several weeks meets independent faults of
 * every node. (Progress, with which restart.h forgets futile restarts, is not enough here: a node
 * that crashes every hour makes progress in between.) A device that is gone is not used, either. If
 * nothing else is left, all of them are used again, except nodes that failed the check before the
 * first generation.
 *
 * Nodes are numbered as in `machines`, all nodes that the run began with.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_POOL_H
#define MUSTER_LAUNCHER_SUPERVISE_POOL_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/deployment.h"
#include "launcher/survey.h"
#include "topo/cluster.h"

#include <stdbool.h>
#include <stdint.h>

enum { POOL_FAULT_MEMORY = 24 * 3600 };

struct pool_node {
	enum node_state state;
	int64_t faults;
	double fault_at; /* time of the last one */
	bool excluded;
	bool suspect;  /* since before the run: it is excluded at its first fault */
	bool returned; /* it was away, came back, and has not finished a step since */
	bool passed;   /* it was checked since it came back, and is well */
	bool slow;     /* a rank on it was slow, and the run goes on without it */
	bool was_slow; /* it was left for that reason once; it is not left again */
	bool unfit;    /* it failed its check since it came back; it is not used until it passes */
};

struct pool {
	const struct cluster *machines; /* borrowed */
	struct pool_node *nodes;        /* [machines->n_nodes] */
	int64_t exclude_after;          /* 0: never */
	struct cluster_slot *gone;      /* devices that are gone, of all nodes */
	int n_gone;
};

int supervise_pool_open(struct pool *p, const struct cluster *machines, int64_t exclude_after,
			struct err *e);
void supervise_pool_close(struct pool *p);

/* The node's number in the pool, by its name; -1: it is not in the pool. */
int supervise_pool_find(const struct pool *p, const char *name);
/* The same. `near` is tried first: the ranks of a plan are looked up in their order, which is about that of
 * the nodes. */
int supervise_pool_find_near(const struct pool *p, const char *name, int near);
/* The number of nodes that can be used. */
int supervise_pool_count(const struct pool *p);
bool supervise_pool_usable(const struct pool *p, int node);
/* Whether no process on it can be waited for. */
bool supervise_pool_is_dead(const struct pool *p, int node);
/* Whether every node and device on which the plan has a rank can be used. */
bool supervise_pool_covers(const struct pool *p, const struct deployment *used);
/* Whether a node that cannot be used now may be used later without a person's help. */
bool supervise_pool_may_return(const struct pool *p);

/* Takes over the states that a survey found. The others stay as they were. */
void supervise_pool_survey(struct pool *p, const struct survey *s);
/* Counts a fault of the node at the time `now`, in seconds. The last usable node is never
 * excluded. */
void supervise_pool_blame(struct pool *p, int node, double now);
/* The run leaves a node because it is slow, or does not after all. */
void supervise_pool_leave(struct pool *p, int node, bool leave);
/* Notes the result of a check. */
void supervise_pool_check(struct pool *p, int node, bool passed);
/* All nodes count as nodes that are back, so that each of them has to pass a check. */
void supervise_pool_return_all(struct pool *p);
/* An unfit node may be checked again: it counts as one that is back. */
void supervise_pool_check_again(struct pool *p, int node);
/* Uses excluded nodes and unfit ones that were back again, if they are up, and devices that were
 * gone. False: there is none. */
bool supervise_pool_use_again(struct pool *p);
/* A generation on these nodes has finished a step, or all of them were checked: none counts as one
 * that is back. */
void supervise_pool_confirm(struct pool *p);
/* The device of this name (struct topo_device) is gone; "": any one of the node's. */
int supervise_pool_lose_device(struct pool *p, int node, const char *name, struct err *e);

/* The cluster of what can be used. ERR_NOFIT: nothing. */
int supervise_pool_cluster(const struct pool *p, struct cluster *out, struct err *e);
/* Appends the nodes that cannot be used with the reason, such as "n3 is down, n4 was excluded after
 * 2 faults". Returns their number. */
int supervise_pool_describe(const struct pool *p, struct buf *out);
/* Appends the names of the excluded and lost nodes, with commas. */
void supervise_pool_lost_names(const struct pool *p, struct buf *out);

#endif
