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

static void drop_plan(struct attention_plan *p)
{
	if (!p->graph)
		return;
	dnn_graph_fini(p->graph);
	free(p->graph);
	p->graph = NULL;
}

void cuda_attention_close(struct backend *k)
{
	struct cuda_attention *a = cuda_of(k)->attention;
	if (!a)
		return;
	cudaStreamSynchronize(cuda_of(k)->stream);
	for (int i = 0; i < a->count; i++)
		for (int way = 0; way < WAYS; way++)
			drop_plan(&a->entries[i].plans[way]);
	timing_close(&a->timing);
	if (a->handle)
		a->dnn->Destroy(a->handle);
	free(a);
	cuda_of(k)->attention = NULL;
}

/* --- Plans -------------------------------------------------------------------------------- */

/* Backward, DNN_SUM follows the plan's workspace, whose size may be any number of bytes, and
 * DNN_DQ_SUMS follows that. */
static size_t sums_offset(const struct attention_plan *p)
{
	return round_up_size((size_t)p->plan.workspace, CUDA_ALIGN);
}

static int64_t queries_of(const struct attention_plan *p, const struct attn_shape *s)
{
	return p->piece.batch * p->piece.heads * s->q_len;
}

static size_t dq_offset(const struct attention_plan *p, const struct attn_shape *s)
{
	return sums_offset(p) + round_up_size((size_t)queries_of(p, s) * sizeof(float), CUDA_ALIGN);
}

