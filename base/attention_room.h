/*
 * attention_room — the device memory that cuDNN's backward pass of attention needs, and how many
 * sequences or heads one call of it computes. The backend cuda and the planner use it.
 *
 * The form whose results are the same in every run keeps the gradients of all scores in memory, 2
 * bytes each, and, if several heads share a k/v head, the gradients of each head's keys and values:
 *
 *     2 * batch * heads * (q_len up to 64) * (k_len up to 128)
 *         + 2 * 2 * batch * heads * k_len * dim            if heads > kv_heads
 *         + 4 * batch * heads * q_len                      the sums of dout * o
 *         + at most 512 bytes
 *
 * The form that adds dq up in any order (job.deterministic = any-order) keeps no gradients of scores, but
 * dq in fp32, for which engine 7, of other chips than Hopper, needs as much again:
 *
 *     2 * 4 * batch * heads * (q_len up to 8) * dim
 *         + 2 * 2 * batch * heads * k_len * dim            if heads > kv_heads
 *         + 4 * batch * heads * q_len                      the sums of dout * o
 *         + at most 512 bytes
 *
 * Except for the sums, and dq in fp32, this is what CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE of cuDNN 9.19
 * returns for sm_90 (engine 6, at 8 shapes with lengths from 37 to 8192; tests/gpu/test_cudnn.c).
 * Another version or device may need another size. So a plan that needs more than
 * ATTENTION_ROOM_MOST is not used.
 *
 * A call that would need more than ATTENTION_ROOM_MOST is split: into pieces of whole sequences, or
 * of whole groups of heads of one sequence. That costs little, since each piece still fills a GPU.
 */
#ifndef MUSTER_BASE_ATTENTION_ROOM_H
#define MUSTER_BASE_ATTENTION_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#define ATTENTION_ROOM_MOST ((int64_t)1 << 30)
/* the largest head size of cuDNN's backward pass, on compute capability 9.x */
enum { ATTENTION_ROOM_DIM = 256 };

struct attention_piece {
	int64_t batch;
	int heads, kv_heads;
};

/* any_order: of the form that adds dq up in any order. */
static inline int64_t attention_room(const struct attention_piece *p, int64_t q_len, int64_t k_len,
				     int dim, bool any_order)
{
	int64_t pairs = p->batch * p->heads, q = (q_len + 63) / 64 * 64,
		k = (k_len + 127) / 128 * 128;
	if (2.0 * (double)pairs *
		    ((double)q * (double)k + (2.0 * (double)k + 4.0 * (double)q) * dim) >
	    1e18)
		return INT64_MAX;
	int64_t kept = any_order ? 8 * pairs * ((q_len + 7) / 8 * 8) * dim : 2 * pairs * q * k,
		full = p->heads > p->kv_heads ? 4 * pairs * k_len * dim : 0;
	return kept + full + 4 * pairs * q_len + 512;
}

/* The largest equal pieces that fit; batch 0: not even one group of one sequence does. */
static inline struct attention_piece attention_piece_of(int64_t batch, int heads, int kv_heads,
							int64_t q_len, int64_t k_len, int dim,
							bool any_order)
{
	struct attention_piece p = { batch, heads, kv_heads };
	while (p.batch > 0 &&
	       attention_room(&p, q_len, k_len, dim, any_order) > ATTENTION_ROOM_MOST) {
		int64_t n = p.batch > 1 ? p.batch - 1 : 0;
		while (n > 1 && batch % n)
			n--;
		if (n > 0) {
			p.batch = n;
			continue;
		}
		int groups = p.kv_heads - 1;
		while (groups > 0 && kv_heads % groups)
			groups--;
		p = groups > 0 ? (struct attention_piece){ 1, heads / kv_heads * groups, groups }
			       : (struct attention_piece){ 0, 0, 0 };
	}
	return p;
}

#endif
