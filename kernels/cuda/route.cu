/* The router of a mixture of experts, with one warp per token, and the places of its choices, by
 * order.cuh. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/order.cuh"
#include "kernels/cuda/sums.cuh"

enum { ROUTE = 128 };

/* An expert and its logit. Larger logits come first; among equals, the lower index; NaN last. */
struct candidate {
	float logit;
	int index; /* INT32_MAX: none */
};

__device__ inline bool better(const struct candidate &a, const struct candidate &b)
{
	return a.logit > b.logit || (a.logit == b.logit && a.index < b.index);
}

/* The best candidate after `last`. */
__device__ inline struct candidate next_best(const float *logits, int64_t e,
					     const struct candidate &last)
{
	struct candidate best = { -INFINITY, INT32_MAX };
	for (int j = lane_id(); j < e; j += WARP) {
		const struct candidate c = { isnan(logits[j]) ? -INFINITY : logits[j], j };
		if (better(last, c) && better(c, best))
			best = c;
	}
	#pragma unroll
	for (int step = WARP / 2; step; step /= 2) {
		const struct candidate other = {
			__shfl_xor_sync(WARP_ALL, best.logit, step),
			__shfl_xor_sync(WARP_ALL, best.index, step),
		};
		if (better(other, best))
			best = other;
	}
	return best;
}

/* Arrays and sizes of the router's two passes, as in kernels/ops_table.h. */
struct routed {
	int32_t *chosen;
	float *weights, *probs, *lse;
	int64_t n, e, top;
	bool before;
};

__global__ void __launch_bounds__(ROUTE) route_fwd_kernel(struct routed r, const float *all_logits)
{
	const int64_t token = (int64_t)blockIdx.x * (ROUTE / WARP) + warp_id();
	if (token >= r.n)
		return;
	const float *logits = all_logits + token * r.e;
	float max = -INFINITY, sum = 0, chosen_sum = 0, first = 0;
	for (int64_t j = lane_id(); j < r.e; j += WARP)
		max = fmaxf(max, logits[j]);
	max = warp_max(max);
	for (int64_t j = lane_id(); j < r.e; j += WARP)
		sum += expf(logits[j] - max);
	sum = warp_sum(sum);
	for (int64_t j = lane_id(); j < r.e; j += WARP)
		r.probs[token * r.e + j] = expf(logits[j] - max) / sum;
	if (lane_id() == 0)
		r.lse[token] = max + logf(sum);
	struct candidate best = { INFINITY, -1 };
	for (int64_t i = 0; i < r.top; i++) {
		best = next_best(logits, r.e, best);
		const float logit = logits[best.index]; /* also if it is NaN */
		first = i == 0 ? logit : first;
		chosen_sum += expf(logit - first);
		if (lane_id() == 0) {
			r.chosen[token * r.top + i] = best.index;
			r.weights[token * r.top + i] = r.before ? expf(logit - max) / sum
								: expf(logit - first);
		}
	}
	for (int64_t i = 0; i < r.top && lane_id() == 0 && !r.before; i++)
		r.weights[token * r.top + i] /= chosen_sum;
}

static void route_fwd(struct backend *k, int32_t *chosen, float *weights, float *probs, float *lse,
		      const float *logits, int64_t n, int64_t e, int64_t top, bool before)
{
	struct routed r = { chosen, weights, probs, lse, n, e, top, before };
	launch(k, "route_fwd", route_fwd_kernel, cuda_blocks(n, ROUTE / WARP), ROUTE, 0, r, logits);
}

/* The gradient of probs[j] of a token with these choices. */
__device__ inline float prob_gradient(const struct routed &r, const float *dweights,
				      const int32_t *chosen, const float *load, float aux,
				      int64_t j)
{
	float d = load ? aux * load[j] : 0;
	for (int64_t i = 0; i < r.top && r.before; i++)
		d += chosen[i] == j ? dweights[i] : 0;
	return d;
}

/* For a softmax p with gradient dp: dlogit_j = p_j (dp_j - sum of dp p). */
__global__ void __launch_bounds__(ROUTE)
	route_bwd_kernel(float *dlogits, struct routed r, const float *all_dweights,
			 const float *load, float aux, float z, const float *scale)
{
	const int64_t token = (int64_t)blockIdx.x * (ROUTE / WARP) + warp_id();
	if (token >= r.n)
		return;
	const float *dweights = all_dweights + token * r.top, *weights = r.weights + token * r.top,
		    *probs = r.probs + token * r.e;
	const int32_t *chosen = r.chosen + token * r.top;
	const float slope = 2 * (z * *scale) * r.lse[token];
	const float share = aux * *scale;
	float mean = 0, mean_chosen = 0;
	for (int64_t j = lane_id(); j < r.e; j += WARP)
		mean += prob_gradient(r, dweights, chosen, load, share, j) * probs[j];
	for (int64_t i = lane_id(); i < r.top; i += WARP)
		mean_chosen += dweights[i] * weights[i];
	mean = warp_sum(mean);
	mean_chosen = warp_sum(mean_chosen);
	for (int64_t j = lane_id(); j < r.e; j += WARP) {
		float d = probs[j] *
			  (prob_gradient(r, dweights, chosen, load, share, j) - mean + slope);
		for (int64_t i = 0; i < r.top && !r.before; i++)
			d += chosen[i] == j ? weights[i] * (dweights[i] - mean_chosen) : 0;
		dlogits[token * r.e + j] = d;
	}
}

