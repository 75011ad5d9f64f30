/*
 * recovery — connects the surveys of the nodes, the pool, the fault table and the policy with the
 * supervisor's states. transitions.c calls it; only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_RECOVERY_H
#define MUSTER_LAUNCHER_SUPERVISE_RECOVERY_H

#include "launcher/supervise/burn_in.h"
#include "launcher/supervise/node_checks.h"
#include "launcher/supervise/policy.h"
#include "launcher/supervise/pool.h"

struct supervisor;
struct surveying;

struct recovery_state {
	struct pool pool;
	struct surveying *surveying; /* a survey that is under way */
	bool known;                  /* a survey has found the states since the loss */
	bool can_requeue, silent;    /* of the last survey; silent: the manager did not answer */
	int free;                    /* of the last survey */
	double looked;               /* time of the last look for nodes that are back */
	int usable;                  /* nodes when the deployment was last compared with others */
	double waiting_since;        /* for lost nodes; 0: it does not wait */
	struct node_checks
		checks; /* of nodes that are back, and of all before the first generation */
	struct burn_in *burn_in; /* that is under way; NULL: none */
	bool burnt_in;           /* it was started */
	bool burn_in_told;       /* people were told what it found */
	bool growing;            /* the generation stops in order to grow, or to leave a node */
	bool refused;            /* a requeue in order to grow: it is not tried again */
	struct deployment *next; /* what it grows to; NULL: the job is requeued */
	/* the deployment of the generation, if it is not the first one; s->d points to it */
	struct deployment *own;
};

int supervise_recovery_open(struct supervisor *s, struct err *e);
void supervise_recovery_close(struct supervisor *s);

/* Begins a survey of the nodes that can be used (all: of all nodes), if the launch backend has one;
 * EV_SURVEYED follows. False: it follows at no time. */
bool supervise_recovery_survey(struct supervisor *s, bool all);
/* Gives up a survey that takes too long. */
void supervise_recovery_stop_survey(struct supervisor *s);
/* What the survey after the loss found about the rank's node; NODE_UP before it is done. */
enum node_state supervise_recovery_node_state(const struct supervisor *s, int rank);
/* Whether a node of the generation is lost, or one with processes of an earlier generation. */
bool supervise_recovery_node_lost(const struct supervisor *s);

/* Counts the loss as a fault of its node or device, if it is one. True: the node is not used any
 * more. */
bool supervise_recovery_blame(struct supervisor *s);
/* Decides where the next generation runs, and makes it the current deployment. Prints and records
 * the decision if it is not to run the same plan again. A program that has shrunk and reports no
 * checkpoints also grows here. */
enum recovery supervise_recovery_decide(struct supervisor *s);
/* Requeues the job without the lost nodes. */
int supervise_recovery_requeue(struct supervisor *s, struct err *e);

/* A checkpoint was committed: begins a survey if the run has shrunk and may grow. */
void supervise_recovery_look_for_nodes(struct supervisor *s);
/* After that survey: whether the generation should stop in order to grow. If nodes
 * must be checked first, it does not yet: the checks begin, and EV_CHECKED follows. */
bool supervise_recovery_wants_to_grow(struct supervisor *s);
/* The generation should stop in order to leave a node: takes over the decision's deployment for the
 * next one, and reports it. EV_LEAVE_NODE must follow. */
void supervise_recovery_leave(struct supervisor *s, struct policy_decision *d);
/* Makes the next deployment the current one. False: there is none, and the job is to be
 * requeued. */
bool supervise_recovery_grow(struct supervisor *s);

#endif
