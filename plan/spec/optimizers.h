/*
 * optimizers — the table of optimizers: one row carries every trait that anybody reads.
 *
 *     adamw      Loshchilov and Hutter, arXiv 1711.05101
 *     sgd        SGD with momentum, in PyTorch's form
 *     adafactor  Shazeer and Stern, arXiv 1804.04235: the second moment of a matrix is the product
 *                of one number per row and one per column; there is no first moment
 *     muon       Jordan 2024, with the scale of Liu et al., arXiv 2502.16982: the momentum of a
 *                hidden matrix is orthogonalized; AdamW updates everything else
 *
 * To add an optimizer:
 *   1. Add a line to OPTIMIZERS below. It makes the value of the enum, the word of optimizer.kind
 *      and the declaration of the rule that step 3 defines.
 *   2. Add its row to the table in optimizers.c. The job file's checks, the planner's memory and
 *      cost, and the checkpoints read this row.
 *   3. Define `const struct optim_rule optim_rule_NAME` in agent/engine/optim/NAME.c: its update
 *      (agent/engine/optim/rules.h states what a rule may assume).
 *   4. Add its vectors to tests/unit/agent/test_optim_golden.c, and rows to test_strategies.c,
 *      test_state_layouts.c and test_memory.c.
 * A hyper-parameter that no key has yet also needs a key (plan/spec/job/keys.c, job.h) and a bit of
 * enum optimizer_key. A state whose size follows none of enum optimizer_size needs a value of that
 * enum, and its case in optimizers.c.
 */
#ifndef MUSTER_PLAN_SPEC_OPTIMIZERS_H
#define MUSTER_PLAN_SPEC_OPTIMIZERS_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name): the order is that of enum job_optimizer. Only append: resolved jobs are read by
 * name, but tests and tables index by value. */
#define OPTIMIZERS(X) X(ADAMW, adamw) X(SGD, sgd) X(ADAFACTOR, adafactor) X(MUON, muon)

#define OPTIMIZER_VALUE(NAME, name) OPTIMIZER_##NAME,
enum job_optimizer { OPTIMIZERS(OPTIMIZER_VALUE) OPTIMIZER_KINDS };
#undef OPTIMIZER_VALUE

/* The size of a state tensor of a parameter, which is [rows, columns] or, for a vector, [rows,
 * 1]. */
enum optimizer_size {
	OPTIMIZER_NONE,    /* ends a row's list of states */
	OPTIMIZER_ELEMENT, /* the parameter's own size; sharded with the parameter */
	/* the same, but hidden matrices (optimizer_hidden) have none */
	OPTIMIZER_OTHER,
	/* [rows]; every rank that holds any part of the parameter holds the whole of it */
	OPTIMIZER_ROW,
	OPTIMIZER_COLUMN, /* [columns] of a matrix, held like OPTIMIZER_ROW; vectors have none */
};

/* Keys of the section [optimizer] that some optimizers ignore. */
enum optimizer_key {
	OPTIMIZER_BETA1 = 1 << 0,
	OPTIMIZER_BETA2 = 1 << 1,
	OPTIMIZER_EPS = 1 << 2,
	OPTIMIZER_MOMENTUM = 1 << 3,
};

enum { OPTIMIZER_STATES_MAX = 2 };

struct optimizer {
	const char *name; /* the value of optimizer.kind, and the manifest's word */
	struct optimizer_state {
		const char *name; /* the state of parameter P is the tensor optim.NAME.P */
		enum optimizer_size size;
	} states[OPTIMIZER_STATES_MAX];
	unsigned keys; /* those of enum optimizer_key that it reads */
	/* fp32 words that an update reads and writes for each parameter that it owns */
	double words;
	/* Products over hidden matrices: this many iterations of Newton and Schulz; 0: none. */
	int iterations;
	/* The update of an element reads only that element's gradient and states. Otherwise it
	 * reads a whole matrix, and neither a parameter server nor a GPU can run it in this
	 * version. */
	bool elementwise;
	/* the memory that an update needs besides the states */
	enum optimizer_work {
		OPTIMIZER_WORK_NONE,
		OPTIMIZER_WORK_SUMS,  /* a double for each row, column and parameter */
		OPTIMIZER_WORK_MATRIX /* struct optimizer_matrix */
	} work;
};

const struct optimizer *optimizer_of(enum job_optimizer kind);
/* The words of optimizer.kind in the enum's order, terminated by NULL. */
extern const char *const optimizer_words[];
/* Sets *out and returns true if there is an optimizer of this name. */
bool optimizer_find(const char *name, enum job_optimizer *out);

struct param;
struct model_shape;
struct share;
struct zero_cut;

/* Whether the parameter is a matrix inside a layer: not an embedding and not the head. */
bool optimizer_hidden(const struct param *p);
/* The shape of state `i` of the parameter; false: the parameter has no such state. Vectors are
 * [n, 1] of one dimension. */
bool optimizer_state_shape(enum job_optimizer kind, int i, const struct param *p, int64_t shape[2],
			   int *dims);

/* --- Memory: the same arithmetic in the planner and in the agent ----------------------------- */

/* The number of states of size OPTIMIZER_ELEMENT. */
int optimizer_full_states(enum job_optimizer kind);

/* The bytes that the optimizer allocates on a rank, exactly. */
struct optimizer_memory {
	double state; /* bytes of all states */
	double work;  /* bytes that an update needs besides, held from open to close */
};
/* counts: how many units of each kind the rank has (indexed by enum unit_kind); cuts: its cuts
 * (zero.h), by class. */
void optimizer_memory_of(enum job_optimizer kind, const struct model_shape *m,
			 const struct share *s, const int *counts, int stage,
			 const struct zero_cut *cuts, struct optimizer_memory *out);
/* One class of units (zero.h) of the whole model: its parameters, and all of their states. */
struct optimizer_elements {
	double params;
	double split; /* of states that are sharded with their parameter */
	double whole; /* of states that each rank with a part of the parameter holds whole */
};
/* out: [ZERO_CLASSES]. A checkpoint has the sum of all these elements. */
void optimizer_elements_of(enum job_optimizer kind, const struct model_shape *m,
			   struct optimizer_elements *out);
/* Bytes of a checkpoint: the parameters of the whole model in fp32, and all states of the
 * optimizer. */
double optimizer_checkpoint_bytes(enum job_optimizer kind, const struct model_shape *m);
/* The elements of hidden matrices in a unit of this kind (enum unit_kind) on the share's rank. */
int64_t optimizer_hidden_elements(const struct model_shape *m, const struct share *s, int unit);
/* The elements of all states that this rank writes into a checkpoint. */
double optimizer_saved(enum job_optimizer kind, const struct model_shape *m, const struct share *s,
		       int stage, const struct zero_cut *cuts);

/* The largest sizes among a rank's hidden matrices, which OPTIMIZER_WORK_MATRIX depends on. */
struct optimizer_matrix {
	int64_t box;   /* elements of the largest box */
	int64_t whole; /* elements of the largest matrix */
	int64_t boxes; /* elements of the boxes of all tp ranks, with copies */
	int64_t side;  /* the smaller side of a matrix, at most */
};
void optimizer_matrix_add(struct optimizer_matrix *m, const struct param *p);
double optimizer_matrix_bytes(const struct optimizer_matrix *m);

#endif
