/*
 * model — shapes and the parameter catalogue: which parameters a model has, their names, and which
 * part of each a rank holds.
 *
 * The global names are the same for all families; import and export map them to transformers':
 *
 *     embed.tokens.weight [vocab, hidden]
 *     embed.positions.weight [seq, hidden]                 learned positions
 *     layers.N.norm1.weight .bias [hidden]                 .bias: LayerNorm
 *     layers.N.attn.{q,k,v,o}.weight [out, in] .bias [out] .bias: families with biases
 *     layers.N.attn.{q,k}_norm.weight [head_dim]           families that normalize q and k
 *     layers.N.norm2.weight .bias [hidden]
 *     layers.N.mlp.up.weight .bias, layers.N.mlp.gate.weight, layers.N.mlp.down.weight .bias
 *                                                          gate: SwiGLU
 *     layers.N.moe.router.weight [experts, hidden]         families with experts, in place of mlp
 *     layers.N.moe.experts.E.{gate,up,down}.weight
 *     norm.weight .bias
 *     head.weight [vocab, hidden]                          unless the head is tied
 *
 * Linear weights are [out, in]. Tensor parallelism splits one dimension into balanced pieces
 * (layout.h, partition). The pieces need not be equal: nothing is padded.
 *     split by rows    embed.tokens and head (the vocabulary); q, k and v (whole kv heads with
 *                      their q heads); gate and up
 *     split by columns o, down
 * If there are fewer kv heads than tp ranks, tp / kv_heads ranks share a kv head. Each of them
 * holds a copy of its k and v, and computes a part of their gradients. Each tp rank holds all other
 * parameters whole; as it has only its own heads, its gradients of q_norm and k_norm are parts,
 * too. Expert parallelism gives each ep rank a range of whole experts.
 *
 * A rank's parameters are in one flat order, chunk after chunk: the stage's embedding, its layers
 * in order, the final norm, the head. The order consists of *units*. A unit is gathered, reduced
 * and freed as one: the token table, the positions, a layer, a layer's experts, the final norm, the
 * head. q, k and v are adjacent (weights, then biases), and so are gate and up, so that one matrix
 * product computes them. Groups and units start at multiples of 16 elements; the gaps are always
 * zero.
 *
 * A tied head is embed.tokens itself. If the last stage's rank is not the first stage's, it holds a
 * copy as its head unit, with role PARAM_EMBED and tied_copy set. PARAM_HEAD exists only in untied
 * models.
 */
#ifndef MUSTER_PLAN_SPEC_MODEL_MODEL_H
#define MUSTER_PLAN_SPEC_MODEL_MODEL_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/model/family.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_shape {
	enum job_family family;
	int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
	bool rms, rope, gated, qkv_bias, bias, qk_norm, tied; /* family.h */
	double norm_eps, rope_theta, init_std;
	enum job_rope_scaling rope_scaling;
	double rope_factor, rope_low, rope_high;
	int64_t rope_original;
	int64_t experts, top; /* 0, 0: one dense feed-forward part */
	enum job_router router;
};

/* Sets the family's traits and replaces the job's zeros by their defaults. */
void shape_of_job(const struct job *job, struct model_shape *out);

/* Whether cuDNN's attention can be used on a GPU (kernels/cuda/attention_choose.h). cp: ranks that
 * share a sequence. */
bool shape_attention_by_cudnn(const struct job *job, const struct model_shape *m, int cp);
int64_t shape_params(const struct model_shape *m);
/* Model FLOPs of a training step for one token (forward + backward, no recomputation): 6 × the
 * weights of matrix products + attention (causal counted as half), Narayanan et al., arXiv
 * 2104.04473. */
double shape_flops_token(const struct model_shape *m);
/* FLOPs per token of one layer, the head and the embedding: the planner balances stages by them.
 * The embedding has no products; its cost stands for the memory that it moves. */
double shape_cost_layer(const struct model_shape *m);
double shape_cost_head(const struct model_shape *m);
double shape_cost_embed(const struct model_shape *m);

/* Radians by which each position turns pair i of a head, i < head_dim / 2 (Su et al., arXiv
 * 2104.09864). rope_scaling stretches the waves for longer contexts. llama3 is transformers' rule
 * for rope_type "llama3": it stretches long waves, leaves short ones, and interpolates between. */
double shape_rope_turn(const struct model_shape *m, int64_t i);

/* How many rows of logits the head computes at once, of n tokens. A row has row_bytes; at most
 * `most` bytes, but at least one row. Chunks are of nearly equal size, and of a multiple of `grain`
 * rows unless fewer fit, or there is only one chunk. */
int64_t shape_head_rows(int64_t n, int64_t row_bytes, int64_t most, int64_t grain);

