#include "kernels/cuda/attention_choose.h"

#include "kernels/cuda/dnn_attention.h"

#ifdef HAVE_CUDNN

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The arguments of a call. Forward, only q, key, v, o and lse are used. */
struct call {
	const struct attn_shape *s;
	const void *q, *key, *v, *dout;
	void *o, *dq, *dk, *dv;
	float *lse;
	bool backward, add;
};

/* All that a plan depends on. Keys are compared as bytes, so padding must be 0. */
struct key {
	int64_t batch, q_len, k_len, q_row, q_batch, kv_row, kv_batch, o_batch;
	int32_t heads, kv_heads, dim, causal, backward, unused;
};

enum way { UNKNOWN, OWN, CUDNN };

struct entry {
	struct key key;
	enum way way;
	struct attention_piece piece;
	struct dnn_graph *graph; /* NULL: cuDNN has no plan */
	struct dnn_plan plan;
};

enum { ENTRIES = 64 };

struct cuda_attention {
	const struct dnn *dnn;
	cudnnHandle_t handle; /* NULL: cuDNN cannot be used */
	void *workspace;
	size_t workspace_bytes;
	int count;
	struct entry entries[ENTRIES];
};

/* --- What cuDNN is asked for -------------------------------------------------------------- */

static bool causal(const struct attn_shape *s)
{
	return s->q_first == s->k_first;
}

/* All keys are before all queries. */
static bool past(const struct attn_shape *s)
{
	return s->k_first + s->k_len <= s->q_first + 1;
}

static bool whole_pieces(const void *p, int64_t row, int64_t batch)
{
	return cuda_aligned(p, row, 2) && cuda_aligned(p, batch, 2);
}

static bool rows_suit(const struct call *c)
{
	const struct attn_shape *s = c->s;
	const void *q_like[] = { c->q, c->dq }, *kv_like[] = { c->key, c->v, c->dk, c->dv },
		   *o_like[] = { c->o, c->dout };
	for (int i = 0; i < 2; i++)
		if (!whole_pieces(q_like[i], s->q_row, s->q_batch) ||
		    !whole_pieces(o_like[i], 0, s->o_batch))
			return false;
	for (int i = 0; i < 4; i++)
		if (!whole_pieces(kv_like[i], s->kv_row, s->kv_batch))
			return false;
	return (uintptr_t)c->lse % sizeof(float) == 0;
}

static bool device_suits(const struct cuda_backend *c, const struct call *call)
{
	int dim = call->s->dim, most = c->cc / 10 == 9 ? 256 : 128;
	return dim % 8 == 0 && dim <= most && !(call->backward && c->cc / 10 == 10);
}

/* Whether the table in attention_choose.h has this call in cuDNN's columns. */
static bool suits(const struct backend *k, const struct call *c)
{
	const struct attn_shape *s = c->s;
	return cuda_of(k)->storage != STORE_FP32 && s->batch > 0 && s->q_len > 1 && s->k_len > 1 &&
	       (causal(s) || past(s)) && !s->starts && !(s->drop.p > 0) && !c->add &&
	       device_suits(cuda_of(k), c) && rows_suit(c);
}

static void fill_key(const struct call *c, struct key *key)
{
	const struct attn_shape *s = c->s;
	memset(key, 0, sizeof *key);
	key->batch = s->batch;
	key->q_len = s->q_len;
	key->k_len = s->k_len;
	key->q_row = s->q_row;
	key->q_batch = s->q_batch;
	key->kv_row = s->kv_row;
	key->kv_batch = s->kv_batch;
	key->o_batch = s->o_batch;
	key->heads = s->heads;
	key->kv_heads = s->kv_heads;
	key->dim = s->dim;
	key->causal = causal(s);
	key->backward = c->backward;
}

/* --- Opening ------------------------------------------------------------------------------ */

/* NULL, or a state without a handle, when cuDNN cannot be used. */
static struct cuda_attention *state_of(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	struct err e;
	if (c->attention || c->recording)
		return c->attention;
	struct cuda_attention *a = c->attention = calloc(1, sizeof *a);
	if (!a || dnn_load(&a->dnn, &e))
		return a;
	cuda_choose(k);
	if (a->dnn->Create(&a->handle) != CUDNN_STATUS_SUCCESS)
		a->handle = NULL;
	else if (a->dnn->SetStream(a->handle, c->stream) != CUDNN_STATUS_SUCCESS) {
		a->dnn->Destroy(a->handle);
		a->handle = NULL;
	}
	return a;
}

