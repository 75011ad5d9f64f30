/*
 * parts — the parts of a mixed cluster that a job may run on.
 *
 * A step takes as long as its slowest devices need, so on a cluster with devices of several
 * classes the fast ones alone may be better than all of them. Kinds of nodes are of one class if
 * their devices have the same figures. A part has all nodes of some classes: every choice of them
 * if there are at most PARTS_FREE classes; otherwise each class alone, and the fastest ones
 * together, up to all. Devices of two vendors form no part together, and neither do devices that
 * have products of the job's type with some that lack them. A cluster of one class has one part,
 * itself.
 *
 * If a job names each rank's device (launch.speeds, launch.threads), rank r is the r-th device.
 * Then only the parts with exactly as many devices and the whole cluster come into question.
 */
#ifndef MUSTER_PLAN_PARTS_H
#define MUSTER_PLAN_PARTS_H

#include "plan/spec/job/job.h"
#include "topo/cluster.h"

enum { PARTS_CLASSES = 16, PARTS_FREE = 4, PARTS_MAX = 2 * PARTS_CLASSES };

struct plan_parts {
	const struct cluster *all;  /* borrowed */
	int *class_of;              /* [n_kinds]; the fastest is 0, a kind without nodes -1 */
	double rate[PARTS_CLASSES]; /* layers per second on a device (plan/cost/unlike.h) */
	int n;
	/* the classes of each part, bit by bit: the part that can compute the most first */
	uint32_t classes[PARTS_MAX];
};

/* ERR_NOMEM. */
int plan_parts_open(const struct job *job, const struct cluster *c, struct plan_parts *out,
		    struct err *e);
void plan_parts_close(struct plan_parts *parts);

/* A part as a cluster of its own. It borrows everything but its lists of nodes and kinds, keeps the
 * order of the nodes, and is named after its kinds. */
struct plan_part {
	struct cluster cluster;
	int *nodes; /* the index in the whole cluster of each of its nodes */
};
/* Whether unequal shares of the work can use a part better than equal ones: it has several classes,
 * and launch.speeds has room for the speeds of its devices, which are written to out. */
bool plan_part_speeds(const struct plan_parts *parts, const struct plan_part *part,
		      char out[JOB_TEXT]);
int plan_part_open(const struct plan_parts *parts, int i, struct plan_part *out, struct err *e);
void plan_part_close(struct plan_part *part);

#endif
