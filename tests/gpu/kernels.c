/*
 * Each op at the sizes of the models that are measured (models.h): seconds of a call, the bytes
 * that it must move (inputs read once, outputs written once, both of what it changes), the FLOPs of
 * products and attention. A line of JSON a row.
 *
 * usage: kernels [--backend NAME] [--toy] [--only WORD]
 *
 * Calls go round several sets of arrays, together larger than a GPU's L2 cache, of random numbers.
 * They are recorded where the backend records, so that what is timed is the device's work; the
 * median of several rounds counts.
 */
#include "base/clock.h"
#include "base/philox.h"
#include "plan/spec/model/model.h"
#include "tests/conform/op_check.h"
#include "tests/conform/storage.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MOST = 8, ROUNDS_MOST = 7, PATTERN = 1 << 20 };

/* One row of the table; op NULL: the one of that name of tests/conform. */
struct row {
	const char *model, *name, *what;
	const struct op_test *op;
	struct dims d;
	double flops;
};

struct bench {
	struct backend *k;
	const struct storage *storage;
	bool toy;
	const char *only;
	float *numbers; /* [PATTERN] normal ones */
	char *stored;   /* the same as the backend stores them */
	size_t room;    /* bytes of all sets of a row */
	double least;   /* seconds of a round */
	int rounds;
};

/* --- Ops whose sizes tests/conform keeps small -------------------------------------------- */

/* y tokens wte wpe positions; d = rows of wte, lo = positions */
static void embed_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ TOKENS, d->n, (double)d->d, STORED };
	a[2] = (struct arg){ IN, d->with ? d->lo * d->c : 0, 1, STORED };
	a[3] = (struct arg){ TOKENS, d->with ? d->n : 0, (double)(d->lo ? d->lo : 1), STORED };
	/* the table, of which the rows that are met are read */
	a[4] = (struct arg){ INOUT, d->d * d->c, 1, STORED };
}

static void embed_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->embed_fwd(k, p[0], p[1], d->with ? p[3] : NULL, p[4], d->with ? p[2] : NULL, d->n, d->c,
		     0, (int32_t)d->d);
}

static void embed_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->d * d->c, 1, SINGLE };
	a[1] = (struct arg){ ADD, d->with ? d->lo * d->c : 0, 1, SINGLE };
	a[2] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[3] = (struct arg){ TOKENS, d->n, (double)d->d, STORED };
	a[4] = (struct arg){ TOKENS, d->with ? d->n : 0, (double)(d->lo ? d->lo : 1), STORED };
}

static void embed_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->embed_bwd(k, p[0], d->with ? p[1] : NULL, p[2], p[3], d->with ? p[4] : NULL, d->n, d->c,
		     0, (int32_t)d->d);
}

static struct attn_shape shape_of(const struct dims *d)
{
	struct attn_shape s = d->s;
	s.k_len = s.q_len;
	s.q_row = s.kv_row = (s.heads + 2 * s.kv_heads) * s.dim;
	s.q_batch = s.kv_batch = s.q_len * s.q_row;
	s.o_batch = s.q_len * s.heads * s.dim;
	s.seq = s.q_len;
	return s;
}

static void *part(struct backend *k, void *p, int64_t at)
{
	return (char *)p + (size_t)at * backend_width(k);
}

static void attention_fwd_args(const struct dims *d, struct arg *a)
{
	struct attn_shape s = shape_of(d);
	a[0] = (struct arg){ SET, s.batch * s.o_batch, 1, STORED };
	a[1] = (struct arg){ SET, s.batch * s.heads * s.q_len, 1, SINGLE };
	a[2] = (struct arg){ IN, s.batch * s.q_batch, 1, STORED };
}

static void forward(const struct ops *o, struct backend *k, const struct dims *d, void *out,
		    float *lse, void *qkv)
{
	struct attn_shape s = shape_of(d);
	o->attention_fwd(k, out, lse, qkv, part(k, qkv, s.heads * s.dim),
			 part(k, qkv, (s.heads + s.kv_heads) * s.dim), &s);
}

