/* eval_levels — the data that each level of an evaluation (eval.h) keeps for the levels below it.
 * For eval.c, eval_line.c and eval_memory.c only. */
#ifndef MUSTER_PLAN_SEARCH_EVAL_LEVELS_H
#define MUSTER_PLAN_SEARCH_EVAL_LEVELS_H

#include "plan/spec/schedule/closed_form.h"
#include "plan/cost/step.h"
#include "plan/memory.h"
#include "plan/search/eval.h"
#include "plan/search/live_counts.h"

/* The tp rank that needs the most memory is the first one, the last one, or, because rows of logits
 * are padded, the first one with a shorter piece of the vocabulary. */
enum { TP_KINDS = 3, STREAMS = 1 << 12, ZEROS = 2 * 4 };

/* Passes of a layer that keeps its activations and of one that recomputes them; what the first and
 * the last stage have in addition. */
struct eval_passes {
	struct cost_pass kept, recomputed, first, last;
};

/* The devices of a cluster whose job names their speeds, in the order of the ranks. */
struct eval_devices {
	struct cost_machine *machines; /* [n] one for each kind of nodes */
	double *rates;                 /* [n] plan/cost/unlike.h; 0: a processor */
	struct regular_cluster *nodes; /* [n] one node of each kind, if linked */
	bool *linked;
	struct group_links (*links)[GROUP_KINDS]; /* [n] for this grid */
	int n;
	int *kinds; /* [named] of each rank, for this tp; the order of ranks depends on it */
	int tp;
	double best; /* the rate of the fastest of them */
	/* of this grid, if set: [dp][pp] the slowest device, and its rate as it is slowed */
	bool set;
	struct cost_device *holders;
	double *speeds;
	struct cluster_slot *slots;
};

/* One stream of a grid, kept for the grids that share it. Passes depend on the links too, sizes do
 * not. */
struct eval_stream {
	bool set;
	int tp, cp, ep, micro;
	bool sp;
	struct space_recompute again;
	struct group_links links[3]; /* tp, cp, ep */
	const struct cost_machine *machine;
	struct eval_passes *passes; /* [n_own] on each machine */
	bool sized[2][2];
	struct memory_sizes sizes[2][2][TP_KINDS]; /* [splits][offloaded] */
};

/* Pipeline ranks with equal keys have equal costs. */
struct eval_key {
	int layers, again;
	/* of the first and the last chunk: layers × 2^16 + recomputing layers */
	int ends[2];
	bool first, last;
	int machine; /* index into a stream's passes */
	double scale;
	/* seconds to copy a micro-batch's activations to host memory: of all chunks, of the first,
	 * of the last */
	double copies, head, tail;
};

/* The pipeline ranks with one key. */
struct eval_kind {
	struct eval_key key;
	int example, n; /* one of these ranks; how many there are */
	struct cost_rank cost;
	struct pipeline_rank_times pipe;
	int state;                                      /* index into states */
	double activations[TP_KINDS], shared[TP_KINDS]; /* of the rank that keeps the most alive */
	int most[TP_KINDS];                             /* that rank */
	double host; /* bytes in its node's memory, for the leaf; without activations */
};

/* Parameters and optimizer state of ranks with these layers and ends, on this grid. */
struct eval_state {
	int layers;
	bool first, last;
	bool set[ZEROS];
	struct plan_rank bytes[ZEROS][TP_KINDS];
};

struct eval {
	const struct space *space;
	struct job job; /* the space's job with this configuration */
	struct search_config config;
	struct layout layout;
	struct regular_cluster regular;
	struct rank_box fold;
	struct group_links group_links[GROUP_KINDS];
	/* [devices of the largest node + 1]: by the number of agents on the node */
	struct cost_machine *machines;
	bool *machine_set;
	double *limits, *host_limits; /* [devices of the largest node + 1] */
	int box;
	bool on_cpu;
	struct cost_units units[TP_KINDS];
	int units_tp, units_ep;           /* degrees that `units` is for */
	int tp_ranks[TP_KINDS], tp_kinds; /* 1 if all tp ranks are equal */
	struct cost_case cost;
	struct stage **stages;    /* [search_space_stages() + 1]: by their number; NULL: not yet */
	bool *uncut;              /* cannot be split into that many stages */
	struct stage *own_stages; /* for unequal devices */
	struct batch_share *shares;
	struct eval_devices own;
	struct eval_stream *streams, *stream;
	struct eval_passes *passes; /* [STREAMS][n_own] */
	int n_own;                  /* machines that a stream has passes of */
	struct eval_kind *kinds;    /* [pp] */
	int n_kinds, *kind_of;      /* of each pipeline rank */
	double *away;               /* [pp] bytes of its activations in the node's memory */
	struct eval_state *states;
	int n_states, room_states;
	struct pipeline_times pipe;
	double whole; /* the pipeline's time; its agents may share cores */
	struct live_counts *live;
	bool counted; /* the kinds' activations are set */
	struct memory_sizes
		less[TP_KINDS]; /* of the stream with smaller chunks of logits than the job's */
	/* of the previous leaf, if it was on this line and had this ZeRO */
	struct cost_sum sum;
	struct space_zero summed;
	bool has_sum;
};

int search_eval_agents(const struct eval *v);
/* The machine of a stream's passes [i], and the links of its node; 0: the case's, otherwise
 * those of kind i - 1. */
const struct cost_machine *search_eval_machine(const struct eval *v, int i);
const struct group_links *search_eval_links(const struct eval *v, int i);
/* The sizes of the stream, [TP_KINDS]. */
const struct memory_sizes *search_eval_sizes(struct eval *v);
/* Sets the bytes of the kinds' activations for the line. */
bool search_eval_activations(struct eval *v);
/* The bytes of the rank that needs the most, with the leaf's ZeRO and offloading in v->job. Returns
 * the most that the ranks of a node need of its memory, as a mean over them. */
double search_eval_largest(struct eval *v, struct plan_rank *out);

#endif
