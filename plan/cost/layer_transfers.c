#include "plan/cost/layer.h"

#include "plan/cost/step.h"

#include <math.h>

double cost_ring_left(const struct cost_case *c, const struct cost_shard *h, double attention,
		      double factor)
{
	int cp = c->layout->cp;
	double all = (cp - 1) * place_seconds_hop(&c->group_links[GROUP_CP], factor * h->size.keys);
	return cp > 1 ? cost_exposed(c, all, attention * (cp - 1) / cp) : 0;
}

/* Seconds that are not hidden of a gather. If the engine supports it, a rank multiplies its own
 * rows meanwhile. */
static double gather_beside(const struct cost_case *c, double gather, bool hides, double product)
{
	return hides && c->engine->own_rows_first ? cost_exposed(c, gather, product / c->layout->tp)
						  : gather;
}

/* A mixture's router needs its input in 2 bytes. */
static double fed(const struct cost_shard *h)
{
	return h->dense ? h->gather : h->half;
}

double cost_tp_forward(const struct cost_case *c, const struct cost_shard *h,
		       const struct cost_layer *y)
{
	if (!h->sp)
		return 2 * h->sum;
	double attention = h->half + gather_beside(c, h->gather, h->hides,
						   y->linear[LINEAR_QKV][RATE_PRODUCT_FWD]);
	if (cost_layer_routes_own(c, h))
		return attention;
	return attention + h->half +
	       gather_beside(c, fed(h), h->hides && h->dense,
			     y->linear[LINEAR_UP][RATE_PRODUCT_FWD]);
}

/* Seconds of the transfers in the backward pass of a column-parallel linear. The input's gradient
 * is all-reduced behind the weights' product. With sequence parallelism the input is also gathered
 * again, behind the input's product. */
static double column_backward_seconds(const struct cost_case *c, const struct cost_shard *h,
				      double gather, bool hides, const double linear[LINEAR_FORMS])
{
	double shade = hides ? 1 : 0;
	if (!h->sp)
		return cost_exposed(c, h->sum, shade * linear[RATE_PRODUCT_WEIGHT]);
	return cost_exposed(c, gather, shade * linear[RATE_PRODUCT_INPUT]) +
	       cost_exposed(c, h->half, shade * linear[RATE_PRODUCT_WEIGHT]);
}

double cost_tp_backward(const struct cost_case *c, const struct cost_shard *h,
			const struct cost_layer *y)
{
	bool hides = h->hides && h->dense;
	double seconds = column_backward_seconds(c, h, h->gather, h->hides, y->linear[LINEAR_QKV]);
	if (h->sp)
		seconds += gather_beside(c, h->gather, h->hides,
					 y->linear[LINEAR_OUT][RATE_PRODUCT_INPUT]);
	if (cost_layer_routes_own(c, h))
		return seconds;
	if (h->sp)
		seconds += gather_beside(c, fed(h), hides,
					 y->linear[LINEAR_DOWN][RATE_PRODUCT_INPUT]);
	return seconds + column_backward_seconds(c, h, fed(h), hides, y->linear[LINEAR_UP]);
}

double cost_tp_input_half(const struct cost_case *c, const struct cost_shard *h,
			  const struct cost_layer *y)
{
	bool hides = h->hides && h->dense;
	if (!h->sp)
		return 2 * h->sum;
	return 2 * h->half +
	       gather_beside(c, h->gather, h->hides, y->linear[LINEAR_OUT][RATE_PRODUCT_INPUT]) +
	       gather_beside(c, fed(h), hides, y->linear[LINEAR_DOWN][RATE_PRODUCT_INPUT]);
}

/* Seconds of an all-to-all of rows, each of which goes to `top` experts. Rows that cross once
 * per node reach each other node with the probability that one of their experts is there;
 * inside the node they are copied. */
static double all_to_all(const struct cost_case *c, double bytes)
{
	const struct group_links *ep = &c->group_links[GROUP_EP];
	struct group_links inside = *ep;
	if (!c->engine->routes_once || ep->nodes < 2)
		return place_seconds_all_to_all(ep, bytes);
	double top = (double)c->shape->top, share = 1.0 / ep->nodes,
	       nodes = (ep->nodes - 1) * (1 - pow(1 - share, top));
	inside.nodes = 1;
	inside.ranks = inside.per_node;
	return bytes / top * nodes / ep->across.bandwidth + (ep->nodes - 1) * ep->across.latency +
	       place_seconds_all_to_all(&inside, bytes);
}

double cost_route(const struct cost_case *c, const struct cost_shard *h)
{
	if (!c->shape->experts || c->layout->ep < 2)
		return 0;
	if (!cost_layer_routes_own(c, h))
		return all_to_all(c, h->size.rows);
	return all_to_all(c, h->size.rows / c->layout->tp) +
	       place_seconds_gather(&c->group_links[GROUP_TP], h->size.rows);
}