static void attention_fwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	forward(o, k, d, p[0], p[1], p[2]);
}

static void attention_bwd_args(const struct dims *d, struct arg *a)
{
	attention_fwd_args(d, a);
	a[0].kind = a[1].kind = IN;
	a[3] = (struct arg){ SET, a[2].count, 1, STORED };
	a[4] = (struct arg){ IN, a[0].count, 1, STORED };
}

/* What it goes back over must be an attention's. */
static void attention_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	forward(o, k, d, p[0], p[1], p[2]);
}

static void attention_bwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	struct attn_shape s = shape_of(d);
	int64_t key = s.heads * s.dim, v = key + s.kv_heads * s.dim;
	o->attention_bwd(k, p[3], part(k, p[3], key), part(k, p[3], v), p[4], p[0], p[1], p[2],
			 part(k, p[2], key), part(k, p[2], v), &s, false);
}

static const struct op_test embed_fwd = { .name = "embed_fwd",
					  .args = embed_fwd_args,
					  .run = embed_fwd_run },
			    embed_bwd = { .name = "embed_bwd",
					  .args = embed_bwd_args,
					  .run = embed_bwd_run },
			    attention_fwd = { .name = "attention_fwd",
					      .args = attention_fwd_args,
					      .run = attention_fwd_run },
			    attention_bwd = { .name = "attention_bwd",
					      .args = attention_bwd_args,
					      .prepare = attention_bwd_prepare,
					      .run = attention_bwd_run };

/* --- Arrays ------------------------------------------------------------------------------- */

static size_t element_of(const struct bench *b, const struct arg *a)
{
	if (a->kind == ROWS || a->kind == PLACES || a->width == DOUBLE)
		return 8;
	return a->kind == TOKENS || a->kind == CHOICES || a->width != STORED ? 4
									     : b->storage->width;
}

/* Random numbers of the argument's kind, a pattern again and again. */
static void fill(const struct bench *b, const struct arg *a, void *p)
{
	size_t element = element_of(b, a), left = (size_t)a->count * element,
	       most = PATTERN * element;
	int32_t *tokens = NULL;
	const char *from = element == 4 ? (const char *)b->numbers : b->stored;
	if (a->kind == ROWS || a->kind == PLACES || a->width == DOUBLE)
		return; /* zeros */
	if (a->kind == TOKENS && (tokens = malloc(most))) {
		uint32_t r[4];
		for (uint64_t i = 0; i < PATTERN; i++) {
			philox4(philox_key(9, PHILOX_TEST, 1), i, r);
			tokens[i] = (int32_t)(r[0] % (uint32_t)a->scale);
		}
		from = (const char *)tokens;
	}
	for (size_t at = 0; left; at += most) {
		size_t n = left < most ? left : most;
		backend_put(b->k, (char *)p + at, from, n);
		left -= n;
	}
	free(tokens);
}

static bool make_set(const struct bench *b, const struct row *r, const struct op_test *t,
		     const struct arg *a, void **p)
{
	for (int i = 0; i < ARGS; i++) {
		if (a[i].kind == NONE)
			continue;
		p[i] = backend_alloc(b->k, (size_t)a[i].count * element_of(b, &a[i]) + 1);
		if (!p[i])
			return false;
		fill(b, &a[i], p[i]);
	}
	if (t->prepare == attention_bwd_prepare)
		t->prepare(backend_ops(b->k), b->k, &r->d, p);
	return true;
}

/* Of the tables of embeddings, which may be larger than what is met of them, as many rows as
 * tokens. */
static double bytes_of(const struct bench *b, const struct row *r, const struct op_test *t,
		       const struct arg *a)
{
	bool table = t == &embed_fwd || t == &embed_bwd;
	double sum = 0;
	for (int i = 0; i < ARGS; i++) {
		double bytes = (double)a[i].count * (double)element_of(b, &a[i]);
		if (table && a[i].kind == INOUT)
			sum += (double)(r->d.n * r->d.c) * (double)element_of(b, &a[i]) *
			       (t == &embed_bwd ? 2 : 1);
		else if (a[i].kind == ADD || a[i].kind == INOUT)
			sum += 2 * bytes;
		else if (a[i].kind != NONE)
			sum += bytes;
	}
	return sum;
}

