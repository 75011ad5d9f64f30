/*
 * stage — shared by the files of agent/engine/model: views of the weights, the memory of a
 * micro-batch, scratch, and the steps of the forward and backward passes.
 *
 * plan/spec/model/activations.h defines the letters of the shapes: s rows of the residual stream, n
 * tokens, c hidden, and so on.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_STAGE_H
#define MUSTER_AGENT_ENGINE_MODEL_STAGE_H

#include "agent/engine/model/model.h"
#include "agent/engine/model/scales_fp8.h"
#include "plan/spec/model/activations.h"

/* Views: offsets of parameters in their unit; -1: the model has no such parameter. */
struct linear_view {
	int unit;
	int64_t w, b;    /* [out, in], [out] */
	int64_t in, out; /* this shard's */
	enum act_linear place;
	const struct weight_copy *copy; /* the weights in 8 bits (linear_fp8.h); NULL: none */
	/* of the input and the gradient (scales_fp8.h); NULL: no pass uses delayed scaling */
	struct fp8_scale *input_scale, *gradient_scale;
};
struct norm_view {
	int unit;
	int64_t w, b; /* [c] */
};
struct expert_view;
struct layer_copies;
struct weight_copy;
struct block_view {
	int unit, layer; /* layer: number in the whole model */
	struct norm_view norm1, norm2;
	struct linear_view qkv;          /* q, k, v as one product: out = w */
	struct norm_view q_norm, k_norm; /* [d] */
	struct linear_view o;            /* row-parallel */
	struct linear_view up;     /* gate and up as one: out = 2f; otherwise up alone: out = f */
	struct linear_view down;   /* row-parallel */
	struct linear_view router; /* mixture of experts: [E, c] */
	int experts_unit;          /* -1: no experts on this rank */
	/* this rank's first expert; the next ones are expert_stride elements apart */
	struct expert_view *experts;
	int64_t expert_stride;
	struct layer_copies *copies; /* of the linears' weights; NULL: none */
};
struct views {
	struct block_view *blocks; /* [layers] of a chunk */
	int layers;
	struct norm_view norm;      /* last stage: the final norm */
	struct linear_view head;    /* last stage: [V, c], no bias */
	struct linear_view tokens;  /* first stage: [V, c] */
	int positions;              /* first stage: unit of the positions [seq, c]; -1: rotary */
	bool tied_here;             /* the head is this rank's own token table */
	int32_t vocab_lo, vocab_hi; /* this shard's tokens, in the embedding and the head */
};

int model_views_open(const struct model_options *opt, int chunk, struct views *out, struct err *e);
void model_views_close(struct views *v);

/* A layer's tensors of one micro-batch, as plan/spec/model/activations.h lists them; NULL:
 * nowhere. */
struct moe_saved;
struct block_saved {
	void *at[ACTS];
	struct moe_saved *moe;
};

struct slot {
	char *memory; /* of all below */
	void *at[SLOTS];
	struct block_saved *blocks; /* [layers] of the chunk */
};

struct chunk {
	struct stage stage;
	int layers, n_slots;
	struct views views;
	struct slot *slots;
};

struct model {
	const struct job *job;
	const struct model_shape *shape;
	const struct ops *ops;
	struct backend *backend;
	struct param_store *store;
	struct tp *tp;
	struct cp *cp;
	struct moe *moe;             /* NULL: a dense model */
	struct offload *offload;     /* NULL: activations stay where they are computed */
	struct model_scales *scales; /* NULL: no pass uses delayed scaling */
	/* of the pass: it notes the largest numbers in `scales`, and casts with them */
	bool notes, delays;
	/* whose gradient the op that computed it has cast, or found the largest number of
	 * (linear_fp8.h); NULL: none */
	const struct linear_view *cast_ahead;
	const char *spill_dir;
	const struct backend_source *memory; /* of activations; NULL: the backend's own */
	struct act_dims d;
	struct chunk *chunks;
	int n_chunks;
	bool has_last;
	const void **params; /* [units] each unit's parameters, while the unit is held */
	float **grads;       /* [units] */
	float *cos, *sin;    /* [seq / cp, d/2], families with rotary positions */
	/* [n] positions of this rank's tokens; in host memory, like the next three */
	int32_t *positions;
	int64_t *samples;            /* [micro] */
	int64_t *rows;               /* [s] with dropout: the stream rows' numbers in the run */
	int64_t head_first;          /* global number of this shard's first query head */
	int32_t *local[3];           /* [n] with cp: this rank's part of inputs, targets, starts */
	const int32_t *positions_at; /* `positions` in the backend's memory */
	/* sums of the losses, in the backend's memory; on the host `loss` is `losses_here` */
	double losses_here[LOSSES], *loss;
	const float *logit_scale;   /* factor of each token's loss, in the backend's memory */
	struct pass_graphs *graphs; /* NULL: passes are not recorded */
	struct model_check *check;  /* NULL: passes are not checked */
	enum model_plant plant;
	char *work, *scratch_memory[2], *weights_fp8;
	struct comm_memory *exchanged; /* memory that tp's group reads and writes */
	int n_exchanged;
	struct block_saved recomputed; /* memory of the layers that recompute */
	/* seconds of recomputation, with its transfers, which tp, cp and ep then do not count */
	double recompute_s;
	void *scratch[SCRATCHES];
};