static void route_bwd(struct backend *k, float *dlogits, const float *dweights,
		      const int32_t *chosen, const float *weights, const float *probs,
		      const float *lse, const float *load, float aux, float z, const float *scale,
		      int64_t n, int64_t e, int64_t top, bool before)
{
	struct routed r = {
		(int32_t *)chosen, (float *)weights, (float *)probs, (float *)lse, n, e, top, before
	};
	launch(k, "route_bwd", route_bwd_kernel, cuda_blocks(n, ROUTE / WARP), ROUTE, 0, dlogits, r,
	       dweights, load, aux, z, scale);
}

/* --- places: blocks by experts (x), ORDER_KEYS each, and by pieces (y) --- */

/* The choices of a block's experts. Those with at < 0 do not count, unless at is NULL. */
struct choice_keys {
	const int32_t *chosen;
	const int64_t *at;
	int first;
	__device__ int operator()(int64_t i) const
	{
		const int key = chosen[i] - first;
		return (at && at[i] < 0) || key >= ORDER_KEYS ? (int)ORDER_NOT : key;
	}
};

/* One piece of `items` choices. */
struct token_range {
	int64_t first, items;
};

__device__ inline struct token_range token_range_of(int64_t items, int64_t length)
{
	const int64_t first = (int64_t)blockIdx.y * length;
	return { first, items - first < length ? items - first : length };
}

__global__ void __launch_bounds__(ORDER) count_kernel(int64_t *choices, const int32_t *chosen,
						      int64_t items, int64_t length, int64_t e)
{
	__shared__ struct order_room room;
	const struct token_range p = token_range_of(items, length);
	const int expert = blockIdx.x * ORDER_KEYS + threadIdx.x;
	const struct choice_keys keys = { chosen + p.first, NULL, (int)blockIdx.x * ORDER_KEYS };
	order_begin(room, order_count(room, keys, p.items));
	if (threadIdx.x < ORDER_KEYS && expert < e)
		choices[blockIdx.y * e + expert] = room.count[threadIdx.x];
}

/* Keeps a choice if its index among its expert's choices, plus `before`, is below `most`. */
struct drop_put {
	int64_t *at;
	const int64_t *before;
	const int *first;
	int64_t most;
	__device__ void operator()(int64_t i, int key, int place) const
	{
		at[i] = (before ? before[key] : 0) + place - first[key] < most ? 0 : -1;
	}
};

__global__ void __launch_bounds__(ORDER)
	drop_kernel(int64_t *at, const int32_t *chosen, const int64_t *before, int64_t items,
		    int64_t length, int64_t e, int64_t most)
{
	__shared__ struct order_room room;
	const struct token_range p = token_range_of(items, length);
	const struct choice_keys keys = { chosen + p.first, NULL, (int)blockIdx.x * ORDER_KEYS };
	const struct drop_put put = { at + p.first,
				      before ? before + blockIdx.y * e + keys.first : NULL,
				      room.first, most };
	order_begin(room, order_count(room, keys, p.items));
	order_place(room, keys, put, p.items);
}

/* With blocks, a row is in its expert's block, at its index among the expert's choices. */
struct row_put {
	int64_t *at, *from, top, block;
	const int *first;
	int expert; /* of the first key */
	__device__ void operator()(int64_t i, int key, int place) const
	{
		const int64_t row = block ? (expert + key) * block + place - first[key] : place;
		at[i] = row;
		from[row] = i / top;
	}
};

/* One block, since experts read what the choices of others write. */
__global__ void __launch_bounds__(ORDER)
	place_kernel(int64_t *counts, int64_t *at, int64_t *from, const int32_t *chosen,
		     int64_t items, int64_t e, int64_t top, int64_t block)
{
	__shared__ struct order_room room;
	for (int64_t i = threadIdx.x; i < e * block; i += ORDER)
		from[i] = -1;
	for (int first = 0; first < e; first += ORDER_KEYS) {
		const struct choice_keys keys = { chosen, at, first };
		const struct row_put put = { at, from, top, block, room.first, first };
		order_begin(room, order_count(room, keys, items));
		order_place(room, keys, put, items);
		if (threadIdx.x < ORDER_KEYS && first + (int)threadIdx.x < e)
			counts[first + threadIdx.x] = room.count[threadIdx.x];
	}
}

/* One block of threads per block of rows. In the new order the blocks of lower experts come before
 * it, and those of lower ranks for the same expert. The places without a row come after all rows, in
 * the order of their blocks. */