/* --- Timing ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* All sets once, or the graph of it. */
static void once(const struct bench *b, const struct row *r, const struct op_test *t,
		 struct backend_graph *graph, void *(*p)[ARGS], int sets)
{
	if (graph)
		backend_graph_replay(b->k, graph);
	for (int i = 0; !graph && i < sets; i++)
		t->run(backend_ops(b->k), b->k, &r->d, p[i]);
}

static int time_row(const struct bench *b, const struct row *r, const struct op_test *t,
		    void *(*p)[ARGS], int sets, double *seconds, struct err *e)
{
	double rounds[ROUNDS_MOST];
	struct backend_graph *graph = NULL;
	/* what it finds out the first time is not to be timed, nor recorded */
	once(b, r, t, NULL, p, sets);
	if (backend_sync(b->k, e))
		return -1;
	if (backend_graph_begin(b->k)) {
		once(b, r, t, NULL, p, sets);
		if (backend_graph_end(b->k, &graph, e))
			return -1;
	}
	int rc = 0;
	int64_t times = 1;
	for (int i = 0; !rc && i < b->rounds;) {
		double since = clock_s();
		for (int64_t j = 0; j < times; j++)
			once(b, r, t, graph, p, sets);
		rc = backend_sync(b->k, e);
		double took = clock_s() - since;
		if (!rc && took < b->least) {
			times *= 2;
			i = 0;
		} else {
			rounds[i++] = took / (double)(times * sets);
		}
	}
	backend_graph_free(b->k, graph);
	qsort(rounds, (size_t)b->rounds, sizeof *rounds, by_value);
	*seconds = rounds[b->rounds / 2];
	return rc;
}

static void print_row(const struct row *r, const char *op, double seconds, double bytes,
		      const char *error)
{
	printf("{\"model\": \"%s\", \"op\": \"%s\", \"what\": \"%s\", ", r->model, op, r->what);
	if (error)
		printf("\"error\": \"%s\"}\n", error);
	else
		printf("\"seconds\": %.6g, \"bytes\": %.0f, \"flops\": %.0f}\n", seconds, bytes,
		       r->flops);
	fflush(stdout);
}

static int measure(const struct bench *b, const struct row *r)
{
	const struct op_test *t = r->op ? r->op : NULL;
	for (const struct op_test *const *f = op_families; !t && *f; f++)
		for (const struct op_test *o = *f; !t && o->name; o++)
			t = strcmp(o->name, r->name) ? NULL : o;
	if (!t) {
		print_row(r, r->name, 0, 0, "there is no such op");
		return -1;
	}
	if (b->only && !strstr(t->name, b->only))
		return 0;
	struct arg a[ARGS] = { { .kind = NONE } };
	void *p[SETS_MOST][ARGS] = { { NULL } };
	struct err e = ERR_INIT;
	double seconds = 0;
	t->args(&r->d, a);
	double bytes = bytes_of(b, r, t, a);
	int sets = 0, want = (int)((double)b->room / bytes) + 1;
	while (sets < want && sets < SETS_MOST && make_set(b, r, t, a, p[sets]))
		sets++;
	int rc = sets ? time_row(b, r, t, p, sets, &seconds, &e)
		      : err_set(&e, ERR_NOMEM, "no memory for its arrays");
	print_row(r, t->name, seconds, bytes, rc ? e.text : NULL);
	for (int i = 0; i < SETS_MOST; i++)
		for (int j = 0; j < ARGS; j++)
			if (p[i][j])
				backend_free(b->k, p[i][j]);
	return rc;
}

/* --- The table ---------------------------------------------------------------------------- */