static void drop_plan(struct entry *e)
{
	if (!e->graph)
		return;
	dnn_graph_fini(e->graph);
	free(e->graph);
	e->graph = NULL;
}

void cuda_attention_close(struct backend *k)
{
	struct cuda_attention *a = cuda_of(k)->attention;
	if (!a)
		return;
	for (int i = 0; i < a->count; i++)
		drop_plan(&a->entries[i]);
	if (a->handle)
		a->dnn->Destroy(a->handle);
	free(a);
	cuda_of(k)->attention = NULL;
}

/* --- Plans -------------------------------------------------------------------------------- */

static size_t sums_bytes(const struct entry *e, const struct attn_shape *s)
{
	size_t bytes = (size_t)(e->piece.batch * e->piece.heads * s->q_len) * sizeof(float);
	return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

/* A graph that was recorded holds the workspace's address, so a smaller one is kept until the
 * backend is closed. Shapes of one job differ little. */
static bool reserve(struct backend *k, size_t bytes)
{
	struct cuda_attention *a = cuda_of(k)->attention;
	if (bytes <= a->workspace_bytes)
		return true;
	void *p = cuda_memory_alloc(k, bytes);
	if (!p)
		return false;
	a->workspace = p;
	a->workspace_bytes = bytes;
	k->bytes += bytes;
	k->peak = k->bytes > k->peak ? k->bytes : k->peak;
	return true;
}

static bool build_plan(struct backend *k, const struct call *c, struct entry *e)
{
	static const cudnnDataType_t types[] = {
		[STORE_BF16] = CUDNN_DATA_BFLOAT16, [STORE_FP16] = CUDNN_DATA_HALF
	};
	struct cuda_attention *a = cuda_of(k)->attention;
	struct dnn_attention graph = { c->s, e->piece, causal(c->s), types[cuda_of(k)->storage] };
	struct err why;
	dnn_graph_init(e->graph, a->dnn);
	if (c->backward)
		dnn_attention_bwd(e->graph, &graph);
	else
		dnn_attention_fwd(e->graph, &graph);
	return !dnn_plan_make(e->graph, a->handle, NULL, ATTENTION_ROOM_MOST, &e->plan, &why) &&
	       reserve(k, (size_t)e->plan.workspace + (c->backward ? sums_bytes(e, c->s) : 0));
}

/* Without a plan, the entry's way is OWN. */
static void make_plan(struct backend *k, const struct call *c, struct entry *e)
{
	const struct attn_shape *s = c->s;
	e->piece = (struct attention_piece){ s->batch, s->heads, s->kv_heads };
	if (c->backward)
		e->piece = attention_piece_of(s->batch, s->heads, s->kv_heads, s->q_len, s->k_len,
					      s->dim);
	e->graph = e->piece.batch > 0 ? calloc(1, sizeof *e->graph) : NULL;
	if (e->graph && build_plan(k, c, e))
		return;
	drop_plan(e);
	e->way = OWN;
}

/* --- The two ways ------------------------------------------------------------------------- */

static void run_own(struct backend *k, const struct call *c)
{
	if (c->backward)
		attention_own_bwd(k, c->dq, c->dk, c->dv, c->dout, c->o, c->lse, c->q, c->key, c->v,
				  c->s, c->add);
	else
		attention_own_fwd(k, c->o, c->lse, c->q, c->key, c->v, c->s);
}

static void *stored_at(const void *p, int64_t element)
{
	return p ? (char *)(uintptr_t)p + 2 * element : NULL;
}

/* The piece that begins with sequence b and k/v head g. */
static cudnnStatus_t run_piece(struct backend *k, const struct call *c, const struct entry *e,
			       int64_t b, int g)
{
	static const int64_t ids[] = { DNN_Q,     DNN_K,      DNN_V,    DNN_O,  DNN_STATS,
				       DNN_SCALE, DNN_MASKED, DNN_DOUT, DNN_DQ, DNN_DK,
				       DNN_DV,    DNN_SUM,    DNN_ONE };
	struct cuda_attention *a = cuda_of(k)->attention;
	const struct attn_shape *s = c->s;
	int64_t head = (int64_t)g * (s->heads / s->kv_heads);
	int64_t q = b * s->q_batch + head * s->dim, kv = b * s->kv_batch + (int64_t)g * s->dim,
		o = b * s->o_batch + head * s->dim;
	float scale = (float)(1 / sqrt((double)s->dim)), masked = -INFINITY, one = 1;
	void *at[] = { stored_at(c->q, q),
		       stored_at(c->key, kv),
		       stored_at(c->v, kv),
		       stored_at(c->o, o),
		       c->lse + (b * s->heads + head) * s->q_len,
		       &scale,
		       &masked,
		       stored_at(c->dout, o),
		       stored_at(c->dq, q),
		       stored_at(c->dk, kv),
		       stored_at(c->dv, kv),
		       (char *)a->workspace + e->plan.workspace,
		       &one };
	int count = c->backward ? DNN_BACKWARD - 1 : DNN_FORWARD - 1, n = 0;
	int64_t used[DNN_BACKWARD];
	void *where[DNN_BACKWARD];
	for (int i = 0; i < count; i++) {
		if (ids[i] == DNN_MASKED && !causal(s))
			continue;
		used[n] = ids[i];
		where[n++] = at[i];
	}
	return dnn_plan_run(a->dnn, a->handle, &e->plan, used, where, n, a->workspace);
}

/* false: cuDNN failed, and the entry has no plan any more. */
static bool run_dnn(struct backend *k, const struct call *c, struct entry *e)
{
	const struct attn_shape *s = c->s;
	cudnnStatus_t rc = CUDNN_STATUS_SUCCESS;
	cuda_choose(k);
	cuda_of(k)->last_op = c->backward ? "attention_bwd" : "attention_fwd";
	for (int64_t b = 0; b < s->batch && rc == CUDNN_STATUS_SUCCESS; b += e->piece.batch)
		for (int g = 0; g < s->kv_heads && rc == CUDNN_STATUS_SUCCESS;
		     g += e->piece.kv_heads)
			rc = run_piece(k, c, e, b, g);
	if (rc == CUDNN_STATUS_SUCCESS)
		return true;
	cudaGetLastError();
	drop_plan(e);
	e->way = OWN;
	return false;
}

/* --- The choice --------------------------------------------------------------------------- */

/* The rule for when nothing may be measured. */
static enum way fixed_way(const struct backend *k, const struct call *c)
{
	int major = cuda_of(k)->cc / 10;
	return !c->backward && (major == 9 || major == 10) ? CUDNN : OWN;
}

/* NULL: there is none, and none can be made now. */
static struct entry *entry_of(struct backend *k, const struct call *c)
{
	struct cuda_attention *a = state_of(k);
	struct key key;
	if (!a || !a->handle)
		return NULL;
	fill_key(c, &key);
	for (int i = 0; i < a->count; i++)
		if (!memcmp(&a->entries[i].key, &key, sizeof key))
			return &a->entries[i];
	if (a->count == ENTRIES || cuda_of(k)->recording)
		return NULL;
	struct entry *e = &a->entries[a->count++];
	e->key = key;
	e->way = fixed_way(k, c);
	if (e->way == CUDNN)
		make_plan(k, c, e);
	return e;
}

static void run(struct backend *k, const struct call *c)
{
	struct entry *e = suits(k, c) ? entry_of(k, c) : NULL;
	if (!e || e->way != CUDNN || !run_dnn(k, c, e))
		run_own(k, c);
}

void attention_chosen_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s)
{
	struct call c = { .s = s, .q = q, .key = key, .v = v, .o = o, .lse = lse };
	run(k, &c);
}

void attention_chosen_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add)
{
	struct call c = {
		.s = s,
		.q = q,
		.key = key,
		.v = v,
		.dout = dout,
		.o = (void *)(uintptr_t)o,
		.dq = dq,
		.dk = dk,
		.dv = dv,
		.lse = (float *)(uintptr_t)lse,
		.backward = true,
		.add = add,
	};
	run(k, &c);
}

#else

void attention_chosen_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s)
{
	attention_own_fwd(k, o, lse, q, key, v, s);
}

void attention_chosen_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add)
{
	attention_own_bwd(k, dq, dk, dv, dout, o, lse, q, key, v, s, add);
}

void cuda_attention_close(struct backend *k)
{
	(void)k;
}

#endif
