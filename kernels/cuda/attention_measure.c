/*
 * Measures the ways to compute attention, at the first use of a shape outside of a recorded graph,
 * with the operands of that use. Each is run once before; then they take turns. cuDNN's is chosen if
 * its median is at least 2 % lower, since it needs a workspace backward. In any order it is chosen
 * if it is 2 % faster than the better of the others, which give the same bits each time.
 *
 * Nothing is measured if an output is also an input. Kernels are faster on zeros: while q, or dout
 * in a backward pass, is zeros, a later use is measured.
 */
#include "kernels/cuda/attention_ways.h"

#ifdef HAVE_CUDNN

#include "base/choices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TURNS = 5, RUNS = 3, ZERO_USES = 4 };
static const double clearly = 0.98;

/* --- Kept choices ------------------------------------------------------------------------- */

static void write_key(struct backend *k, const struct attention_entry *e, char text[CHOICES_TEXT])
{
	static const char *const types[] = { [STORE_BF16] = "bf16", [STORE_FP16] = "fp16" };
	const struct attention_key *a = &e->key;
	const char *mask = a->starts_batch ? "documents" : a->causal ? "causal" : "full";
	snprintf(text, CHOICES_TEXT,
		 "attention %s %s %s b=%lld q=%lld k=%lld heads=%d/%d dim=%d rows=%lld,%lld%s",
		 a->backward ? "bwd" : "fwd", types[cuda_of(k)->storage], mask, (long long)a->batch,
		 (long long)a->q_len, (long long)a->k_len, a->heads, a->kv_heads, a->dim,
		 (long long)a->q_row, (long long)a->kv_row, a->any_order ? " any-order" : "");
}

/* The values of choices. */
static const char *const words[] = {
	[WAY_OWN] = "own", [WAY_CUDNN] = "cudnn", [WAY_CUDNN_ANY] = "cudnn-any"
};

enum attention_way attention_find(struct backend *k, const struct attention_entry *e)
{
	char text[CHOICES_TEXT], word[16];
	size_t length;
	write_key(k, e, text);
	if (!choices_find(k->choices, text, word, sizeof word, &length))
		return WAY_UNKNOWN;
	for (enum attention_way way = WAY_OWN; way < WAYS; way++)
		if (length == strlen(words[way]) && !memcmp(word, words[way], length) &&
		    attention_allows(k, &e->key, way))
			return way;
	return WAY_UNKNOWN;
}

static void put(struct backend *k, const struct attention_entry *e, enum attention_way chosen)
{
	char text[CHOICES_TEXT];
	write_key(k, e, text);
	choices_put(k->choices, text, words[chosen], strlen(words[chosen]));
}

/* --- Timing ------------------------------------------------------------------------------- */

static bool run_way(struct backend *k, const struct attention_call *c, struct attention_entry *e,
		    enum attention_way way)
{
	if (way != WAY_OWN)
		return attention_run_dnn(k, c, e, way);
	attention_run_own(k, c);
	return true;
}

/* Seconds of one run; INFINITY: cuDNN or the device has failed. */
static double time_way(struct backend *k, const struct attention_call *c, struct attention_entry *e,
		       enum attention_way way, int runs)
{
	static const char where[] = "measuring attention";
	const struct timing *timing = &cuda_of(k)->attention->timing;
	if (!timing_begin(k, timing, where))
		return INFINITY;
	for (int i = 0; i < runs; i++)
		if (!run_way(k, c, e, way))
			return INFINITY;
	return timing_end(k, timing, where) / runs;
}

/* What a way took, and by which engine. Returns the length of the text. */
static int describe(const struct attention_entry *e, enum attention_way way, double seconds,
		    char *to, size_t size)
{
	const struct dnn_plan *p = &e->plans[way].plan;
	if (!attention_usable(e, way))
		return 0;
	return snprintf(to, size, "cuDNN%s %.1f us, engine %d, workspace %.0f MiB; ",
			way == WAY_CUDNN_ANY ? " in any order" : "", 1e6 * seconds, (int)p->engine,
			(double)p->workspace / (1 << 20));
}

static void put_fastest(struct backend *k, const struct attention_entry *e,
			const double seconds[WAYS])
{
	enum attention_way best = WAY_OWN;
	char text[2 * CHOICES_TEXT] = "cuDNN failed; ";
	int length = 0;
	for (enum attention_way way = WAY_CUDNN; way < WAYS; way++) {
		length += describe(e, way, seconds[way], text + length,
				   sizeof text - (size_t)length);
		if (seconds[way] < clearly * seconds[best])
			best = way;
	}
	put(k, e, best);
	choices_note(k->choices, "%sown kernels %.1f us", text, 1e6 * seconds[WAY_OWN]);
}