/* One pass of one micro-batch through one chunk. */
struct pass {
	struct model *m;
	struct chunk *chunk;
	struct slot *slot;
	/* in the backend's memory: */
	const int32_t *inputs, *targets, *starts; /* [n] this rank's tokens */
	const int64_t *samples, *rows;            /* [micro], [s] for dropout */
	const struct model_batch *batch;
	bool keep;          /* forward: a backward pass follows, and dropout is on */
	bool input, weight; /* backward: which halves to compute */
	/* [LOSSES] forward: routers add their losses here, in the backend's memory; NULL:
	 * nowhere */
	double *loss;
};

/* inputs.c: sets the pass's tokens where the operations read them. On the host this is the batch
 * itself. On a device it is the slot, into which the forward pass copies them. */
int model_inputs_open(struct model *m, struct err *e);
void model_inputs_close(struct model *m);
void model_inputs_forward(struct pass *p);
void model_inputs_backward(struct pass *p);

/* activations.c. Collective over tp's group, with which it registers the memory. */
int model_activations_open(struct model *m, struct err *e);
void model_activations_close(struct model *m);

/* offload.c: layers' activations are in host memory (on the CPU: in an unnamed file) between the
 * forward and the backward pass. Two staging buffers in the device's memory take turns: a layer can
 * still read what the previous layer left, and a device copies one layer while it computes the
 * next.
 */
struct offload;
int model_offload_open(struct model *m, struct offload **out, struct err *e);
void model_offload_close(struct model *m);
char *model_offload_staged(const struct offload *o, int layer);
/* For layer i of the pass's chunk: begin waits until its staging buffer is free, before its forward
 * pass; store copies it to the host; fetch brings it back. Without offload they do nothing. */
void model_offload_begin(struct pass *p, int i);
void model_offload_store(struct pass *p, int i);
void model_offload_fetch(struct pass *p, int i);

/* rope.c: sets m->cos and m->sin. */
int model_rope_tables(struct model *m, struct err *e);

/* units.c: holds and releases units of the parameter store. */
int model_unit_acquire(struct model *m, int unit, struct err *e);
void model_unit_release(struct model *m, int unit);
int model_unit_grads(struct model *m, int unit, struct err *e);
/* The unit's gradients were added to. ends: they are complete after the step's last micro-batch. */
int model_unit_done(struct pass *p, int unit, bool ends, struct err *e);
/* NULL if offset < 0. */
const void *model_unit_param(const struct model *m, int unit, int64_t offset);
/* Where a backward pass puts the gradients of weights and of a bias (NULL: there is none), and
 * whether it adds to them or sets them. The caller does that before the next of these calls for the
 * same parameters. */
struct weight_grad {
	float *w, *b;
	bool add;
};
struct weight_grad model_linear_grad(struct model *m, const struct linear_view *l);
/* One of the two; the other one is NULL. */
struct weight_grad model_linear_weight_grad(struct model *m, const struct linear_view *l);
struct weight_grad model_linear_bias_grad(struct model *m, const struct linear_view *l);
struct weight_grad model_norm_grad(struct model *m, const struct norm_view *v);
/* Of n experts' products, whose weights are `stride` elements apart. */
struct weight_grad model_experts_grad(struct model *m, const struct linear_view *l, int64_t stride,
				      int n);
/* For gradients that can only be added to, of `count` elements: they are zeroed if they have no
 * contributions. */
float *model_table_grad(struct model *m, int unit, int64_t offset, int64_t count);

/* linear.c. model_all_rows: all n rows of x; that is x itself, or with sp a gather into scratch.
 * model_to_stream reduces n rows to the stream's rows y; the n rows must be where
 * model_before_reduce(y) points. */
int model_all_rows(struct model *m, const void *x, const void **full, struct err *e);
void *model_before_reduce(struct model *m, void *y);
int model_to_stream(struct model *m, void *y, struct err *e);

/* Products with a linear's weights. Column-parallel: x [s, c] are the stream's rows, y is [n, out].
 * Row-parallel: x is [n, in], y is [s, c]. Backward: if p->input, sets dx; if p->weight, adds to
 * the gradients of the weights. k: the layer's. */
int model_column_forward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
			 void *y, const void *x, struct err *e);
int model_column_backward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
			  void *dx, const void *dy, const void *x, struct err *e);
int model_row_forward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
		      void *y, const void *x, struct err *e);
