/*
 * space — every configuration that a search may choose: for each key that the job leaves open the
 * values worth trying, for the other keys the job's own.
 *
 * All of them obey the rules of plan/spec/job/check*.c. The space leaves out what cannot win:
 * tensor parallelism that leaves more than a quarter of the devices idle; replicas on less than
 * three quarters of the possible devices, if more replicas are possible (of the cores, if there
 * can be more agents than a node has cores); context parallelism for dense models of less than 16k
 * tokens on GPUs, if heads, layers and sequences suffice for the devices; ZeRO without replicas;
 * schedules without a pipeline; schedules that are not searched (schedule.h), or that the program
 * of plan.engine does not have (engine.h).
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
	int apart;   /* devices that agents can use without sharing cores */
	int box;     /* devices of the smallest node */
	int domain;  /* devices of the first node and of the nodes that share its fabric */
	int named;   /* devices that launch.speeds names; 0: all are equal */
	struct space_list tp, cp, ep, pp, micro;
	/* for each tp: the tensor-parallel groups that fit inside nodes, or across nodes if none
	 * fits inside one */
	int groups[SPACE_VALUES];
	struct space_recompute again[2 * SPACE_VALUES + 1];
	int n_again;
	struct space_zero zero[7];
	int n_zero;
	bool sp[2], activations[2], optimizer[2]; /* [0]: try no; [1]: try yes */
	/* Only what fits with room to spare: into SPACE_ROOMY of a GPU's memory, because what
	 * libraries take, fragments, and the prediction itself are less certain than that; and
	 * nothing is offloaded to hosts whose memory is unknown. */
	bool roomy;
};
#define SPACE_ROOMY 0.92

/* ERR_USAGE if some key has no value that obeys the rules. */
int search_space_open(const struct job *job, const struct cluster *c, struct space *out,
		      struct err *e);

/* The most stages that the model's layers fill. */
int64_t search_space_stages(const struct space *s);
/* The numbers of replicas to try with these degrees, ascending. micro: sequences of a
 * micro-batch. */
void search_space_dp(const struct space *s, int tp, int cp, int ep, int pp, int micro,
		     struct space_list *out);
/* The numbers of chunks to try for a schedule; none if the schedule is not tried with pp pipeline
 * ranks. */
void search_space_chunks(const struct space *s, enum job_schedule schedule, int pp,
			 struct space_list *out);
/* Whether this value of parallel.sp is tried and possible. */
bool search_space_sp(const struct space *s, bool sp, int tp, int cp, int micro);
#endif
