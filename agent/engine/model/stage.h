/*
 * stage — what the files of agent/model share: views of the weights, a micro-batch's
 * memory, scratch, and the parts of the two passes.
 *
 * Shapes are those of plan/spec/model/activations.h: s rows of the residual stream, n tokens, c
 * hidden, and so on.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_STAGE_H
#define MUSTER_AGENT_ENGINE_MODEL_STAGE_H

#include "agent/engine/model/model.h"
#include "plan/spec/model/activations.h"

/* Views: offsets into a unit; -1 where the family has no such part. */
struct linear_view {
	int unit;
	int64_t w, b;    /* [out, in], [out] */
	int64_t in, out; /* of this shard */
};
struct norm_view {
	int unit;
	int64_t w, b; /* [c] */
};
struct expert_view;
struct block_view {
	int unit, layer; /* layer: of the model */
	struct norm_view norm1, norm2;
	struct linear_view qkv;          /* q, k, v as one product: out = w */
	struct norm_view q_norm, k_norm; /* [d] */
	struct linear_view o;            /* row-parallel */
	struct linear_view up;   /* gate and up as one product: out = 2f; else up alone: out = f */
	struct linear_view down; /* row-parallel */
	struct linear_view router; /* mixture of experts: [E, c] */
	int experts_unit;          /* -1: none here */
	/* this rank's first: the others follow, each expert_stride elements further */
	struct expert_view *experts;
	int64_t expert_stride;
};
struct views {
	struct block_view *blocks; /* [layers] of a chunk */
	int layers;
	struct norm_view norm;      /* last stage */
	struct linear_view head;    /* last stage: [V, c], no bias */
	struct linear_view tokens;  /* first stage: [V, c] */
	int positions;              /* first stage: the unit of [seq, c]; -1: none */
	bool tied_here;             /* the head is this rank's own token table */
	int32_t vocab_lo, vocab_hi; /* this shard's tokens, of embedding and head alike */
};

int model_views_open(const struct model_options *opt, int chunk, struct views *out, struct err *e);
void model_views_close(struct views *v);

/* What a layer keeps of a micro-batch, by plan/spec/model/activations.h's table; NULL: nowhere. */
struct moe_kept;
struct block_kept {
	void *at[ACTS];
	struct moe_kept *moe;
};

struct slot {
	char *memory; /* all of the below */
	void *at[SLOTS];
	struct block_kept *blocks; /* the chunk's layers */
};

struct chunk {
	struct stage stage;
	int layers, n_slots;
	struct views views;
	struct slot *slots;
};

struct model {
	const struct job *job;
	struct model_shape shape;
	const struct ops *ops;
	struct backend *backend;
	struct param_store *store;
	struct tp *tp;
	struct cp *cp;
	struct moe *moe;         /* NULL: a dense model */
	struct offload *offload; /* NULL: activations stay in the device's memory */
	const char *spill_dir;
	struct act_dims d;
	struct chunk *chunks;
	int n_chunks;
	bool has_last;
	const void **params; /* [units] where each unit's parameters are, while they are held */
	float **grads;       /* [units] */
	float *cos, *sin;    /* [seq here, d/2], rotary families */
	/* [n] of this rank's tokens in their sequences; the host's, as are the next three */
	int32_t *positions;
	int64_t *samples;            /* [micro] */
	int64_t *rows;               /* [s] of the stream in the run, with dropout */
	int64_t head_first;          /* this shard's first query head */
	int32_t *local[3];           /* [n] this rank's part of inputs, targets, starts; under cp */
	const int32_t *positions_at; /* positions, in the backend's memory */
	/* the sums of losses: in the backend's memory, which is `losses_here` on the host */
	double losses_here[LOSSES], *loss;
	struct pass_graphs *graphs; /* NULL: passes are not recorded */
	char *work, *scratch_memory;
	struct block_kept recomputed; /* the work home of a recomputing layer */
	/* seconds spent on computing again, its transfers too, which tp, cp and ep do not count
	 * then */
	double recompute_s;
	void *scratch[SCRATCHES];
};

