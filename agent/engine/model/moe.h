/*
 * moe — a layer's mixture of experts in place of its feed-forward part.
 *
 *     y2 [n, c] → router → chosen experts and weights of each token tokens' rows sorted by expert →
 *     ep_dispatch → this rank's experts → ep_return → weighted sum [n, c]
 *
 * With tensor parallelism every tp rank routes all tokens alike and computes its shard of each
 * expert's ffn; what a rank's rows give is then a part, summed where the feed-forward part's would
 * be. The weights' gradients are parts too, and are summed over tp before the router's backward
 * pass, which is then the same on all; its gradient of the stream counts on one.
 *
 * Layout changes nothing: capacity is of each sequence (an expert takes at most ceil(capacity × seq
 * × top / experts) of its tokens, the first ones by position), the balancing loss too: aux_loss ×
 * experts × Σ_e f_e P_e, f_e the share of the sequence's choices that fall on e, P_e its mean
 * probability (Fedus et al., arXiv 2101.03961, section 2.2, a sequence at a time); the z-loss is
 * z_loss × the mean of the squared log-sum-exp (Zoph et al., arXiv 2202.08906). Both are summed
 * over layers. They are part of the loss that is trained on, and are summed apart from it too, so
 * that a run can report its cross-entropy. agent/engine/hf/balance.h relates aux_loss to
 * transformers' coefficient.
 *
 * How many rows come depends on the routing: their memory begins at the balanced number and grows
 * when more come.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_MOE_H
#define MUSTER_AGENT_ENGINE_MODEL_MOE_H

#include "agent/engine/model/stage.h"
#include "agent/engine/parallel/ep.h"

/* Memory that grows. */
struct growing_memory {
	char *base;
	int64_t bytes;
};

/* What a layer keeps of a micro-batch. */
struct moe_kept {
	struct ep_plan plan;
	char *fixed;        /* all of the next seven, without `loads` */
	int32_t *chosen;    /* [n, top] */
	float *weights;     /* [n, top] */
	float *probs, *lse; /* [n, E], [n] */
	float *load;        /* [micro, E] f_e of each sequence */
	float *loads;       /* the same, in the host's memory */
	/* [n, top] the row of each choice, -1: dropped; and the token of each row */
	int64_t *at, *from;
	struct growing_memory rows; /* all of the next six */
	void *x;                    /* [received, c] */
	void *gu, *act;             /* [received, 2f], [received, f] */
	void *y;                    /* [sent, c] what came back */
	/* [received, c], [received, 2f]: gradients, for the second half of a split backward pass */
	void *dy, *dgu;
};

/* Scratch of the rank. */
struct moe {
	struct ep *ep;
	int64_t experts, top;
	/* all of the next seven; on the host the last three are not in it */
	char *fixed;
	void *raw;                      /* [n, E] storage type */
	float *logits;                  /* [n, E], then their gradient */
	float *dweights;                /* [n, top] */
	int64_t *counts;                /* [E] */
	int64_t *choices_at, *taken_at; /* choices and taken, in the backend's memory */
	float *pull_at;                 /* pull, too */
	/* The host's, of a sequence's pieces here: choices of each expert, and those in the
	 * pieces before. */
	int64_t *choices, *taken; /* [micro, pieces, E] */
	/* [cp, micro, pieces, E] the choices of all ranks that share the sequences */
	int64_t *everywhere;
	int64_t *kept_of; /* [E] choices that are not dropped */
	float *pull;      /* [micro, E] what the balancing loss does to probabilities */
	struct growing_memory rows;
	struct moe_kept recomputed; /* of layers that do theirs again */
	struct moe_kept **kept;     /* [chunks][slots × layers] of the others */
};

struct expert_view {
	struct linear_view up, down; /* gate and up */
};

int model_moe_open(struct model *m, struct ep *ep, struct err *e);
void model_moe_close(struct model *m);

/* route.c. Opens what counts choices; close takes what was never opened. */
int model_route_open(struct model *m, struct err *e);
void model_route_close(struct moe *moe);
/* Sets chosen, weights, probs, lse, load, at, from and moe->kept_of; adds the router's losses times
 * the rank's tokens to loss [LOSSES] (NULL: nowhere). y: [n, c]. */
int model_route_forward(struct pass *p, const struct block_view *v, struct moe_kept *k,
			const void *y, double *loss, struct err *e);
/* From moe->dweights (this rank's parts). Adds the router's weights' gradient; on tp rank 0 adds
 * to dy [n, c]. dx: [n, c] of scratch. */
int model_route_backward(struct pass *p, const struct block_view *v, struct moe_kept *k, void *dy,
			 const void *y, void *dx, struct err *e);

/* experts.c: this rank's experts over rows sorted by expert; k->x to out [received, c]. */
void model_experts_forward(struct pass *p, const struct block_view *v, struct moe_kept *k,
			   void *out);
/* input: dout [received, c] to k's dgu and dx [received, c]; weight: adds the gradients. dact:
 * [received, f] of scratch. */
void model_experts_backward(struct pass *p, const struct block_view *v, struct moe_kept *k,
			    void *dx, const void *dout, void *dact);

#endif