static void hold_contest(struct backend *k, const struct attention_call *c,
			 struct attention_entry *e)
{
	double turns[WAYS][TURNS], seconds[WAYS];
	for (enum attention_way way = WAY_OWN; way < WAYS; way++)
		if (way == WAY_OWN || attention_usable(e, way))
			time_way(k, c, e, way, 1);
	for (int t = 0; t < TURNS; t++)
		for (enum attention_way way = WAY_OWN; way < WAYS; way++)
			turns[way][t] = way == WAY_OWN || attention_usable(e, way)
						? time_way(k, c, e, way, RUNS)
						: INFINITY;
	for (enum attention_way way = WAY_OWN; way < WAYS; way++)
		seconds[way] = way == WAY_OWN || attention_usable(e, way)
				       ? timing_median(turns[way], TURNS)
				       : INFINITY;
	put_fastest(k, e, seconds);
}

/* --- Operands ----------------------------------------------------------------------------- */

/* Whether the middle row of the first sequence has numbers. With context parallelism an array begins
 * at a piece of a longer one, so what is beyond its rows may not be read. */
static bool has_numbers(struct backend *k, const struct attn_shape *s, const void *at, int64_t row)
{
	const size_t width = 2;
	return timing_has_numbers(k, (const char *)at + width * (size_t)(s->q_len / 2 * row),
				  width * (size_t)s->heads * (size_t)s->dim);
}

struct span {
	const char *from;
	size_t bytes;
};

static bool overlap(struct span a, struct span b)
{
	return timing_overlap(a.from, a.bytes, b.from, b.bytes);
}

static struct span span_of(const void *p, int64_t batch, int64_t batch_row, int64_t len,
			   int64_t row, int64_t width)
{
	return (struct span){ p, 2 * (size_t)((batch - 1) * batch_row + (len - 1) * row + width) };
}

/* Whether an output is also an input, so that the call can run once only. */
static bool in_place(const struct attention_call *c)
{
	const struct attn_shape *s = c->s;
	int64_t heads = (int64_t)s->heads * s->dim, shared = (int64_t)s->kv_heads * s->dim;
	struct span q = span_of(c->q, s->batch, s->q_batch, s->q_len, s->q_row, heads),
		    key = span_of(c->key, s->batch, s->kv_batch, s->k_len, s->kv_row, shared),
		    v = span_of(c->v, s->batch, s->kv_batch, s->k_len, s->kv_row, shared),
		    o = span_of(c->o, s->batch, s->o_batch, s->q_len, heads, heads),
		    dout = { c->dout, o.bytes }, dq = { c->dq, q.bytes }, dk = { c->dk, key.bytes },
		    dv = { c->dv, v.bytes },
		    lse = { (const char *)c->lse,
			    sizeof *c->lse * (size_t)(s->batch * s->heads * s->q_len) };
	const struct span in[] = { q, key, v, dout, o, lse }, forward[] = { o, lse },
			  backward[] = { dq, dk, dv };
	int inputs = c->backward ? 6 : 3, outputs = c->backward ? 3 : 2;
	for (int i = 0; i < inputs; i++)
		for (int j = 0; j < outputs; j++)
			if (overlap(in[i], c->backward ? backward[j] : forward[j]))
				return true;
	return false;
}

void attention_measure(struct backend *k, const struct attention_call *c, struct attention_entry *e)
{
	char text[CHOICES_TEXT];
	if (e->settled || cuda_of(k)->recording || !choices_wanted(k->choices))
		return;
	e->settled = true;
	write_key(k, e, text);
	if (choices_proposed(k->choices, text) || attention_find(k, e) != WAY_UNKNOWN)
		return;
	cuda_choose(k);
	if (in_place(c) || !attention_plan_all(k, c, e) ||
	    !timing_open(k, &cuda_of(k)->attention->timing))
		return;
	if (has_numbers(k, c->s, c->q, c->s->q_row) &&
	    (!c->backward || has_numbers(k, c->s, c->dout, (int64_t)c->s->heads * c->s->dim))) {
		hold_contest(k, c, e);
		e->way = WAY_UNKNOWN;
	} else {
		e->settled = ++e->zero_uses == ZERO_USES;
	}
}

#endif
