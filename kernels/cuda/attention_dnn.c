/* Attention by cuDNN: the handle, plans, the workspace, and running a pass. */
#include "kernels/cuda/attention_ways.h"

#ifdef HAVE_CUDNN

#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>

/* --- Opening ------------------------------------------------------------------------------ */

struct cuda_attention *attention_state(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	struct err why = ERR_INIT;
	if (c->attention || c->recording)
		return c->attention;
	struct cuda_attention *a = c->attention = calloc(1, sizeof *a);
	if (!a)
		return NULL;
	if (dnn_load(&a->dnn, &why)) {
		cuda_notice(k, NOTICE_ATTENTION, "%s", why.text);
		return a;
	}
	cuda_choose(k);
	if (a->dnn->Create(&a->handle) != CUDNN_STATUS_SUCCESS)
		a->handle = NULL;
	else if (a->dnn->SetStream(a->handle, c->stream) != CUDNN_STATUS_SUCCESS) {
		a->dnn->Destroy(a->handle);
		a->handle = NULL;
	}
	if (!a->handle)
		cuda_notice(k, NOTICE_ATTENTION,
			    "backend cuda: cuDNN %zu cannot use the device; muster's own kernels "
			    "compute attention",
			    a->dnn->GetVersion());
	return a;
}

size_t cuda_attention_version(const struct backend *k)
{
	const struct dnn *dnn;
	struct err why = ERR_INIT;
	if (cuda_of(k)->storage == STORE_FP32 || dnn_load(&dnn, &why))
		return 0;
	return dnn->GetVersion();
}

static void drop_plan(struct attention_entry *e)
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
	cudaStreamSynchronize(cuda_of(k)->stream);
	for (int i = 0; i < a->count; i++)
		drop_plan(&a->entries[i]);
	timing_close(&a->timing);
	if (a->handle)
		a->dnn->Destroy(a->handle);
	free(a);
	cuda_of(k)->attention = NULL;
}

/* --- Plans -------------------------------------------------------------------------------- */

/* Backward, DNN_SUM follows the plan's workspace, whose size may be any number of bytes. */
static size_t sums_offset(const struct attention_entry *e)
{
	return round_up_size((size_t)e->plan.workspace, CUDA_ALIGN);
}

static size_t workspace_bytes(const struct attention_entry *e, const struct attention_call *c)
{
	size_t sums = (size_t)(e->piece.batch * e->piece.heads * c->s->q_len) * sizeof(float);
	return sums_offset(e) + round_up_size(sums, CUDA_ALIGN);
}

/* Forward the workspace is small, and the backend's scratch serves. */
static char *workspace_of(const struct backend *k, bool backward)
{
	return backward ? cuda_of(k)->attention->workspace : cuda_of(k)->scratch;
}

/* A graph that was recorded holds the workspace's address, so a smaller one is kept until the
 * backend is closed. Shapes of one job differ little. */
static int reserve(struct backend *k, size_t bytes, struct err *e)
{
	struct cuda_attention *a = cuda_of(k)->attention;
	if (bytes <= a->workspace_bytes)
		return 0;
	void *p = cuda_memory_alloc(k, bytes);
	if (!p)
		return err_set(e, ERR_NOMEM,
			       "cuDNN's workspace of %zu bytes does not fit; muster's "
			       "own kernels are used",
			       bytes);
	a->workspace = p;
	a->workspace_bytes = bytes;
	k->bytes += bytes;
	k->peak = k->bytes > k->peak ? k->bytes : k->peak;
	return 0;
}

static bool build_plan(struct backend *k, const struct attention_call *c, struct attention_entry *e)
{
	static const cudnnDataType_t types[] = {
		[STORE_BF16] = CUDNN_DATA_BFLOAT16, [STORE_FP16] = CUDNN_DATA_HALF
	};
	struct cuda_attention *a = cuda_of(k)->attention;
	struct dnn_attention graph = { c->s, e->piece, attention_causal(c->s),
				       types[cuda_of(k)->storage] };
	struct err why = ERR_INIT;
	dnn_graph_init(e->graph, a->dnn);
	if (c->backward)
		dnn_attention_bwd(e->graph, &graph);
	else
		dnn_attention_fwd(e->graph, &graph);
	const int64_t most = c->backward ? ATTENTION_ROOM_MOST : CUDA_SCRATCH;
	if (!dnn_plan_make(e->graph, a->handle, most, &e->plan, &why) &&
	    (!c->backward || !reserve(k, workspace_bytes(e, c), &why)))
		return true;
	cuda_notice(k, NOTICE_ATTENTION, "backend cuda: %s", why.text);
	return false;
}