/* Forward and backward of a product of n rows. */
static int products(const struct bench *b, const char *model, const char *what, int64_t n,
		    int64_t in, int64_t out, bool bias)
{
	double flops = 2.0 * (double)n * (double)in * (double)out;
	const char *const ops[] = { "linear_fwd", "linear_bwd_input", "linear_bwd_weight" };
	int bad = 0;
	for (int i = 0; i < 3; i++)
		bad += measure(b,
			       &(struct row){ model,
					      ops[i],
					      what,
					      NULL,
					      { .n = n, .c = in, .d = out, .with = bias && i != 1 },
					      flops }) != 0;
	return bad;
}

static int attention(const struct bench *b, const char *model, const char *what, int64_t batch,
		     int64_t seq, int heads, int kv, int dim)
{
	struct dims d = {
		.s = { .batch = batch, .q_len = seq, .heads = heads, .kv_heads = kv, .dim = dim }
	};
	/* the causal half of two products */
	double flops = 2.0 * (double)(batch * heads) * (double)seq * (double)seq * dim;
	return (measure(b, &(struct row){ model, NULL, what, &attention_fwd, d, flops }) != 0) +
	       (measure(b, &(struct row){ model, NULL, what, &attention_bwd, d, 2.5 * flops }) !=
		0);
}

/* An op without products. */
static int moved(const struct bench *b, const char *model, const char *name, const char *what,
		 struct dims d)
{
	return measure(b, &(struct row){ model, name, what, NULL, d, 0 }) != 0;
}

/* toy: sizes of some dozens. */
static int64_t size(const struct bench *b, int64_t n)
{
	return b->toy && n > 64 ? 48 + n % 17 : n;
}

static int gpt2(const struct bench *b)
{
	const char *m = "gpt2-50304";
	int64_t n = size(b, 32 * 1024), c = size(b, 768), f = size(b, 3072), v = size(b, 50304),
		seq = size(b, 1024), weights = size(b, 124475904);
	int64_t rows = shape_head_rows(n, v), batch = b->toy ? 1 : 32;
	int bad = products(b, m, "qkv", n, c, 3 * c, true) +
		  products(b, m, "attention's output", n, c, c, true);
	double flops = 2.0 * (double)n * (double)c * (double)f;
	bad += measure(b, &(struct row){ m,
					 "linear_gelu_fwd",
					 "up, with GELU",
					 NULL,
					 { .n = n, .c = c, .d = f, .with = true },
					 flops }) != 0;
	bad += measure(b, &(struct row){ m,
					 "linear_gelu_bwd",
					 "down's input, with GELU",
					 NULL,
					 { .n = n, .c = f, .d = c },
					 flops }) != 0;
	bad += products(b, m, "down", n, f, c, true) +
	       products(b, m, "head, a chunk", rows, c, v, false);
	bad += attention(b, m, "12 heads of 64", batch, seq, 12, 12, b->toy ? 16 : 64);
	bad += moved(b, m, "layernorm_fwd", "with the residual",
		     (struct dims){ .n = n, .c = c, .with = true });
	bad += moved(b, m, "layernorm_bwd", "with the residual",
		     (struct dims){ .n = n, .c = c, .with = true });
	bad += moved(b, m, "gelu_fwd", "", (struct dims){ .n = n * f }) +
	       moved(b, m, "gelu_bwd", "", (struct dims){ .n = n * f });
	bad += moved(b, m, "sum_rows", "a bias's gradient", (struct dims){ .n = n, .c = 3 * c });
	bad += moved(b, m, "add", "", (struct dims){ .n = n * c });
	bad += moved(b, m, "xent", "a chunk, with its gradient",
		     (struct dims){ .n = rows, .c = v, .d = v, .with = true });
	bad += moved(b, m, "xent_max", "a chunk", (struct dims){ .n = rows, .c = v, .d = v });
	bad += moved(b, m, "xent_exp", "a chunk", (struct dims){ .n = rows, .c = v, .d = v });
	bad += moved(b, m, "xent_grad", "a chunk", (struct dims){ .n = rows, .c = v, .d = v });
	bad += measure(b,
		       &(struct row){ m,
				      NULL,
				      "tokens and positions",
				      &embed_fwd,
				      { .n = n, .c = c, .d = v, .lo = (int32_t)seq, .with = true },
				      0 }) != 0;
	bad += measure(b,
		       &(struct row){ m,
				      NULL,
				      "tokens and positions",
				      &embed_bwd,
				      { .n = n, .c = c, .d = v, .lo = (int32_t)seq, .with = true },
				      0 }) != 0;
	bad += moved(b, m, "dropout", "0.1", (struct dims){ .n = n, .c = c, .p = 0.1f });
	bad += moved(b, m, "sqnorm", "all gradients", (struct dims){ .n = weights });
	bad += moved(b, m, "adamw", "all weights, and their bf16",
		     (struct dims){ .n = weights, .with = true });
	return bad;
}

