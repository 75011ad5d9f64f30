/*
 * holdings — the tensors of the training state that a rank holds, each with its tally
 * (kernels/ops.h).
 *
 * A tally answers two questions: how many numbers of a tensor are NaN or infinite, and whether it
 * has the same bits as on another rank. Several ranks hold the same part of a parameter: replicas,
 * tp ranks with a copy of a norm or of a kv head, and the first and the last stage of a tied model.
 * Such parts have equal bits after each update, because each rank computes the update of the same
 * numbers in the same order, or receives the result. The classes below separate what different
 * ranks share: two ranks whose holdings of a class are the same parts of the same tensors must have
 * equal tallies there. Ranks whose kernels have different instruction sets are not compared,
 * because these may round differently.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_HOLDINGS_H
#define MUSTER_AGENT_ENGINE_TRAIN_HOLDINGS_H

#include "agent/engine/train/state.h"
#include "base/err.h"
#include "kernels/ops.h"

#include <stdbool.h>
#include <stdint.h>

enum held_class {
	HELD_SPLIT,   /* dense parameters of which each tp rank has its own part */
	HELD_COPIES,  /* parameters that all tp ranks hold */
	HELD_SHARED,  /* parameters that some tp ranks share: kv heads */
	HELD_EXPERTS, /* experts */
	HELD_TIED,    /* the table of a tied model, which is also its head */
	HELD_STATES, /* masters, if they are not the stored parameters, and the optimizer's states */
	HELD_CLASSES
};

enum held_what { HELD_PARAMETER, HELD_MASTER, HELD_STATE, HELD_GRADIENT };

struct held {
	const struct param *param; /* borrowed from the catalogue */
	enum held_what what;
	enum held_class class;
	int64_t first, count; /* elements of the parameter's box */
	uint64_t key;         /* of the tensor and the part: equal on ranks that hold the same */
	struct tally tally;
};

struct holdings {
	struct held *list; /* in the order of the catalogue */
	int n;
};

/* The holdings of a class, summed up. key 0: there are none. */
struct held_sum {
	uint64_t key, digest;
};

/* The stored parameters; with `states` also masters and optimizer states. After
 * param_store_settle. */
int train_holdings_state(const struct train_state *state, bool states, struct holdings *out,
			 struct err *e);
/* The gradients of the pieces. */
int train_holdings_gradients(const struct param_store *store, struct holdings *out, struct err *e);
void train_holdings_close(struct holdings *h);

/* Sets sums [HELD_CLASSES]. isa: the instruction set of the rank's kernels. */
void train_holdings_sum(const struct holdings *h, const char *isa, struct held_sum *sums);
/* The first tensor with a number that is NaN or infinite. NULL: there is none. */
const struct held *train_holdings_bad(const struct holdings *h);

#endif