bool attention_plan(struct backend *k, const struct attention_call *c, struct attention_entry *e)
{
	const struct attn_shape *s = c->s;
	if (e->tried || cuda_of(k)->recording)
		return e->graph && !e->failed;
	e->tried = true;
	e->piece = (struct attention_piece){ s->batch, s->heads, s->kv_heads };
	if (c->backward)
		e->piece = attention_piece_of(s->batch, s->heads, s->kv_heads, s->q_len, s->k_len,
					      s->dim);
	if (!e->piece.batch)
		cuda_notice(k, NOTICE_ATTENTION,
			    "backend cuda: cuDNN's backward pass over %lld tokens needs more than "
			    "%d MiB; muster's own kernels are used",
			    (long long)s->q_len, (int)(ATTENTION_ROOM_MOST >> 20));
	e->graph = e->piece.batch > 0 ? calloc(1, sizeof *e->graph) : NULL;
	if (e->graph && !build_plan(k, c, e))
		drop_plan(e);
	return e->graph != NULL;
}

/* --- Running ------------------------------------------------------------------------------ */

static void *stored_at(const void *p, int64_t element)
{
	return p ? (char *)(uintptr_t)p + 2 * element : NULL;
}

/* The piece that begins with sequence b and k/v head g. */
static cudnnStatus_t run_piece(struct backend *k, const struct attention_call *c,
			       const struct attention_entry *e, int64_t b, int g)
{
	static const int64_t ids[] = { DNN_Q,     DNN_K,      DNN_V,      DNN_O,      DNN_STATS,
				       DNN_SCALE, DNN_MASKED, DNN_STARTS, DNN_HIDDEN, DNN_DOUT,
				       DNN_DQ,    DNN_DK,     DNN_DV,     DNN_SUM,    DNN_ONE };
	struct cuda_attention *a = cuda_of(k)->attention;
	const struct attn_shape *s = c->s;
	char *workspace = workspace_of(k, c->backward);
	int64_t head = (int64_t)g * (s->heads / s->kv_heads);
	int64_t q = b * s->q_batch + head * s->dim, kv = b * s->kv_batch + (int64_t)g * s->dim,
		o = b * s->o_batch + head * s->dim;
	float scale = (float)(1 / sqrt((double)s->dim)), masked = -INFINITY,
	      hidden = DNN_HIDDEN_SCORE, one = 1;
	void *at[] = { stored_at(c->q, q),
		       stored_at(c->key, kv),
		       stored_at(c->v, kv),
		       stored_at(c->o, o),
		       c->lse + (b * s->heads + head) * s->q_len,
		       &scale,
		       attention_causal(s) ? &masked : NULL,
		       s->starts ? (void *)(uintptr_t)(s->starts + b * s->starts_batch) : NULL,
		       s->starts ? &hidden : NULL,
		       stored_at(c->dout, o),
		       stored_at(c->dq, q),
		       stored_at(c->dk, kv),
		       stored_at(c->dv, kv),
		       workspace + sums_offset(e),
		       &one };
	int count = c->backward ? DNN_BACKWARD - 1 : DNN_FORWARD - 1, n = 0;
	int64_t used[DNN_BACKWARD];
	void *where[DNN_BACKWARD];
	for (int i = 0; i < count; i++) {
		if (!at[i]) /* not a tensor of this graph */
			continue;
		used[n] = ids[i];
		where[n++] = at[i];
	}
	return dnn_plan_run(a->dnn, a->handle, &e->plan, used, where, n, workspace);
}

bool attention_run_dnn(struct backend *k, const struct attention_call *c, struct attention_entry *e)
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
	cuda_notice(k, NOTICE_ATTENTION,
		    "backend cuda: cuDNN failed in %s: %s; muster's own kernels are used",
		    cuda_of(k)->last_op, cuda_of(k)->attention->dnn->GetErrorString(rc));
	e->failed = true; /* graphs that were recorded may hold the plan */
	return false;
}

#endif
