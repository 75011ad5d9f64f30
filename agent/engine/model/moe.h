/*
 * moe — a layer's mixture of experts, in place of its feed-forward part.
 *
 *     y2 [n, c] → router → experts and weights chosen for each token → tokens' rows sorted by
 *     expert → ep_dispatch → this rank's experts → ep_return → weighted sum [n, c]
 *
 * With tensor parallelism, every tp rank routes all tokens in the same way and computes its shard
 * of each expert's ffn. Its result is then a partial sum, and these are summed where those of a
 * feed-forward part would be. Gradients of the routing weights are partial sums, too. They are
 * summed over tp before the router's backward pass, which is then the same on all ranks; only tp
 * rank 0 adds its gradient to the stream.
 *
 * The layout changes no result. Capacity is per sequence: an expert takes at most ceil(capacity ×
 * seq × top / experts) of a sequence's tokens, the first ones by position. The balancing loss is
 * per sequence, too: aux_loss × experts × Σ_e f_e P_e, where f_e is the share of the sequence's
 * choices that fall on expert e and P_e is its mean probability (Fedus et al., arXiv 2101.03961,
 * section 2.2). The z-loss is z_loss × the mean squared log-sum-exp (Zoph et al., arXiv
 * 2202.08906). Both are summed over layers. They are part of the loss that is trained on, and are
 * also summed separately, so that a run can report its cross-entropy. agent/engine/hf/balance.h
 * relates aux_loss to transformers' coefficient.
 *
 * One rank of experts alone needs no row counts on the host, nor do the ranks of ep that exchange
 * blocks (ep.h), which a capacity makes possible. On a device the counts then stay there, and the layer
 * does not wait for the device, unless the groups are so large that the library's products are faster,
 * or a check needs the counts (model_route_counts_stay). Its passes can then be recorded. With cp the
 * counts go through the host, because the ranks of a sequence add up their choices there.
 *
 * The number of rows depends on the routing. Their memory is first allocated for an equal load or for
 * the blocks (struct act_expert_rows), and grows when there are more rows. Neither blocks nor one rank
 * of experts alone ever have more.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_MOE_H
#define MUSTER_AGENT_ENGINE_MODEL_MOE_H

#include "agent/engine/model/stage.h"
#include "agent/engine/parallel/ep.h"

/* Memory that grows on demand. Growing it discards its contents. */
struct growing_memory {
	char *base;
	int64_t bytes;
};

/* A layer's tensors of one micro-batch, kept for the backward pass. */
struct moe_saved {
	struct ep_plan plan;
	char *fixed;        /* memory of the tensors up to `back` */
	int32_t *chosen;    /* [n, top] */
	float *weights;     /* [n, top] */
	float *probs, *lse; /* [n, E], [n] */
	float *load;        /* [micro, E] f_e of each sequence */
	/* at [n, top]: row of each choice, -1: dropped; from [sent]: token of each row, -1: padding
	 */
	int64_t *at, *from;
	int64_t *counts; /* [E], on a device: rows that this rank has for each expert */
	/* For blocks: the rows of each of this rank's experts, and the places of the plan */
	int64_t *per_expert, *order, *back; /* [mine], [received], [received] */
	/* The most rows that this rank's experts can have, if only `counts` or `per_expert` have
	 * their number, which the host does not know. 0: the plan has the number. */
	int64_t most;
	struct growing_memory rows; /* memory of the next six */
	void *x;                    /* [received, c] */
	void *gu, *act;             /* [received, 2f], [received, f] */
	void *y;                    /* [sent, c] the experts' results */
	/* [received, c], [received, 2f]: gradients, for the second half of a split backward pass */
	void *dy, *dgu;
};

/* The rank's experts: scratch, and the tensors that the layers keep. */
struct moe {
	struct ep *ep;
	int64_t experts, top;
	/* memory of the next seven; on the host, of the first four */
	char *fixed;
	void *raw;                        /* [n, E] storage type */
	float *logits;                    /* [n, E], then their gradient */
	float *dweights;                  /* [n, top] */
	int64_t *counts;                  /* [E] */
	int64_t *choices_dev, *taken_dev; /* `choices` and `taken` in the backend's memory */
	int64_t *theirs;                  /* for blocks: [ep, mine] of struct ep_blocks */
	/* Host memory. choices: per expert, made by the tokens of each of this rank's pieces of a
	 * sequence; taken: made by the sequence's earlier pieces. */
	int64_t *choices, *taken; /* [micro, pieces, E] */
	/* [cp, micro, pieces, E] `choices` of all ranks that share the sequences */
	int64_t *choices_all;
	int64_t *kept_of; /* [E] number of choices that are not dropped */
	float *loads;     /* [micro, E] a layer's `load`, for the sum over cp */
	struct growing_memory rows;
	struct moe_saved recomputed; /* shared by the layers that recompute */
	struct moe_saved **kept;     /* [chunks][slots × layers], for the other layers */
};

struct expert_view {
	struct linear_view up, down; /* gate and up */
};

int model_moe_open(struct model *m, struct ep *ep, struct err *e);
void model_moe_close(struct model *m);

/* route.c: memory to count choices. model_route_close accepts a moe that was never opened. */
int model_route_open(struct model *m, struct err *e);
void model_route_close(struct moe *moe);
/* Whether the counts of rows stay in the backend's memory. */
bool model_route_counts_stay(const struct model *m);
/* Routes the tokens y [n, c]. Sets chosen, weights, probs, lse, load, at, from, and
 * moe->kept_of or, if the counts stay, `counts` and `most`. Adds the router's losses times the
 * rank's tokens to loss [LOSSES], unless it is NULL. */
int model_route_forward(struct pass *p, const struct block_view *v, struct moe_saved *k,
			const void *y, double *loss, struct err *e);
/* Reads moe->dweights, this rank's partial sums. Adds to the gradient of the router's weights and,
 * on tp rank 0, to dy [n, c]. dx: scratch [n, c]. */
int model_route_backward(struct pass *p, const struct block_view *v, struct moe_saved *k, void *dy,
			 const void *y, void *dx, struct err *e);

/* experts.c: this rank's experts, over rows sorted by expert. Sets out [received, c] from k->x. */
void model_experts_forward(struct pass *p, const struct block_view *v, struct moe_saved *k,
			   void *out);
/* If p->input, sets k->dgu and dx [received, c] from dout [received, c]. If p->weight, adds to the
 * gradients. dact: scratch [received, f]. */
void model_experts_backward(struct pass *p, const struct block_view *v, struct moe_saved *k,
			    void *dx, const void *dout, void *dact);

#endif
