/*
 * parts — the inside of a language model, shared by the files of agent/engine/generate.
 */
#ifndef MUSTER_AGENT_ENGINE_GENERATE_PARTS_H
#define MUSTER_AGENT_ENGINE_GENERATE_PARTS_H

#include "agent/engine/generate/lm.h"
#include "kernels/ops.h"
#include "plan/spec/layout.h"

/* How many tokens go through the layers at once. */
enum { LM_ROWS = 256 };

struct norm_weights {
	const float *w, *b; /* [c]; b NULL for RMSNorm */
};
struct linear_weights {
	const float *w, *b; /* [out, in], [out]; b NULL: no bias */
	int64_t in, out;
};

struct layer {
	struct norm_weights norm1, norm2;
	struct norm_weights q_norm, k_norm;     /* [head_dim]; families that normalize q and k */
	struct linear_weights qkv, o, up, down; /* q, k, v as one product; gate and up as one */
	struct linear_weights router;           /* a mixture of experts, in place of up and down: */
	struct linear_weights *experts_up, *experts_down; /* [experts] */
	float *keys, *values;                             /* [seq, kv_heads * head_dim] the cache */
};

/* Activations of n = LM_ROWS tokens. */
struct buffers {
	float *x, *r, *y;        /* [n, c] the stream is x + r; y: its norm */
	float *qkv, *o;          /* [n, w], [n, heads * dim] */
	float *up, *act;         /* [m, 2f or f], [m, f]; m = n, or n * top with experts */
	float *stats;            /* [2, n] */
	float *head, *head_norm; /* [n, heads * dim] q or k, and its norm */
	float *head_stats;       /* [n, heads] */
	float *lse;              /* [heads, n] */
	int32_t *positions;      /* [n] */
	/* experts: */
	float *logits, *probs;      /* [n, E] */
	float *weights, *route_lse; /* [n, top], [n] */
	int32_t *chosen;            /* [n, top] */
	int64_t *at, *from;         /* [n, top], [n * top] rows sorted by expert */
	int64_t *first;             /* [E + 1] */
	float *sorted, *back;       /* [n * top, c] */
};

struct lm {
	struct model_shape shape;
	struct stage stage; /* the whole model */
	struct catalogue catalogue;
	struct backend *backend;
	const struct ops *ops;
	float *weights, *cache;
	char *memory; /* holds the buffers */
	struct layer *layers;
	struct linear_weights *experts; /* all layers' experts */
	struct norm_weights norm;
	struct linear_weights head;
	const float *tokens, *positions; /* tables; positions NULL: rotary */
	float *cos, *sin;                /* [seq, dim / 2] */
	struct buffers b;
	int64_t length;
};

/* weights.c: sets the layers' pointers to their weights. */
int generate_weights_view(struct lm *m, struct err *e);
void generate_weights_drop(struct lm *m);
/* rope.c: allocates and sets cos and sin. */
int generate_rope_fill(struct lm *m, struct err *e);
/* layer.c: runs n tokens, the first at position m->length, through all layers. m->b.y becomes the
 * output of the final norm. */
void generate_layers_forward(struct lm *m, const int32_t *tokens, int64_t n);

#endif
