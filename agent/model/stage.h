/*
 * stage — what the files of agent/model share: views of the weights, a micro-batch's
 * memory, scratch, and the parts of the two passes.
 *
 * Shapes: n = micro × seq tokens, c = hidden, d = head_dim, H and K this shard's query
 * and key/value heads, w = (H + 2K) d, f this shard's ffn, V this shard's vocabulary.
 */
#ifndef MUSTER_AGENT_MODEL_STAGE_H
#define MUSTER_AGENT_MODEL_STAGE_H

#include "agent/model/model.h"

/* Views: offsets into the flat buffers; -1 where the family has no such part. */
struct linear_view {
	int64_t w, b;    /* [out, in], [out] */
	int64_t in, out; /* of this shard */
};
struct norm_view {
	int64_t w, b; /* [c] */
};
struct block_view {
	struct norm_view norm1, norm2;
	struct linear_view qkv; /* q, k, v as one product: out = w */
	struct linear_view o;   /* row-parallel */
	struct linear_view up;  /* gate and up as one product: out = 2f; else up alone: out = f */
	struct linear_view down; /* row-parallel */
};
struct views {
	struct block_view *blocks;  /* the stage's layers */
	struct norm_view norm;      /* last stage */
	struct linear_view head;    /* last stage: [V, c], no bias */
	int64_t tokens, positions;  /* first stage: [V, c], [seq, c] */
	int32_t vocab_lo, vocab_hi; /* this shard's tokens, of embedding and head alike */
};

int views_open(const struct model_options *opt, struct views *out, struct err *e);
void views_close(struct views *v);

/* A norm's input and statistics. */
struct norm_kept {
	float *x;           /* [n, c]; in the stage's first norm the stage's input itself */
	float *mean, *rstd; /* [n]; mean for LayerNorm only */
};

/* What a layer keeps of a micro-batch. */
struct block_kept {
	struct norm_kept norm1, norm2;
	float *y1;  /* [n, c] normed, input of q, k, v */
	float *qkv; /* [n, w] rotated */
	float *o;   /* [n, H d] */
	float *lse; /* [micro, H, seq] */
	float *y2;  /* [n, c] normed, input of up */
	float *up;  /* [n, f] or [n, 2f] */
	float *act; /* [n, f] */
};

struct slot {
	float *memory;             /* all of the below */
	float *input;              /* [n, c] */
	float *pending;            /* [n, c] the last sublayer's result, not yet added to the residual stream */
	float *grad;               /* [n, c] */
	float *output;             /* input or pending */
	struct block_kept *blocks; /* the stage's layers */
	struct norm_kept norm;     /* last stage */
	float *y;                  /* [n, c] last stage: normed, then in place its gradient */
};

/* Used within one call, by all layers and slots. */
struct scratch {
	float *memory;
	float *hidden;   /* [n, c] */
	float *wide;     /* [n, max(w, 2f or f)] */
	float *narrow;   /* [n, max(H d, f)] */
	float *logits;   /* [rows, V] last stage */
	float *max;      /* [rows] */
	float *sums;     /* [2 rows]: sums, then the targets' logits, reduced together */
};

struct model {
	struct model_shape shape;
	struct stage stage;
	const struct ops *ops;
	struct kern *kern;
	struct tp *tp;
	float *params, *grads;
	int64_t micro, n;
	int layers, n_slots;
	float grad_scale;
	struct attn_shape attn; /* this shard's heads */
	int64_t ffn;            /* f */
	int64_t rows;           /* of logits at once */
	struct views views;
	struct slot *slots;
	struct scratch scratch;
};

/* activations.c */
int activations_open(struct model *m, struct err *e);
void activations_close(struct model *m);

/* linear.c: products and norms on views. x, y, dx, dy as in kernels/ops.h. */
void linear_forward(struct model *m, const struct linear_view *l, float *y, const float *x);
/* Row-parallel: y is summed over tp, then the bias is added once. */
int linear_forward_reduced(struct model *m, const struct linear_view *l, float *y, const float *x, struct err *e);
/* dx may be NULL. dx is this shard's part only: a column-parallel linear's caller sums it over tp. */
void linear_backward(struct model *m, const struct linear_view *l, float *dx, const float *dy, const float *x);
/* The norm of x + r, which is kept in k->x; r NULL: of x, and k->x becomes x. */
void norm_forward(struct model *m, const struct norm_view *v, struct norm_kept *k, float *y, float *x, const float *r);
/* dx = gradient through the norm + dres; dres may be dx or NULL. */
void norm_backward(struct model *m, const struct norm_view *v, const struct norm_kept *k, float *dx, const float *dy,
		   const float *dres);

/* The residual stream between sublayers: its value is x + r; r NULL counts as zero. */
struct stream {
	float *x, *r; /* [n, c] */
};

/* attention.c, mlp.c: one residual sublayer each. Forward takes and leaves the stream; r becomes `pending`.
 * Backward takes in dres [n, c] the gradient of the stream after the sublayer and leaves there the one before it. */
int attention_forward(struct model *m, const struct block_view *v, struct block_kept *k, float *pending,
		      struct stream *s, struct err *e);
int attention_backward(struct model *m, const struct block_view *v, const struct block_kept *k, float *dres, struct err *e);
int mlp_forward(struct model *m, const struct block_view *v, struct block_kept *k, float *pending,
		struct stream *s, struct err *e);
int mlp_backward(struct model *m, const struct block_view *v, const struct block_kept *k, float *dres, struct err *e);

/* embed.c */
int embed_forward(struct model *m, float *x, const int32_t *tokens, struct err *e);
void embed_backward(struct model *m, const float *dx, const int32_t *tokens);

/* head.c. Adds the sum of the token losses to *loss; with backward true also the head's gradient, and leaves in
 * slot->y this shard's part of the gradient of the final norm's output. */
int head_forward(struct model *m, struct slot *slot, struct stream s, const int32_t *targets, bool backward,
		 double *loss, struct err *e);
/* Sets slot->grad. */
int head_backward(struct model *m, struct slot *slot, struct err *e);

#endif
