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
 *     norm.weight .bias                        head.weight [vocab, hidden] (when not tied)
 *
 * Linear weights are [out, in]. Tensor parallelism cuts one dimension into
 * balanced pieces (layout.h, partition) that need not be equal: nothing is padded.
 * Cut by rows: embed.tokens, head (vocabulary), q, k, v (whole kv heads with
 * their q heads), gate, up. Cut by columns: o, down. Everything else is whole on each tp rank.
 *
 * A rank's parameters lie in one flat buffer in the catalogue's order: the
 * stage's embedding, its layers in order, final norm, head. q, k, v (weights,
 * then biases) and gate, up are adjacent, so that one matrix product does them.
 * Groups start at multiples of 16 elements, and the buffer's length is one; the gaps hold zeros for ever.
 *
 * A tied head is embed.tokens itself. Where the last stage is not the first, it
 * holds a copy at the end of its buffer, role PARAM_EMBED, tied_copy set: so
 * catalogue_find(c, PARAM_EMBED, -1) is the head's weight on the last stage of
 * a tied model, and PARAM_HEAD exists only in untied ones.
 */
#ifndef MUSTER_PLAN_MODEL_H
#define MUSTER_PLAN_MODEL_H

#include "base/err.h"
#include "plan/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_shape {
	enum job_family family;
	int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
	bool rms, rope, gated, bias, tied; /* what the family is made of */
	double norm_eps, rope_theta, init_std;
};

/* Fills in the family's parts and the job's defaults. */
void model_shape(const struct job *job, struct model_shape *out);
int64_t model_params(const struct model_shape *m);
/* Model FLOPs of a training step for one token (forward + backward, no recomputation):
 * 6 × the weights of matrix products + attention (causal counted as half), Narayanan et al., arXiv 2104.04473. */
double model_flops_token(const struct model_shape *m);
/* The same by part: what balances the stages. The embedding's is the FLOPs' worth of the memory that it moves. */
double model_cost_layer(const struct model_shape *m);
double model_cost_head(const struct model_shape *m);
double model_cost_embed(const struct model_shape *m);

/* Rows of logits that are held at once, for n tokens and `vocab` columns of the head. */
int64_t model_head_rows(int64_t n, int64_t vocab);

enum param_role {
	PARAM_EMBED, PARAM_POSITIONS,
	PARAM_NORM1_W, PARAM_NORM1_B, PARAM_Q_W, PARAM_K_W, PARAM_V_W, PARAM_Q_B, PARAM_K_B, PARAM_V_B,
	PARAM_O_W, PARAM_O_B, PARAM_NORM2_W, PARAM_NORM2_B,
	PARAM_GATE_W, PARAM_UP_W, PARAM_UP_B, PARAM_DOWN_W, PARAM_DOWN_B,
	PARAM_NORM_W, PARAM_NORM_B, PARAM_HEAD,
	PARAM_ROLES
};

enum param_init { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_NORMAL_SCALED /* std / sqrt(2 layers), GPT-2's residual projections */ };

struct param {
	char name[64];
	enum param_role role;
	int layer;          /* global layer, -1 outside layers */
	int64_t shape[2];   /* global; vectors are [n, 1] */
	int dims;           /* 1 or 2 */
	int64_t lo[2], hi[2]; /* this rank's box */
	bool sharded;       /* cut over tp; else every tp rank holds it whole */
	bool tied_copy;     /* the last stage's copy of embed.tokens: not saved, not counted in norms */
	bool decay;         /* weight decay applies (matrices) */
	enum param_init init;
	int64_t offset;     /* elements into the rank's flat buffer */
	int64_t count;      /* elements of the box */
};

struct catalogue {
	struct param *params;
	int n;
	int64_t elements;   /* length of the flat buffer */
};

struct stage; /* plan/layout.h */

/* Cuts fall on multiples of these where every rank still gets something (layout.h, partition_grain). */
enum { CATALOGUE_VOCAB_GRAIN = 64, CATALOGUE_FFN_GRAIN = 16 };

/* The parameters of tp rank `tp_rank` of `tp` in one pipeline stage. */
int catalogue_build(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage,
		    struct catalogue *out, struct err *e);
/* What `elements` of that catalogue is, without building it. */
int64_t catalogue_elements(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage);
void catalogue_free(struct catalogue *c);

/* A checkpoint's tensors: each parameter and its two moments, numbered CATALOGUE_KINDS to a parameter in the catalogue's order. */
enum { CATALOGUE_KINDS = 3 };
/* The replica of `dp` that saves tensor `number`, of parameter p; -1 when another tp rank or stage does. */
int catalogue_saver(const struct param *p, int64_t number, int tp_rank, int dp);
/* How many elements each replica saves, saved[dp], without building the catalogue. */
void catalogue_saved(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage, int dp, double *saved);
/* NULL when this rank has no such parameter. layer -1 for those outside layers. */
const struct param *catalogue_find(const struct catalogue *c, enum param_role role, int layer);

#endif
