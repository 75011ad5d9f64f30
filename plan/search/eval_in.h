/* eval_in — what the levels of an evaluation keep (eval.h), for eval.c, search_eval_line.c and
 * eval_memory.c. */
#ifndef MUSTER_PLAN_SEARCH_EVAL_IN_H
#define MUSTER_PLAN_SEARCH_EVAL_IN_H

#include "plan/spec/schedule/closed_form.h"
#include "plan/cost/step.h"
#include "plan/memory.h"
#include "plan/search/eval.h"
#include "plan/search/live.h"

/* The largest shard is the first tp rank's or the last one's. */
enum { ENDS = 2, STREAMS = 1 << 12, ZEROS = 2 * 4 };

/* One stream of a grid, remembered over grids that share it: passes depend on the links too,
 * sizes do not. */
struct eval_stream {
	bool set;
	int tp, cp, ep, micro;
	bool sp;
	struct space_recompute again;
	struct group_links links[3]; /* tp, cp, ep */
	const struct cost_machine *machine;
	/* of a layer that does not recompute, and one that does; more of the first stage, of the
	 * last */
	struct cost_pass plain, redone, first, last;
	bool sized[2][2];
	struct memory_sizes sizes[2][2][ENDS]; /* [splits][offloaded] */
};

/* What tells pipeline ranks apart. */
struct eval_key {
	int layers, again;
	/* layers × 2^16 + recomputing ones of the first and the last chunk */
	int ends[2];
	bool first, last;
	double scale;
	/* seconds to bring a micro-batch's activations to host memory: of all chunks, the first,
	 * the last */
	double copies, head, tail;
};

/* Those alike. */
struct eval_kind {
	struct eval_key key;
	int example, n; /* one of them; how many */
	struct cost_rank cost;
	struct pipeline_rank_times pipe;
	int state;                              /* index into states */
	double activations[ENDS], shared[ENDS]; /* of the one with most alive */
	int most[ENDS];                         /* that one */
};

/* Parameters and their state, of ranks with so many layers and these ends, on this grid. */
struct eval_state {
	int layers;
	bool first, last;
	bool set[ZEROS];
	struct plan_rank bytes[ZEROS][ENDS];
};

struct eval {
	const struct space *space;
	struct job job; /* the space's, with the configuration */
	struct search_config config;
	struct layout layout;
	struct regular_cluster yard;
	struct rank_box fold;
	struct group_links group_links[GROUP_KINDS];
	/* [devices of the largest node + 1]: with so many agents on it */
	struct cost_machine *machines;
	bool *machine_set;
	double *limits; /* likewise */
	int box;
	bool on_cpu;
	struct cost_units units[ENDS];
	int units_tp, units_ep, ends; /* what they are of; 1 end where both are alike */
	struct cost_case cost;
	struct stage **stages; /* [layers + 1]: cut into so many, NULL: not yet */
	bool *uncut;           /* cannot be */
	struct stage *own;     /* of devices that are unequal */
	struct batch_share *shares;
	double *scale;
	struct eval_stream *streams, *stream;
	struct eval_kind *kinds; /* [pp] */
	int n_kinds, *kind_of;   /* of each pipeline rank */
	struct eval_state *states;
	int n_states, room_states;
	struct pipeline_times pipe;
	double whole; /* the pipeline's time, on cores that its agents may share */
	struct live_counts *live;
	bool counted; /* kinds' activations are set */
	/* of the leaf before, when that was this line's and had this ZeRO */
	struct cost_sum sum;
	struct space_zero summed;
	bool has_sum;
};

int search_eval_agents(const struct eval *v);
/* Of the stream, [ENDS]. */
const struct memory_sizes *search_eval_sizes(struct eval *v);
/* Sets the kinds' bytes of activations for the line. */
bool search_eval_activations(struct eval *v);
/* The bytes of the rank that needs most, with the leaf's ZeRO and offloading in v->job. */
void search_eval_largest(struct eval *v, struct plan_rank *out);

#endif
