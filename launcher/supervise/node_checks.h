/*
 * node_checks — checks nodes that are back before the run stops in order to grow onto them, and,
 * with [launch] preflight, all nodes before the first generation.
 *
 * A node may lack a GPU or a file system. A check is a child process that the launch backend starts
 * (struct check_request). A node that fails is unfit (pool.h): the reason is printed and recorded
 * once, and a look after NODE_CHECK_AGAIN seconds asks again.
 *
 * Nodes that are back have a check each, while the run trains. Before the first generation one
 * check asks all nodes at the same time; then those that have not answered have a check each. If no
 * node has answered, the fault is not theirs, and the run starts without the checks. With preflight
 * = full the burn-in of those that have passed follows (burn_in.h). A node that fails it is not
 * used for the rest of the run.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_NODE_CHECKS_H
#define MUSTER_LAUNCHER_SUPERVISE_NODE_CHECKS_H

#include <stdbool.h>

enum {
	NODE_CHECK_SECONDS = 60, /* time limit of a check */
	NODE_CHECK_AGAIN = 300,  /* from a failed check to the next one of the same node */
	NODE_CHECKS_MAX = 16     /* checks at the same time */
};

struct supervisor;
struct node_check;

struct node_checks {
	struct node_check *all; /* by number of the node in the pool; NULL: none was needed yet */
	int running;
	struct child *together; /* the check of all nodes; NULL: it does not run */
	double since;           /* time of its start */
};

/* Before the first generation: starts the check of all nodes. True: EV_CHECKED follows, unless the
 * checks are stopped. False: nodes are not checked. */
bool supervise_checks_start_all(struct supervisor *s);
/* The node failed its burn-in. */
void supervise_checks_fail(struct supervisor *s, int node, const char *why);
/* A check, or the burn-in, has ended: starts what follows it. */
void supervise_checks_go_on(struct supervisor *s);
/* After it: reports the result. From now on the nodes that have passed count as nodes that were
 * never away. */
void supervise_checks_finish_all(struct supervisor *s);
/* Starts the checks of usable nodes that are back and have not passed one. True: checks are under
 * way, and EV_CHECKED follows once none is left to make, unless they are stopped. */
bool supervise_checks_start(struct supervisor *s);
/* At another look: unfit nodes may be checked again if NODE_CHECK_AGAIN is over. */
void supervise_checks_look(struct supervisor *s);
/* Ends checks that take too long; they count as failed. */
void supervise_checks_tick(struct supervisor *s);
/* Ends all checks. They have no result. */
void supervise_checks_stop(struct supervisor *s);
void supervise_checks_close(struct supervisor *s);

#endif
