/*
 * space — every configuration that a search may choose from: for each key that the job leaves open
 * the values that are worth a look, for the others the job's own.
 *
 * All of them keep to the rules of plan/spec/job/check*.c. Left out is what cannot win: tensor
 * parallelism that leaves more than a quarter of the devices idle, replicas on less than three
 * quarters of those that could be had where more are possible (where more agents than a node's
 * cores could be had: of the cores), ZeRO without replicas, schedules without a pipeline, naive and
 * gpipe.
 */
#ifndef MUSTER_PLAN_SEARCH_SPACE_H
#define MUSTER_PLAN_SEARCH_SPACE_H

#include "base/err.h"
#include "plan/spec/model/model.h"
#include "plan/search/config.h"
#include "topo/cluster.h"

enum { SPACE_VALUES = 128 };

struct space_list {
	int n, at[SPACE_VALUES]; /* ascending */
};

/* How recomputation, ZeRO and offloading may be combined: few enough to be listed. */
struct space_recompute {
	enum job_recompute mode;
	int every;
};
struct space_zero {
	int stage;
	enum job_zero_shard shard;
};

struct space {
	const struct job *job; /* borrowed, as is the cluster */
	const struct cluster *cluster;
	struct model_shape shape;
	int devices; /* of the cluster */
	int apart;   /* those that agents can take without sharing cores */
	int box;     /* devices of the smallest node */
	int domain;  /* devices of the first node and of those that share its fabric */
	int named;   /* devices that launch.speeds names; 0: all are alike */
	struct space_list tp, cp, ep, pp, micro;
	/* of each tp: tensor-parallel groups that have room inside nodes, or across where none
	 * fits inside one */
	int groups[SPACE_VALUES];
	struct space_recompute again[2 * SPACE_VALUES + 1];
	int n_again;
	struct space_zero zero[7];
	int n_zero;
	bool sp[2], activations[2], optimizer[2]; /* whether no, yes is to be tried */
};

/* Fails with ERR_USAGE where no value of some key keeps to the rules. */
int search_space_open(const struct job *job, const struct cluster *c, struct space *out,
		      struct err *e);

/* Replicas for these degrees, ascending; micro: sequences of a micro-batch. */
void search_space_dp(const struct space *s, int tp, int cp, int ep, int pp, int micro,
		     struct space_list *out);
/* Numbers of chunks for a schedule; none where the schedule is not to be tried with so many
 * pipeline ranks. */
void search_space_chunks(const struct space *s, enum job_schedule schedule, int pp,
			 struct space_list *out);
/* Whether sequence parallelism may be so. */
bool search_space_sp(const struct space *s, bool sp, int tp, int cp, int micro);
#endif