/* One pass of one micro-batch over one chunk. */
struct pass {
	struct model *m;
	struct chunk *chunk;
	struct slot *slot;
	/* In the backend's memory: */
	const int32_t *inputs, *targets, *starts; /* [n] this rank's */
	const int64_t *samples, *rows;            /* [micro], [s]: for dropout */
	const struct model_batch *batch;
	bool keep;          /* forward: a backward pass follows; dropout is on */
	bool input, weight; /* backward: which halves */
	/* [LOSSES] forward: what routers add their losses to, in the backend's memory; NULL:
	 * nowhere */
	double *loss;
};

/* places.c: which tokens a pass is about, where the operations read it: in place on the host; on a
 * device in the slot, where the forward pass puts it. */
int model_places_open(struct model *m, struct err *e);
void model_places_close(struct model *m);
void model_places_forward(struct pass *p);
void model_places_backward(struct pass *p);

/* activations.c */
int model_activations_open(struct model *m, struct err *e);
void model_activations_close(struct model *m);

/* offload.c: layers' activations in host memory (on the CPU, a file without a name) from the
 * forward pass to the backward pass. Two places in the device's memory take turns, so that a layer
 * can still read what the one before it has left, and, on a device, is copied while that one's
 * successor is computed. */
struct offload;
int model_offload_open(struct model *m, struct offload **out, struct err *e);
void model_offload_close(struct model *m);
char *model_offload_staged(const struct offload *o, int layer);
/* The i-th layer of the pass's chunk and slot: before its forward pass, out, and back. Nothing
 * without offloading. */
void model_offload_begin(struct pass *p, int i);
void model_offload_store(struct pass *p, int i);
void model_offload_fetch(struct pass *p, int i);

/* rope.c: sets m->cos, m->sin. */
int model_rope_tables(struct model *m, struct err *e);

/* units.c: the store's units while a part of the model runs. */
int model_unit_hold(struct model *m, int unit, struct err *e);
void model_unit_drop(struct model *m, int unit);
int model_unit_grads(struct model *m, int unit, struct err *e);
/* The gradients that were asked for are in; ends: with the step's last micro-batch they are
 * complete. */
int model_unit_done(struct pass *p, int unit, bool ends, struct err *e);
/* NULL when offset < 0 */
const void *model_unit_param(const struct model *m, int unit, int64_t offset);
float *model_unit_grad(const struct model *m, int unit, int64_t offset);

/* linear.c: the stream's rows and all rows. All n rows of x: x itself, or under sp gathered into
 * scratch. Where n rows go that are to be reduced to the stream's in y, and the reduction. */
int model_all_rows(struct model *m, const void *x, const void **full, struct err *e);
void *model_before_reduce(struct model *m, void *y);
int model_to_stream(struct model *m, void *y, struct err *e);

/* Products on views. Column-parallel: x [s, c] the stream's rows, y [n, out]. Row-parallel: x [n,
 * in], y [s, c]. Backward: `input` sets dx, `weight` adds to the weights' gradients. */
int model_column_forward(struct model *m, const struct linear_view *l, void *y, const void *x,
			 struct err *e);
int model_column_backward(struct pass *p, const struct linear_view *l, void *dx, const void *dy,
			  const void *x, struct err *e);
int model_row_forward(struct model *m, const struct linear_view *l, void *y, const void *x,
		      struct err *e);
/* Whether the products around a GELU may be one operation with it: no transfer stands between,
 * and they are not in 8 bits. */
bool model_gelu_fuses(const struct model *m);
/* y = gelu(pre), pre = the column-parallel product. And the row-parallel product's backward pass
 * with GELU's behind it: sets dpre. */
void model_column_gelu_forward(struct model *m, const struct linear_view *l, void *y, void *pre,
			       const void *x);
void model_row_gelu_backward(struct pass *p, const struct linear_view *l, void *dpre,
			     const void *dy, const void *x, const void *pre);
int model_row_backward(struct pass *p, const struct linear_view *l, void *dx, const void *dy,
		       const void *x, struct err *e);

