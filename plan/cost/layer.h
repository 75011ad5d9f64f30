/*
 * layer — the seconds that one layer takes on one rank: its operations (layer.c) and its transfers
 * (layer_transfers.c). For plan/cost.
 */
#ifndef MUSTER_PLAN_COST_LAYER_H
#define MUSTER_PLAN_COST_LAYER_H

#include "plan/cost/cost.h"
#include "plan/place/traffic.h"

/* The mean shard of a micro-batch. Uneven shards differ from it by less than the error of the
 * model. */
struct cost_shard {
	/* tokens, rows of the residual stream, hidden size, bytes of an element */
	double n, s, c, width;
	double q, kv, f, up, vocab;
	double heads;   /* of all sequences */
	double rows;    /* rows that go through a feed-forward part; in a mixture top × n */
	double experts; /* experts on this rank; 1 in a dense layer */
	/* sum: seconds of an all-reduce of [n, c] over tp; half: of a reduce-scatter, or a gather;
	 * gather: of the gather of a linear's input or of its output's gradient */
	double sum, half, gather;
	struct traffic_sizes size;
	bool sp, hides; /* hides: transfers hide behind the backward products */
	/* false: a mixture; its rows are gathered and summed whole, and nothing hides that */
	bool dense;
};
struct cost_shard cost_shard_of(const struct cost_case *c);

enum { LINEAR_FORMS = RATE_PRODUCT_WEIGHT + 1 };

/* Seconds of each linear in each form. */
struct cost_layer {
	double linear[LINEARS][LINEAR_FORMS];
	double router[LINEAR_FORMS]; /* 0 in a dense layer */
	double attention, gradient;  /* seconds, forward and backward */
};
/* Sets the seconds of products and attention. */
void cost_layer_set(const struct cost_case *c, const struct cost_shard *h, struct cost_layer *y);
/* Seconds of all products of a layer in this form. */
double cost_layer_products(const struct cost_layer *y, enum rate_class form);
/* Seconds of the engine's passes over tensors in this phase of a layer. */
double cost_layer_passes(const struct cost_case *c, const struct cost_shard *h,
			 enum engine_phase phase);
/* Seconds in which so many bytes are read or written. */
double cost_moved(const struct cost_case *c, double bytes);
/* Whether the tp ranks route their own rows of a mixture; the gathers of its rows then belong
 * to the routes. */
bool cost_layer_routes_own(const struct cost_case *c, const struct cost_shard *h);

/* --- Transfers --- */

/* Seconds of the transfers of tensor parallelism in a layer that are not hidden. */
double cost_tp_forward(const struct cost_case *c, const struct cost_shard *h,
		       const struct cost_layer *y);
double cost_tp_backward(const struct cost_case *c, const struct cost_shard *h,
			const struct cost_layer *y);
/* The half of the backward pass for the inputs' gradients, on its own. Their reductions no longer
 * hide behind the weights' products. The other half gathers the inputs of the column-parallel
 * linears, and the gradients of the row-parallel ones once more; nothing is computed meanwhile
 * (agent/engine/model/linear.c). */
double cost_tp_input_half(const struct cost_case *c, const struct cost_shard *h,
			  const struct cost_layer *y);
/* Seconds that attention does not hide of sending keys and values round the ring. factor: how much
 * more data goes round in the backward pass. */
double cost_ring_left(const struct cost_case *c, const struct cost_shard *h, double attention,
		      double factor);
/* Seconds in which rows travel to their experts, or back. */
double cost_route(const struct cost_case *c, const struct cost_shard *h);

#endif