static int llama(const struct bench *b)
{
	const char *m = "llama-1b";
	int64_t n = size(b, 8 * 2048), c = size(b, 2048), f = size(b, 8192), v = size(b, 128256),
		seq = size(b, 2048);
	int64_t rows = shape_head_rows(n, v), batch = b->toy ? 1 : 8;
	int dim = b->toy ? 16 : 64;
	int bad = products(b, m, "qkv", n, c, 48 * dim, false) +
		  products(b, m, "attention's output", n, 32 * dim, c, false);
	bad += products(b, m, "gate and up", n, c, 2 * f, false) +
	       products(b, m, "down", n, f, c, false);
	bad += products(b, m, "head, a chunk", rows, c, v, false);
	bad += attention(b, m, "32 heads of 64 over 8", batch, seq, 32, 8, dim);
	bad += attention(b, m, "16 heads of 128 over 4", batch, seq, 16, 4, 2 * dim);
	bad += moved(b, m, "rmsnorm_fwd", "with the residual",
		     (struct dims){ .n = n, .c = c, .with = true });
	bad += moved(b, m, "rmsnorm_bwd", "with the residual",
		     (struct dims){ .n = n, .c = c, .with = true });
	bad += moved(b, m, "swiglu_fwd", "", (struct dims){ .n = n, .c = f }) +
	       moved(b, m, "swiglu_bwd", "", (struct dims){ .n = n, .c = f });
	struct dims rope = { .n = n, .c = 48 * dim, .d = seq, .s = { .heads = 40, .dim = dim } };
	bad += moved(b, m, "rope_fwd", "q and k", rope) + moved(b, m, "rope_bwd", "q and k", rope);
	return bad;
}

/* --- The program -------------------------------------------------------------------------- */

static int prepare(struct bench *b)
{
	b->numbers = malloc(PATTERN * sizeof *b->numbers);
	b->stored = malloc(PATTERN * b->storage->width);
	if (!b->numbers || !b->stored)
		return -1;
	philox_normal(philox_key(9, PHILOX_TEST, 0), 0, PATTERN, b->numbers);
	for (int64_t i = 0; i < PATTERN; i++)
		storage_put(b->storage, b->stored, i,
			    storage_round(b->storage, (double)b->numbers[i]));
	b->room = b->toy ? 1 : (size_t)384 << 20;
	b->least = b->toy ? 0 : 0.01;
	b->rounds = b->toy ? 1 : ROUNDS_MOST;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "backend", required_argument, NULL, 'b' },
		{ "toy", no_argument, NULL, 't' },
		{ "only", required_argument, NULL, 'o' },
		{ 0 },
	};
	const char *backend_name = "cuda:bf16";
	struct bench b = { .toy = false };
	struct err e = ERR_INIT;
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		if (c == 'b')
			backend_name = optarg;
		else if (c == 't')
			b.toy = true;
		else if (c == 'o')
			b.only = optarg;
		else
			return 2;
	b.storage = storage_of(backend_name);
	if (prepare(&b) || backend_open(backend_name, 1, &b.k, &e)) {
		fprintf(stderr, "kernels: %s\n", e.text);
		return 1;
	}
	int bad = gpt2(&b) + llama(&b);
	backend_close(b.k);
	free(b.numbers);
	free(b.stored);
	return bad ? 1 : 0;
}