__global__ void __launch_bounds__(ROUTE)
	blocks_kernel(int64_t *rows, int64_t *order, int64_t *back, const int64_t *counts,
		      int64_t ranks, int64_t e, int64_t block)
{
	const int64_t own = blockIdx.x, expert = own % e, rank = own / e;
	int before = 0, same = 0, all = 0;
	for (int64_t i = threadIdx.x; i < ranks * e; i += ROUTE) {
		const int count = (int)(counts[i] < block ? counts[i] : block);
		all += count;
		same += i % e == expert ? count : 0;
		before += i % e < expert || (i % e == expert && i < own) ? count : 0;
	}
	all = block_sum(all);
	same = block_sum(same);
	before = block_sum(before);
	const int64_t count = counts[own] < block ? counts[own] : block,
		      empty = all + (expert * ranks + rank) * block - before - count;
	for (int64_t i = threadIdx.x; i < block; i += ROUTE) {
		order[i < count ? before + i : empty + i] = i < count ? own * block + i : -1;
		back[own * block + i] = i < count ? before + i : -1;
	}
	if (rank == 0 && threadIdx.x == 0)
		rows[expert] = same;
}

static dim3 piece_blocks(int64_t n, int64_t e, int64_t length)
{
	return dim3(cuda_blocks(e, ORDER_KEYS), n > 0 ? cuda_blocks(n, length) : 0);
}

static void route_count(struct backend *k, int64_t *choices, const int32_t *chosen, int64_t n,
			int64_t e, int64_t top, int64_t length)
{
	launch(k, "route_count", count_kernel, piece_blocks(n, e, length), ORDER, 0, choices,
	       chosen, n * top, length * top, e);
}

static void route_drop(struct backend *k, int64_t *at, const int32_t *chosen, const int64_t *before,
		       int64_t n, int64_t e, int64_t top, int64_t length, int64_t most)
{
	launch(k, "route_drop", drop_kernel, piece_blocks(n, e, length), ORDER, 0, at, chosen,
	       before, n * top, length * top, e, most);
}

static void route_place(struct backend *k, int64_t *counts, int64_t *at, int64_t *from,
			const int32_t *chosen, int64_t n, int64_t e, int64_t top, int64_t block)
{
	launch(k, "route_place", place_kernel, 1, ORDER, 0, counts, at, from, chosen, n * top, e,
	       top, block);
}

static void route_blocks(struct backend *k, int64_t *rows, int64_t *order, int64_t *back,
			 const int64_t *counts, int64_t ranks, int64_t e, int64_t block)
{
	launch(k, "route_blocks", blocks_kernel, cuda_blocks(ranks * e, 1), ROUTE, 0, rows, order,
	       back, counts, ranks, e, block);
}

/* --- the losses that balance --- */

__global__ void __launch_bounds__(ROUTE)
	load_kernel(float *load, const int64_t *choices, int64_t count, float all)
{
	const int64_t i = (int64_t)blockIdx.x * ROUTE + threadIdx.x;
	if (i < count)
		load[i] = (float)choices[i] / all;
}

static void route_load(struct backend *k, float *load, const int64_t *choices, int64_t count,
		       int64_t all)
{
	launch(k, "route_load", load_kernel, cuda_blocks(count, ROUTE), ROUTE, 0, load, choices,
	       count, (float)all);
}

enum { LOSS = 256, LOSS_TURNS = 8, LOSS_BLOCKS = 1024 };

__global__ void __launch_bounds__(LOSS)
	loss_kernel(double *parts, const float *load, const float *probs, const float *lse,
		    int64_t n, int64_t e, int64_t seq, double aux, double z)
{
	double balance = 0, squares = 0;
	const int64_t first = (int64_t)blockIdx.x * LOSS + threadIdx.x,
		      step = (int64_t)gridDim.x * LOSS;
	for (int64_t i = first; i < n * e; i += step)
		balance += (double)load[i / e / seq * e + i % e] * (double)probs[i];
	for (int64_t i = first; i < n; i += step)
		squares += (double)lse[i] * (double)lse[i];
	const double total = block_sum(aux * balance + z * squares);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = total;
}

static void route_loss(struct backend *k, double *loss, const float *load, const float *probs,
		       const float *lse, int64_t n, int64_t e, int64_t seq, double aux, double z)
{
	unsigned blocks = cuda_blocks(n * e, LOSS * LOSS_TURNS);
	blocks = blocks < LOSS_BLOCKS ? blocks : (unsigned)LOSS_BLOCKS;
	double *parts = (double *)cuda_scratch(k, LOSS_BLOCKS * sizeof *parts, "route_loss");
	launch(k, "route_loss", loss_kernel, blocks, LOSS, 0, parts, load, probs, lse, n, e, seq,
	       aux, z);
	if (blocks)
		cuda_add_parts(k, "route_loss", loss, parts, blocks);
}

template <class T> static void fill(struct ops *o)
{
	o->route_fwd = route_fwd;
	o->route_bwd = route_bwd;
	o->route_load = route_load;
	o->route_count = route_count;
	o->route_drop = route_drop;
	o->route_place = route_place;
	o->route_blocks = route_blocks;
	o->route_loss = route_loss;
}

CUDA_FILL(route)