static size_t workspace_bytes(const struct attention_plan *p, const struct attention_call *c,
			      enum attention_way way)
{
	return dq_offset(p, c->s) +
	       (way == WAY_CUDNN_ANY ? (size_t)(queries_of(p, c->s) * c->s->dim) * sizeof(float)
				     : 0);
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

static int build_graph(struct backend *k, const struct attention_call *c, struct attention_plan *p,
		       enum attention_way way, struct err *e)
{
	static const cudnnDataType_t types[] = {
		[STORE_BF16] = CUDNN_DATA_BFLOAT16, [STORE_FP16] = CUDNN_DATA_HALF
	};
	const struct cuda_attention *a = cuda_of(k)->attention;
	const bool any_order = way == WAY_CUDNN_ANY;
	const struct dnn_attention graph = { c->s, p->piece, attention_causal(c->s),
					     types[cuda_of(k)->storage], any_order };
	dnn_graph_init(p->graph, a->dnn);
	if (c->backward)
		dnn_attention_bwd(p->graph, &graph);
	else
		dnn_attention_fwd(p->graph, &graph);
	return dnn_plan_make(p->graph, a->handle, c->backward ? ATTENTION_ROOM_MOST : CUDA_SCRATCH,
			     any_order, &p->plan, e);
}

/* Makes a plan, without its workspace. */
static int make_plan(struct backend *k, const struct attention_call *c,
		     struct attention_entry *entry, enum attention_way way, struct err *e)
{
	const struct attn_shape *s = c->s;
	struct attention_plan *p = &entry->plans[way];
	p->tried = true;
	p->piece = (struct attention_piece){ s->batch, s->heads, s->kv_heads };
	if (c->backward)
		p->piece = attention_piece_of(s->batch, s->heads, s->kv_heads, s->q_len, s->k_len,
					      s->dim, way == WAY_CUDNN_ANY);
	if (!p->piece.batch)
		return err_set(e, ERR_UNSUPPORTED,
			       "cuDNN's backward pass over %lld tokens needs more than %d MiB; "
			       "muster's own kernels are used",
			       (long long)s->q_len, (int)(ATTENTION_ROOM_MOST >> 20));
	p->graph = calloc(1, sizeof *p->graph);
	if (!p->graph)
		return err_set(e, ERR_NOMEM,
			       "no memory for cuDNN's graph; muster's own kernels are used");
	if (!build_graph(k, c, p, way, e))
		return 0;
	drop_plan(p);
	return -1;
}

static int give_workspace(struct backend *k, const struct attention_call *c,
			  struct attention_entry *entry, enum attention_way way, struct err *e)
{
	struct attention_plan *p = &entry->plans[way];
	if (!c->backward || !reserve(k, workspace_bytes(p, c, way), e))
		return 0;
	drop_plan(p);
	return -1;
}

bool attention_usable(const struct attention_entry *e, enum attention_way way)
{
	return e->plans[way].graph && !e->plans[way].failed;
}

bool attention_plan(struct backend *k, const struct attention_call *c, struct attention_entry *e,
		    enum attention_way way)
{
	struct err why = ERR_INIT;
	if (e->plans[way].tried || cuda_of(k)->recording)
		return attention_usable(e, way);
	if (make_plan(k, c, e, way, &why) || give_workspace(k, c, e, way, &why))
		cuda_notice(k, NOTICE_ATTENTION, "backend cuda: %s", why.text);
	return attention_usable(e, way);
}

/* The largest workspace is allocated first, since a smaller one would be kept beside it. */
bool attention_plan_all(struct backend *k, const struct attention_call *c,
			struct attention_entry *e)
{
	struct err why = ERR_INIT, ignored = ERR_INIT;
	size_t most = 0;
	bool any = false;
	for (enum attention_way way = WAY_CUDNN; way < WAYS; way++)
		if (attention_allows(k, &e->key, way) && !e->plans[way].tried &&
		    !make_plan(k, c, e, way, &why)) {
			const size_t bytes = workspace_bytes(&e->plans[way], c, way);
			most = bytes > most ? bytes : most;
		}
	if (c->backward && most)
		reserve(k, most, &ignored);
	for (enum attention_way way = WAY_CUDNN; way < WAYS; way++)
		any |= attention_usable(e, way) && !give_workspace(k, c, e, way, &why);
	if (!any && *why.text)
		cuda_notice(k, NOTICE_ATTENTION, "backend cuda: %s", why.text);
	return any;
}

/* --- Running ------------------------------------------------------------------------------ */

static void *stored_at(const void *p, int64_t element)
{
	return p ? (char *)(uintptr_t)p + 2 * element : NULL;
}

/* The piece that begins with sequence b and k/v head g. */
static cudnnStatus_t run_piece(struct backend *k, const struct attention_call *c,
			       const struct attention_plan *p, enum attention_way way, int64_t b,
			       int g)
{
	static const int64_t ids[] = { DNN_Q,      DNN_K,     DNN_V,      DNN_O,
				       DNN_STATS,  DNN_SCALE, DNN_MASKED, DNN_STARTS,
				       DNN_HIDDEN, DNN_DOUT,  DNN_DQ,     DNN_DK,
				       DNN_DV,     DNN_SUM,   DNN_ONE,    DNN_DQ_SUMS };
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
		       workspace + sums_offset(p),
		       &one,
		       way == WAY_CUDNN_ANY ? workspace + dq_offset(p, s) : NULL };
	int count = c->backward ? DNN_BACKWARD - 1 : DNN_FORWARD - 1, n = 0;
	int64_t used[DNN_BACKWARD];
	void *where[DNN_BACKWARD];
	for (int i = 0; i < count; i++) {
		if (!at[i]) /* not a tensor of this graph */
			continue;
		used[n] = ids[i];
		where[n++] = at[i];
	}
	size_t sums = (size_t)(queries_of(p, s) * s->dim) * sizeof(float);
	if (way == WAY_CUDNN_ANY && /* the sums are added to what is there */
	    cudaMemsetAsync(workspace + dq_offset(p, s), 0, sums, cuda_of(k)->stream))
		return CUDNN_STATUS_EXECUTION_FAILED;
	return dnn_plan_run(a->dnn, a->handle, &p->plan, used, where, n, workspace);
}

bool attention_run_dnn(struct backend *k, const struct attention_call *c, struct attention_entry *e,
		       enum attention_way way)
{
	const struct attn_shape *s = c->s;
	struct attention_plan *p = &e->plans[way];
	cudnnStatus_t rc = CUDNN_STATUS_SUCCESS;
	cuda_choose(k);
	cuda_of(k)->last_op = c->backward ? "attention_bwd" : "attention_fwd";
	for (int64_t b = 0; b < s->batch && rc == CUDNN_STATUS_SUCCESS; b += p->piece.batch)
		for (int g = 0; g < s->kv_heads && rc == CUDNN_STATUS_SUCCESS;
		     g += p->piece.kv_heads)
			rc = run_piece(k, c, p, way, b, g);
	if (rc == CUDNN_STATUS_SUCCESS)
		return true;
	cudaGetLastError();
	cuda_notice(k, NOTICE_ATTENTION,
		    "backend cuda: cuDNN failed in %s: %s; muster's own kernels are used",
		    cuda_of(k)->last_op, cuda_of(k)->attention->dnn->GetErrorString(rc));
	p->failed = true; /* graphs that were recorded may hold the plan */
	return false;
}

#endif
