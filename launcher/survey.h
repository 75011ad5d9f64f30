/*
 * survey — the state of a run's nodes, asked after a loss and while an excluded node is awaited.
 *
 * A launch backend asks whoever manages the nodes (Slurm's controller), and tries to reach those
 * that lost a rank, because the manager notices a dead node only after minutes. The environment of
 * this process is not used: it is as old as the job.
 */
#ifndef MUSTER_LAUNCHER_SURVEY_H
#define MUSTER_LAUNCHER_SURVEY_H

#include "topo/cluster.h"

#include <stdbool.h>

enum node_state {
	NODE_UP,
	NODE_DOWN,
	NODE_DRAIN,
	NODE_FAIL,
	NODE_LEFT,        /* it no longer belongs to the job */
	NODE_UNREACHABLE, /* the manager counts it as up, but it cannot be reached */
	NODE_UNKNOWN,     /* nothing was learnt; what an earlier survey found still holds */
	NODE_STATES
};

/* What people read, such as "is down" or "has left the job". */
const char *launcher_node_state_text(enum node_state s);

struct survey_request {
	const struct cluster *cluster; /* all nodes that the run began with */
	const bool *suspects;          /* [n_nodes] nodes to reach; NULL: none */
};

/* The manager may answer only some of the questions. What it has answered, and which nodes cannot be
 * reached, is known then, too: NODE_UNKNOWN stands for the rest. */
struct survey {
	bool answered; /* the manager has answered all questions; otherwise `why` has the cause */
	bool partly;   /* it has answered some of them */
	enum node_state *nodes; /* [n_nodes] of the request's cluster */
	int n_nodes;
	bool job_known;   /* the question for the job was answered */
	bool can_requeue; /* if so: the job can be requeued */
	int free;         /* nodes that have left the job, are up and run nothing */
	char why[200];
};

#endif
