/*
 * node_checks — checks nodes that are back before the run stops in order to grow onto them.
 *
 * A node that is reached again may lack a GPU or a file system. Each check is a child process that
 * the launch backend starts (struct check_request), while the run trains. A node that fails is unfit
 * (pool.h): the reason is printed and recorded once, and a look after NODE_CHECK_AGAIN seconds asks
 * again.
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
};

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