/* Whether the products around a GELU can be fused with it: there must be no transfer between them,
 * and they must not be in 8 bits. */
bool model_gelu_fuses(const struct model *m);
/* y = gelu(pre), where pre is the column-parallel product. Backward: the row-parallel product's
 * backward pass and then that of GELU; sets dpre. */
void model_column_gelu_forward(struct model *m, const struct linear_view *l, void *y, void *pre,
			       const void *x);
void model_row_gelu_backward(struct pass *p, const struct linear_view *l, void *dpre,
			     const void *dy, const void *x, const void *pre);
int model_row_backward(struct pass *p, const struct linear_view *l, const struct block_saved *k,
		       void *dx, const void *dy, const void *x, struct err *e);

/* norm.c: y = norm(x + r), and sum = x + r; with r NULL, y = norm(x). stats: [stats, s]. */
void model_norm_forward(struct model *m, const struct norm_view *v, void *y, void *sum,
			float *stats, const void *x, const void *r);
/* The same, and a cast of y if `to` is not NULL. */
void model_norm_forward_cast(struct model *m, const struct norm_view *v, void *y, void *sum,
			     float *stats, const void *x, const void *r,
			     const struct fp8_copies *to);
/* dx = dres + the gradient of the norm's input x. dres may be dx or NULL. to: NULL, or the copies of
 * dx in 8 bits. */
void model_norm_backward(struct model *m, const struct norm_view *v, void *dx, const void *dy,
			 const void *dres, const void *x, const float *stats,
			 const struct fp8_copies *to);

/* qk_norm.c, for families that normalize q and k. Forward: copies q and k to ACT_QK, and replaces
 * them in ACT_QKV by their norms. Backward: replaces dqkv [n, w] by the gradient before the norms,
 * and adds to the gradients of the norms' weights. */
void model_qk_norm_forward(struct model *m, const struct block_view *v,
			   const struct block_saved *k);
void model_qk_norm_backward(struct model *m, const struct block_view *v,
			    const struct block_saved *k, void *dqkv);

/* dropout.c: dropout. Each site has its own random numbers. */
enum dropout_site { DROPOUT_EMBED, DROPOUT_ATTN, DROPOUT_MLP, DROP_WEIGHTS };
struct dropout model_dropout_of(const struct pass *p, enum dropout_site site, int layer);
/* In place on [s, c] of the stream. */
void model_dropout_forward(struct pass *p, enum dropout_site site, int layer, void *x);
/* Returns the gradient before the dropout: dy itself without dropout, otherwise scratch. */
const void *model_dropout_backward(struct pass *p, enum dropout_site site, int layer,
				   const void *dy);

/* The residual stream between sublayers has the value x + r; r NULL stands for zero. */
struct stream {
	void *x, *r; /* [s, c] */
};

/* attention.c, mlp.c: one residual sublayer each. Forward updates the stream, and its r becomes
 * `pending`. Backward replaces dres [s, c], the gradient of the stream after the sublayer, by the
 * gradient before it. _recompute restores what the layer's mode does not keep. */
int model_attention_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
			    void *pending, struct stream *s, struct err *e);
int model_attention_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			      struct err *e);
int model_attention_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
			     void *dres, struct err *e);
int model_mlp_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
		      void *pending, struct stream *s, struct err *e);
/* moe.c: the sublayer of a mixture of experts. It recomputes the whole mixture, or only its norm if
 * activations_experts_recompute() is false. */
int model_moe_forward(struct pass *p, const struct block_view *v, struct block_saved *k,
		      void *pending, struct stream *s, struct err *e);
int model_moe_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			struct stream *s, struct err *e);
int model_moe_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
		       void *dres, struct err *e);
/* s: with full recomputation, the stream before the sublayer; NULL: the norm's input was kept. */
int model_mlp_recompute(struct pass *p, const struct block_view *v, struct block_saved *k,
			struct stream *s, struct err *e);
int model_mlp_backward(struct pass *p, const struct block_view *v, struct block_saved *k,
		       void *dres, struct err *e);

/* block.c: layer i of the pass's chunk. */
int model_block_forward(struct pass *p, int i, struct stream *s, struct err *e);
int model_block_backward(struct pass *p, int i, void *dres, struct err *e);

/* embed.c: sets the stream's rows x; backward takes their gradient dx. */
int model_embed_forward(struct pass *p, void *x, struct err *e);
int model_embed_backward(struct pass *p, const void *dx, struct err *e);

/* head.c: adds the sum of the token losses to the model's. If a backward pass follows, it also adds
 * the head's gradient, and leaves in SLOT_Y this shard's part of the gradient of the final norm's
 * output. */
int model_head_forward(struct pass *p, struct stream s, struct err *e);
/* Sets SLOT_GRAD. */
int model_head_backward(struct pass *p, struct err *e);

#endif
