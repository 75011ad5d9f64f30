/*
 * attention_ways — a call of attention, and what is kept for its shape: cuDNN's plans, and which
 * kernels compute it. Shared by attention_choose.c, attention_dnn.c and attention_measure.c.
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_WAYS_H
#define MUSTER_KERNELS_CUDA_ATTENTION_WAYS_H

#include "kernels/cuda/attention_choose.h"
#include "kernels/cuda/dnn_attention.h"
#include "kernels/cuda/timing.h"

#ifdef HAVE_CUDNN

/* The arguments of a call. Forward, only q, key, v, o and lse are used. */
struct attention_call {
	const struct attn_shape *s;
	const void *q, *key, *v, *dout;
	void *o, *dq, *dk, *dv;
	float *lse;
	bool backward, add;
};

/* All that a plan depends on. Keys are compared as bytes, so padding must be 0. */
struct attention_key {
	int64_t batch, q_len, k_len, q_row, q_batch, kv_row, kv_batch, o_batch;
	int64_t starts_batch; /* 0: without documents */
	int32_t heads, kv_heads, dim, causal, backward;
	int32_t any_order; /* backward, and the backend allows it */
};

/* WAY_CUDNN_ANY: by cuDNN, with dq added up in any order. */
enum attention_way { WAY_UNKNOWN, WAY_OWN, WAY_CUDNN, WAY_CUDNN_ANY, WAYS };

/* cuDNN's plan for one of its ways. */
struct attention_plan {
	bool tried;  /* to make it */
	bool failed; /* when it ran */
	struct attention_piece piece;
	struct dnn_graph *graph; /* NULL: cuDNN has no plan. Kept until the backend is closed */
	struct dnn_plan plan;
};

struct attention_entry {
	struct attention_key key;
	enum attention_way way;
	unsigned version;                  /* choices_version, when the way was chosen */
	int zero_uses;                     /* uses with zeros, with which nothing is measured */
	bool settled;                      /* nothing more is to be measured */
	struct attention_plan plans[WAYS]; /* of cuDNN's ways */
};

enum { ATTENTION_ENTRIES = 64 };

struct cuda_attention {
	const struct dnn *dnn;
	cudnnHandle_t handle; /* NULL: cuDNN cannot be used */
	void *workspace;
	size_t workspace_bytes;
	struct timing timing;
	int count;
	struct attention_entry entries[ATTENTION_ENTRIES];
};

static inline bool attention_causal(const struct attn_shape *s)
{
	return s->q_first == s->k_first;
}

/* attention_dnn.c. The state: NULL, or without a handle, when cuDNN cannot be used. */
struct cuda_attention *attention_state(struct backend *k);
/* Makes the plan of one of cuDNN's ways at the first call; not while a graph is recorded. false: there
 * is none. */
bool attention_plan(struct backend *k, const struct attention_call *c, struct attention_entry *e,
		    enum attention_way way);
/* Makes the plans of all of cuDNN's ways. false: there is none. */
bool attention_plan_all(struct backend *k, const struct attention_call *c,
			struct attention_entry *e);
/* Whether there is a plan for this way that did not fail. */
bool attention_usable(const struct attention_entry *e, enum attention_way way);
/* Queues the pass by the plan. false: cuDNN failed, and the plan will not be used again. */
bool attention_run_dnn(struct backend *k, const struct attention_call *c, struct attention_entry *e,
		       enum attention_way way);

/* attention_choose.c. Whether a way may be used for this key on this device. */
bool attention_allows(const struct backend *k, const struct attention_key *key,
		      enum attention_way way);
void attention_run_own(struct backend *k, const struct attention_call *c);

/* attention_measure.c. The way in the backend's choices that is allowed, WAY_UNKNOWN: none. */
enum attention_way attention_find(struct backend *k, const struct attention_entry *e);
/* Measures the ways, and puts the fastest one into the choices, if that is wanted and possible now.
 * Then the call's outputs are overwritten, and e->way is WAY_UNKNOWN. */
void attention_measure(struct backend *k, const struct attention_call *c,
		       struct attention_entry *e);

#endif /* HAVE_CUDNN */

#endif
