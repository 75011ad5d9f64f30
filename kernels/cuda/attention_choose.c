#include "kernels/cuda/attention_ways.h"

#ifdef HAVE_CUDNN

#include "base/choices.h"

#include <string.h>

/* --- What cuDNN is asked for -------------------------------------------------------------- */

/* All keys are before all queries. */
static bool past(const struct attn_shape *s)
{
	return s->k_first + s->k_len <= s->q_first + 1;
}

static bool whole_pieces(const void *p, int64_t row, int64_t batch)
{
	return cuda_aligned(p, row, 2) && cuda_aligned(p, batch, 2);
}

static bool rows_suit(const struct attention_call *c)
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

static bool device_suits(const struct cuda_backend *c, const struct attention_call *call)
{
	int dim = call->s->dim, most = c->cc / 10 == 9 ? ATTENTION_ROOM_DIM : 128;
	return dim % 8 == 0 && dim <= most;
}

/* The graph compares starts with a key's index, which must be its position. */
static bool documents_suit(const struct cuda_backend *c, const struct attention_call *call)
{
	const struct attn_shape *s = call->s;
	return !s->starts || (s->q_first == 0 && s->k_first == 0 && s->starts_batch >= s->q_len &&
			      (uintptr_t)s->starts % sizeof *s->starts == 0 &&
			      !(call->backward && c->cc / 10 != 9));
}

/* Whether the table in attention_choose.h has this call in cuDNN's columns. */
static bool suits(const struct backend *k, const struct attention_call *c)
{
	const struct attn_shape *s = c->s;
	return cuda_of(k)->storage != STORE_FP32 && s->batch > 0 && s->q_len > 1 && s->k_len > 1 &&
	       (attention_causal(s) || past(s)) && !(s->drop.p > 0) && !c->add &&
	       device_suits(cuda_of(k), c) && documents_suit(cuda_of(k), c) && rows_suit(c);
}

static void fill_key(const struct backend *k, const struct attention_call *c,
		     struct attention_key *key)
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
	key->starts_batch = s->starts ? s->starts_batch : 0;
	key->heads = s->heads;
	key->kv_heads = s->kv_heads;
	key->dim = s->dim;
	key->causal = attention_causal(s);
	key->backward = c->backward;
	key->any_order = c->backward && k->any_order;
}

bool attention_allows(const struct backend *k, const struct attention_key *key,
		      enum attention_way way)
{
	return way == WAY_CUDNN_ANY ? key->any_order
	       : way == WAY_CUDNN   ? !(key->backward && cuda_of(k)->cc / 10 == 10)
				    : way == WAY_OWN;
}

void attention_run_own(struct backend *k, const struct attention_call *c)
{
	if (c->backward)
		attention_own_bwd(k, c->dq, c->dk, c->dv, c->dout, c->o, c->lse, c->q, c->key, c->v,
				  c->s, c->add);
	else
		attention_own_fwd(k, c->o, c->lse, c->q, c->key, c->v, c->s);
}

/* --- The choice --------------------------------------------------------------------------- */

/* The rule for what is not in the choices. */
static enum attention_way fixed_way(const struct backend *k, const struct attention_call *c)
{
	int major = cuda_of(k)->cc / 10;
	return !c->backward && !c->s->starts && (major == 9 || major == 10) ? WAY_CUDNN : WAY_OWN;
}

/* NULL: there is none, and none can be made now. */
static struct attention_entry *entry_of(struct backend *k, const struct attention_call *c)
{
	struct cuda_attention *a = attention_state(k);
	struct attention_key key;
	if (!a || !a->handle)
		return NULL;
	fill_key(k, c, &key);
	for (int i = 0; i < a->count; i++)
		if (!memcmp(&a->entries[i].key, &key, sizeof key))
			return &a->entries[i];
	if (a->count == ATTENTION_ENTRIES || cuda_of(k)->recording)
		return NULL;
	struct attention_entry *e = &a->entries[a->count++];
	e->key = key;
	return e;
}

static void choose_way(struct backend *k, const struct attention_call *c, struct attention_entry *e)
{
	attention_measure(k, c, e);
	unsigned version = choices_version(k->choices);
	if (e->way != WAY_UNKNOWN && e->version == version)
		return;
	e->version = version;
	e->way = attention_find(k, e);
	if (e->way == WAY_UNKNOWN)
		e->way = fixed_way(k, c);
}

static void run(struct backend *k, const struct attention_call *c)
{
	struct attention_entry *e = suits(k, c) ? entry_of(k, c) : NULL;
	if (e)
		choose_way(k, c, e);
	if (!e || e->way == WAY_OWN || !attention_plan(k, c, e, e->way) ||
	    !attention_run_dnn(k, c, e, e->way))
		attention_run_own(k, c);
}

void attention_chosen_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s)
{
	struct attention_call c = { .s = s, .q = q, .key = key, .v = v, .o = o, .lse = lse };
	run(k, &c);
}

void attention_chosen_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
			  const void *o, const float *lse, const void *q, const void *key,
			  const void *v, const struct attn_shape *s, bool add)
{
	struct attention_call c = {
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

size_t cuda_attention_version(const struct backend *k)
{
	(void)k;
	return 0;
}

void cuda_attention_close(struct backend *k)
{
	(void)k;
}

#endif