/* norm.c. The norm of x + r, which is kept in `sum`; r NULL: of x. stats: [stats, s]. */
void model_norm_forward(struct model *m, const struct norm_view *v, void *y, void *sum,
			float *stats, const void *x, const void *r);
/* dx = gradient through the norm + dres; dres may be dx or NULL. x: the norm's input. */
void model_norm_backward(struct model *m, const struct norm_view *v, void *dx, const void *dy,
			 const void *dres, const void *x, const float *stats);

/* qk_norm.c, families that normalize q and k: keeps them in ACT_QK, and sets them in ACT_QKV to
 * their norms. Backward: dqkv [n, w] becomes the gradient before the norms; the gradients of their
 * weights are added to. */
void model_qk_norm_forward(struct model *m, const struct block_view *v, const struct block_kept *k);
void model_qk_norm_backward(struct model *m, const struct block_view *v, const struct block_kept *k,
			    void *dqkv);

/* drop.c: dropout of the residual stream. Sites are told apart by the key. */
enum drop_site { DROP_EMBED, DROP_ATTN, DROP_MLP, DROP_WEIGHTS };
struct dropout model_drop_of(const struct pass *p, enum drop_site site, int layer);
/* In place on [s, c] of the stream. */
void model_drop_forward(struct pass *p, enum drop_site site, int layer, void *x);
/* The gradient before the dropout: dy itself where nothing is dropped, else in scratch. */
const void *model_drop_backward(struct pass *p, enum drop_site site, int layer, const void *dy);

/* The residual stream between sublayers: its value is x + r; r NULL counts as zero. */
struct stream {
	void *x, *r; /* [s, c] */
};

/* attention.c, mlp.c: one residual sublayer each. Forward takes and leaves the stream; r becomes
 * `pending`. Backward takes in dres [s, c] the gradient of the stream after the sublayer and leaves
 * there the one before it. _again: what the layer's mode recomputes, from what it keeps. */
int model_attention_forward(struct pass *p, const struct block_view *v, struct block_kept *k,
			    void *pending, struct stream *s, struct err *e);
int model_attention_recompute(struct pass *p, const struct block_view *v, struct block_kept *k,
			      struct err *e);
int model_attention_backward(struct pass *p, const struct block_view *v, struct block_kept *k,
			     void *dres, struct err *e);
int model_mlp_forward(struct pass *p, const struct block_view *v, struct block_kept *k,
		      void *pending, struct stream *s, struct err *e);
/* moe.c: the same of a mixture of experts, which is done again as a whole or, where
 * activations_experts_recompute says so, not at all. */
int model_moe_forward(struct pass *p, const struct block_view *v, struct block_kept *k,
		      void *pending, struct stream *s, struct err *e);
int model_moe_recompute(struct pass *p, const struct block_view *v, struct block_kept *k,
			struct stream *s, struct err *e);
int model_moe_backward(struct pass *p, const struct block_view *v, struct block_kept *k, void *dres,
		       struct err *e);
/* s: the stream in front of the sublayer, in full recomputation; NULL: the norm's input is kept. */
int model_mlp_recompute(struct pass *p, const struct block_view *v, struct block_kept *k,
			struct stream *s, struct err *e);
int model_mlp_backward(struct pass *p, const struct block_view *v, struct block_kept *k, void *dres,
		       struct err *e);

/* block.c: a layer. */
int model_block_forward(struct pass *p, int i, struct stream *s, struct err *e);
int model_block_backward(struct pass *p, int i, void *dres, struct err *e);

/* embed.c: sets, or takes the gradient of, the stream's rows. */
int model_embed_forward(struct pass *p, void *x, struct err *e);
int model_embed_backward(struct pass *p, const void *dx, struct err *e);

/* head.c. Adds the sum of the token losses to the model's; with a backward pass to come also the
 * head's gradient, and leaves in SLOT_Y this shard's part of the gradient of the final norm's
 * output. */
int model_head_forward(struct pass *p, struct stream s, struct err *e);
/* Sets SLOT_GRAD. */
int model_head_backward(struct pass *p, struct err *e);

#endif
