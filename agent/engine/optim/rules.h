/*
 * rules — how each optimizer updates the elements that a rank owns. Only files of
 * agent/engine/optim include this.
 *
 * A rule is one of two kinds. An elementwise rule has `update`: optim.c joins pieces into runs and
 * calls it with a list of them, and moves states between the host and a device. Any other rule has
 * `open`, `step` and `close`, and walks the pieces itself; its memory is the host's. The comment at
 * `struct optim_rule` states what a rule may assume.
 *
 * The recipe for a new optimizer is in plan/spec/optimizers.h.
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_RULES_H
#define MUSTER_AGENT_ENGINE_OPTIM_RULES_H

#include "agent/engine/optim/optim.h"
#include "plan/spec/optimizers.h"

struct optim_offload;
struct parallel_graph;

/* One step. Its values are the same for all elements that it updates. */
struct optim_step {
	double lr;
	double scale;   /* of the stored gradients: clipping and the loss scale */
	int64_t number; /* from 1 */
	double share;   /* of a whole step; 1 unless a parameter server asks */
};

/* Pieces that are adjacent in all their buffers and have the same weight decay. */
struct optim_run {
	const struct param_piece *first;
	float *master, *grad;
	int64_t at, count;
	bool decay;
};

/* Gradients that count in the norm. */
struct optim_stretch {
	const float *grad;
	int64_t count;
};

/*
 * `step` is called between param_store_finish and param_store_sync_params, by all ranks of the
 * world, which skip a step together. Then gradients are complete and identical on all ranks that
 * hold the same elements, and the groups of param_store_shards and param_store_tp carry nothing.
 * Ranks of a group have the same catalogue entries in the same order, so collectives in that order
 * match. Results must not depend on the layout beyond the rounding of sums, and must have the same
 * bits on all ranks that hold the same elements.
 */
struct optim_rule {
	/* the factor of the gradients in a part of a step (optim_step_part); NULL: it is 1 */
	double (*weight)(const struct optim *o, double share);
	void (*update)(const struct optim *o, struct update *u, int n, const struct optim_step *s);
	int (*open)(struct optim *o, struct err *e); /* may set o->own */
	int (*step)(struct optim *o, const struct optim_step *s, struct err *e);
	void (*close)(struct optim *o); /* after a failed open too */
};

#define OPTIM_RULE(NAME, name) extern const struct optim_rule optim_rule_##name;
OPTIMIZERS(OPTIM_RULE)
#undef OPTIM_RULE

struct optim {
	enum job_optimizer kind;
	const struct optimizer *traits;
	const struct optim_rule *rule;
	struct backend *backend;
	const struct ops *ops;
	struct param_store *store;
	const struct job *job;
	/* A state tensor: memory, and where each piece's or parameter's part of it begins. */
	struct optim_memory {
		float *data;
		size_t bytes;
		/* [pieces] with OPTIMIZER_OTHER, [parameters] with ROW and COLUMN, NULL with
		 * ELEMENT (piece.at); -1: it has no part */
		int64_t *at;
	} states[OPTIMIZER_STATES_MAX];
	bool spilled;                  /* states are in a file or in the host's memory */
	struct optim_offload *offload; /* spilled, and the backend's memory is a device's */
	struct optim_run *runs;
	int n_runs;
	struct update *updates; /* [n_runs or pieces], of the step under way */
	struct optim_stretch *counted;
	int n_counted;
	/* in the backend's memory: the caller's, the one here, or the device's */
	struct step_numbers numbers_here, *numbers;
	bool own_numbers;                    /* they are the device's */
	struct step_rule queued_rule;        /* of optim_queue_step */
	bool queued_counts;                  /* this rank's losses are part of the sums */
	struct step_numbers *queued;         /* its numbers, in pinned memory */
	uint64_t queued_ticket;              /* of the copy of them */
	bool queued_before;                  /* there was a step already */
	struct parallel_graph *queued_graph; /* NULL: not recorded */
	const double *queued_losses;         /* that the graph reads */
	struct comm *device_world; /* adds the squares of all ranks there; NULL: the host does */
	bool squared;
	void *own; /* the rule's */
};

/* Updates all runs of an elementwise rule. step: how many steps are finished when the masters are
 * published. */
void optim_update_runs(struct optim *o, const struct optim_step *s, int64_t step);
/* queue.c: forgets the recorded step. */
void optim_queue_forget(struct optim *o);
double optim_weight_decay(const struct optim *o, bool decay);
/* AdamW with the job's hyper-parameters: the rule `adamw`; other rules use it too. */
void optim_adamw(const struct optim *o, struct update *u, int n, const struct optim_step *s);

#endif
