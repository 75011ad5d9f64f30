/*
 * model — shapes and the parameter catalogue: what exists, what it is called,
 * and which part of it a rank holds.
 *
 * Global names, whatever the family (import and export map them to others'):
 *
 *     embed.tokens.weight [vocab, hidden]      embed.positions.weight [seq, hidden] (gpt2)
 *     layers.N.norm1.weight .bias [hidden]     layers.N.norm2.…
 *     layers.N.attn.{q,k,v,o}.weight [out, in] .bias [out] (gpt2)
 *     layers.N.mlp.up.weight .bias, layers.N.mlp.gate.weight (llama), layers.N.mlp.down.weight .bias
 *     layers.N.moe.router.weight [experts, hidden], layers.N.moe.experts.E.{gate,up,down}.weight (mixtral)
 *     norm.weight .bias                        head.weight [vocab, hidden] (when not tied)
 *
 * Linear weights are [out, in]. Tensor parallelism cuts one dimension into balanced pieces
 * (layout.h, partition) that need not be equal: nothing is padded. Cut by rows: embed.tokens, head
 * (vocabulary), q, k, v (whole kv heads with their q heads), gate, up. Cut by columns: o, down.
 * With fewer kv heads than tp ranks, tp / kv_heads ranks share a kv head: each holds a copy of its
 * k and v, whose gradients are parts of the whole. Everything else is whole on each tp rank. Expert
 * parallelism gives ep rank i a run of whole experts.
 *
 * A rank's parameters lie in one flat order, chunk after chunk: the stage's embedding, its layers
 * in order, final norm, head. It is made of *units*: what is gathered, reduced and freed as one
 * (the token table, the positions, a layer, a layer's experts, the final norm, the head). q, k, v
 * (weights, then biases) and gate, up are adjacent, so that one matrix product does them. Groups
 * start at multiples of 16 elements, and so do units; the gaps hold zeros for ever.
 *
 * A tied head is embed.tokens itself. Where the last stage's rank is not the first stage's, it
 * holds a copy as its head unit, role PARAM_EMBED, tied_copy set; PARAM_HEAD exists only in untied
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

/* Fills in the family's parts and the job's defaults. */
void shape_of_job(const struct job *job, struct model_shape *out);
int64_t shape_params(const struct model_shape *m);
/* Model FLOPs of a training step for one token (forward + backward, no recomputation): 6 × the
 * weights of matrix products + attention (causal counted as half), Narayanan et al., arXiv
 * 2104.04473. */
double shape_flops_token(const struct model_shape *m);
/* The same by part: what balances the stages. The embedding's is the FLOPs' worth of the memory
 * that it moves. */
double shape_cost_layer(const struct model_shape *m);
double shape_cost_head(const struct model_shape *m);
double shape_cost_embed(const struct model_shape *m);

/* Radians by which a position turns pair i of a head's numbers, i < head_dim / 2: Su et al., arXiv
 * 2104.09864. Longer contexts stretch it; llama3: the rule of Llama 3.1's configuration in Hugging
 * Face transformers (rope_type "llama3"): long waves are stretched, short ones are not, those
 * between in proportion. */
double shape_rope_turn(const struct model_shape *m, int64_t i);

/* Rows of logits that are held at once, for n tokens and `vocab` columns of the head. */
int64_t shape_head_rows(int64_t n, int64_t vocab);

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
	/* tp ranks that hold this very box, and this one's place among them: copy 0 saves it and
	 * counts in norms */
	int copies, copy;
	bool partial; /* each copy's gradient is a part: the copies sum them */
	/* the last stage's copy of embed.tokens: not saved, not counted in norms */
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

/* Cuts fall on multiples of these where every rank still gets something (layout.h,
 * layout_partition_grain). */
enum { CATALOGUE_VOCAB_GRAIN = 64, CATALOGUE_FFN_GRAIN = 16 };

struct share; /* layout.h */
int catalogue_build(const struct model_shape *m, const struct share *share, struct catalogue *out,
		    struct err *e);
void catalogue_free(struct catalogue *c);
/* Elements of a unit, without building anything; 0 for one that the family does not have. */
int64_t catalogue_unit_elements(const struct model_shape *m, const struct share *share,
				enum unit_kind kind);
/* How many units of the kind the share's chunks have. */
int catalogue_unit_count(const struct model_shape *m, const struct share *share,
			 enum unit_kind kind);
/* Elements within [lo, hi) of a unit that this share counts and saves: those of which it is copy
 * 0, no gaps, no tied copy. */
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

/* NULL when this rank has no such parameter. layer -1 for those outside layers, expert -1 for
 * those of none. */
const struct param *catalogue_find(const struct catalogue *c, enum param_role role, int layer,
				   int expert);
/* -1 when there is none. The head of a tied model is UNIT_TOKENS where this rank has the first
 * stage, else UNIT_HEAD. */
int catalogue_unit(const struct catalogue *c, enum unit_kind kind, int layer);

/* ZeRO: shard i of `shards` owns elements [*lo, *hi) of a unit of n: balanced, at multiples of
 * CATALOGUE_SHARD_GRAIN, none lost. */
enum { CATALOGUE_SHARD_GRAIN = 16 };
void catalogue_piece(int64_t n, int shards, int i, int64_t *lo, int64_t *hi);

/* A checkpoint's tensors: each parameter (fp32) and the optimizer's two moments of it. */
enum { CATALOGUE_KINDS = 3 };

#endif