enum param_role {
	PARAM_EMBED,
	PARAM_POSITIONS,
	PARAM_NORM1_W,
	PARAM_NORM1_B,
	PARAM_Q_W,
	PARAM_K_W,
	PARAM_V_W,
	PARAM_Q_B,
	PARAM_K_B,
	PARAM_V_B,
	PARAM_Q_NORM,
	PARAM_K_NORM,
	PARAM_O_W,
	PARAM_O_B,
	PARAM_NORM2_W,
	PARAM_NORM2_B,
	PARAM_GATE_W,
	PARAM_UP_W,
	PARAM_UP_B,
	PARAM_DOWN_W,
	PARAM_DOWN_B,
	PARAM_ROUTER,
	PARAM_EXPERT_GATE_W,
	PARAM_EXPERT_UP_W,
	PARAM_EXPERT_DOWN_W,
	PARAM_NORM_W,
	PARAM_NORM_B,
	PARAM_HEAD,
	PARAM_ROLES
};

enum param_init {
	INIT_ZERO,
	INIT_ONE,
	INIT_NORMAL,
	INIT_NORMAL_SCALED /* std / sqrt(2 layers), GPT-2's residual projections */
};

struct param {
	char name[64];
	enum param_role role;
	int layer;            /* global layer, -1 outside layers */
	int64_t shape[2];     /* global; vectors are [n, 1] */
	int dims;             /* 1 or 2 */
	int64_t lo[2], hi[2]; /* this rank's box */
	int expert;           /* -1: none */
	/* how many tp ranks hold this box, and this rank's number among them; copy 0 saves the box
	 * and counts it in norms */
	int copies, copy;
	bool partial; /* each copy computes a part of the gradient; an all-reduce sums them */
	/* the last stage's copy of embed.tokens: neither saved nor counted in norms */
	bool tied_copy;
	bool decay; /* weight decay applies (matrices) */
	enum param_init init;
	int unit;       /* index into the catalogue's units */
	int64_t offset; /* elements into the flat order */
	int64_t count;  /* elements of the box */
};

enum unit_kind { UNIT_TOKENS, UNIT_POSITIONS, UNIT_LAYER, UNIT_EXPERTS, UNIT_NORM, UNIT_HEAD };

struct unit {
	enum unit_kind kind;
	int chunk, layer;    /* layer -1 outside layers */
	int64_t lo, hi;      /* elements of the flat order */
	int first, n_params; /* its parameters */
	bool partial;        /* has parameters whose gradients are parts */
};

struct catalogue {
	struct param *params;
	int n;
	struct unit *units;
	int n_units;
	int64_t elements; /* of all units */
};

/* Splits are at multiples of these, unless a rank would then get nothing (layout.h,
 * layout_partition_grain). */
enum { CATALOGUE_VOCAB_GRAIN = 64, CATALOGUE_FFN_GRAIN = 16 };

struct share; /* layout.h */
/* ERR_UNSUPPORTED: the share's degrees cannot split the model. Free `out` with catalogue_free. */
int catalogue_build(const struct model_shape *m, const struct share *share, struct catalogue *out,
		    struct err *e);
void catalogue_free(struct catalogue *c);
/* Elements of a unit, computed without a catalogue; 0 if the family has no such unit. */
int64_t catalogue_unit_elements(const struct model_shape *m, const struct share *share,
				enum unit_kind kind);
/* How many units of this kind the share's chunks have. */
int catalogue_unit_count(const struct model_shape *m, const struct share *share,
			 enum unit_kind kind);
/* The number of elements that [lo, hi) and [from, to) have in common. */
int64_t catalogue_overlap(int64_t lo, int64_t hi, int64_t from, int64_t to);
/* How many elements in [lo, hi) of a unit this share counts and saves: those of which it is copy 0.
 * Gaps and tied copies do not count. */
int64_t catalogue_unit_counted(const struct model_shape *m, const struct share *share,
			       enum unit_kind kind, int64_t lo, int64_t hi);
enum { UNIT_KINDS = UNIT_HEAD + 1 };
/* The parameters of one unit of the kind, or of one expert of it: shapes, boxes, copies and offsets
 * within `elements`; no names. The unit holds that `times` over, one behind the other. */
struct catalogue_sample {
	struct param params[PARAM_ROLES];
	int n;
	int64_t elements, times;
	bool tied_copy;
};
void catalogue_sample(const struct model_shape *m, const struct share *share, enum unit_kind kind,
		      struct catalogue_sample *out);

/* NULL if this rank has no such parameter. layer is -1 outside layers, expert -1 outside
 * experts. */
const struct param *catalogue_find(const struct catalogue *c, enum param_role role, int layer,
				   int expert);
/* Returns the unit's index, or -1. The head of a tied model is UNIT_TOKENS if this rank has the
 * first stage, and UNIT_HEAD otherwise. */
int catalogue_unit(const struct catalogue *c, enum unit_kind kind, int layer);

/* ZeRO: a unit of n elements is cut into blocks of catalogue_block() elements, one for each of
 * `shards`. Shard i owns elements [*lo, *hi), which are its block without the padding: the
 * blocks are equally long, so that one call of a library can gather or reduce them, and the
 * last ones may end with padding or hold nothing else. Blocks are multiples of
 * CATALOGUE_SHARD_GRAIN. */
enum { CATALOGUE_SHARD_GRAIN = 16 };
int64_t catalogue_block(int64_t n, int shards);
void catalogue_piece(int64_t n, int shards, int i, int64_t *lo, int64_t *hi);

#endif
