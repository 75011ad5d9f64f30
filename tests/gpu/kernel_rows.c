#include "tests/gpu/kernel_rows.h"

#include "base/numbers.h"
#include "plan/spec/model/model.h"

#include <stdlib.h>

struct walk {
	bool toy;
	kernel_row_fn *fn;
	void *arg;
};

static int visit(const struct walk *b, const struct kernel_row *r)
{
	return b->fn(b->arg, r);
}

/* --- Ops that tests/conform only tests at small sizes -------------------------------------------- */

/* y tokens wte wpe positions; d = rows of wte, lo = positions */
static void embed_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ TOKENS, d->n, (double)d->d, STORED };
	a[2] = (struct arg){ IN, d->with ? d->lo * d->c : 0, 1, STORED };
	a[3] = (struct arg){ TOKENS, d->with ? d->n : 0, (double)(d->lo ? d->lo : 1), STORED };
	/* the table, of which only the tokens' rows are read */
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

static void *element(struct backend *k, void *p, int64_t at)
{
	return (char *)p + (size_t)at * backend_width(k);
}

/* The last argument, with documents: int32 starts [batch, q_len]. */
enum { STARTS = ARGS - 1 };

static struct attn_shape shape_with(const struct dims *d, void **p)
{
	struct attn_shape s = shape_of(d);
	s.starts = d->documents ? p[STARTS] : NULL;
	s.starts_batch = s.q_len;
	return s;
}

/* Documents of d->n positions, which begin at other positions in each sequence. */
static void put_starts(struct backend *k, const struct dims *d, void *at)
{
	int64_t len = d->s.q_len, count = d->s.batch * len;
	int32_t *starts = malloc((size_t)count * sizeof *starts);
	for (int64_t b = 0; starts && b < d->s.batch; b++)
		for (int64_t t = 0, first = d->n / 8 * (b % 8); t < len; t++) {
			int64_t start = (t + first) / d->n * d->n - first;
			starts[b * len + t] = (int32_t)(start > 0 ? start : 0);
		}
	if (starts)
		backend_put(k, at, starts, (size_t)count * sizeof *starts);
	free(starts);
}

static void attention_fwd_args(const struct dims *d, struct arg *a)
{
	struct attn_shape s = shape_of(d);
	if (d->documents)
		a[STARTS] = (struct arg){ TOKENS, s.batch * s.q_len, 1, STORED };
	a[0] = (struct arg){ SET, s.batch * s.o_batch, 1, STORED };
	a[1] = (struct arg){ SET, s.batch * s.heads * s.q_len, 1, SINGLE };
	a[2] = (struct arg){ IN, s.batch * s.q_batch, 1, STORED };
}

static void attention_fwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	struct attn_shape s = shape_with(d, p);
	o->attention_fwd(k, p[0], p[1], p[2], element(k, p[2], s.heads * s.dim),
			 element(k, p[2], (s.heads + s.kv_heads) * s.dim), &s);
}

static void attention_fwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	(void)o;
	if (d->documents)
		put_starts(k, d, p[STARTS]);
}

static void attention_bwd_args(const struct dims *d, struct arg *a)
{
	attention_fwd_args(d, a);
	a[0].kind = a[1].kind = IN;
	a[3] = (struct arg){ SET, a[2].count, 1, STORED };
	a[4] = (struct arg){ IN, a[0].count, 1, STORED };
}

/* The backward pass needs the results of a forward pass. */
static void attention_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	attention_fwd_prepare(o, k, d, p);
	attention_fwd_run(o, k, d, p);
}

static void attention_bwd_run(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	struct attn_shape s = shape_with(d, p);
	int64_t key = s.heads * s.dim, v = key + s.kv_heads * s.dim;
	o->attention_bwd(k, p[3], element(k, p[3], key), element(k, p[3], v), p[4], p[0], p[1],
			 p[2], element(k, p[2], key), element(k, p[2], v), &s, false);
}

/* y transposed scale x sums; fused: current scaling; with: and the sums of a bias's gradient */
static int64_t words(int64_t bytes)
{
	return (bytes + 3) / 4;
}

enum { SCALE_WORDS = sizeof(struct fp8_scale) / sizeof(int32_t) };

static void fp8_cast_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ CHOICES, words(d->n * d->c), 1, STORED };
	a[1] = (struct arg){ CHOICES, words(round_up_int64(d->n, FP8_ROW) * d->c), 1, STORED };
	a[2] = (struct arg){ CHOICES, SCALE_WORDS, 1, STORED };
	a[3] = (struct arg){ IN, d->n * d->c, 1, STORED };
	if (d->with)
		a[4] = (struct arg){ ADD, d->c, 1, SINGLE };
}

static void set_scale(struct backend *k, void *at)
{
	static const struct fp8_scale scale = { .scale = 32, .inverse = 1 / 32.0f, .largest = 6 };
	backend_put(k, at, &scale, sizeof scale);
}

static void fp8_cast_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)d;
	set_scale(k, p[2]);
}

static void fp8_cast_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	const struct fp8_copies to = { p[0], p[1], p[2], FP8_E4M3, false, p[4], true };
	(d->fused ? o->fp8_cast_current : o->fp8_cast)(k, p[3], d->n, d->c, &to);
}

/* d left right scale; with: fp32, as a weight's gradient. The operands are random bytes; the mask
 * leaves numbers below 2. */
static void fp8_product_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d, 1, d->with ? SINGLE : STORED };
	a[1] = (struct arg){ TOKENS, words(d->n * d->c), 0x1p31, STORED };
	a[2] = (struct arg){ TOKENS, words(d->d * d->c), 0x1p31, STORED };
	a[3] = (struct arg){ CHOICES, SCALE_WORDS, 1, STORED };
}

static void make_numbers(struct backend *k, void *at, int64_t bytes)
{
	uint8_t *here = malloc((size_t)bytes);
	if (here && !backend_get(k, here, at, (size_t)bytes, NULL)) {
		for (int64_t i = 0; i < bytes; i++)
			here[i] &= 0xbf;
		backend_put(k, at, here, (size_t)bytes);
		backend_sync(k, NULL);
	}
	free(here);
}

static void fp8_product_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	(void)o;
	make_numbers(k, p[1], d->n * d->c);
	make_numbers(k, p[2], d->d * d->c);
	set_scale(k, p[3]);
}

static void fp8_product_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	const struct fp8_tensor left = { p[1], p[3], FP8_E4M3, !d->with, 0 },
				right = { p[2], p[3], FP8_E4M3, false, 0 };
	o->fp8_product(k, p[0], &left, &right, NULL, d->with, false, d->n, d->d, d->c);
}

static const struct op_test fp8_cast = { .name = "fp8_cast",
					 .args = fp8_cast_args,
					 .prepare = fp8_cast_prepare,
					 .run = fp8_cast_run },
			    fp8_cast_current = { .name = "fp8_cast_current",
						 .args = fp8_cast_args,
						 .prepare = fp8_cast_prepare,
						 .run = fp8_cast_run },
			    fp8_product = { .name = "fp8_product",
					    .args = fp8_product_args,
					    .prepare = fp8_product_prepare,
					    .run = fp8_product_run };

static const struct op_test embed_fwd = { .name = "embed_fwd",
					  .args = embed_fwd_args,
					  .run = embed_fwd_run },
			    embed_bwd = { .name = "embed_bwd",
					  .args = embed_bwd_args,
					  .run = embed_bwd_run },
			    attention_fwd = { .name = "attention_fwd",
					      .args = attention_fwd_args,
					      .prepare = attention_fwd_prepare,
					      .run = attention_fwd_run },
			    attention_bwd = { .name = "attention_bwd",
					      .args = attention_bwd_args,
					      .prepare = attention_bwd_prepare,
					      .run = attention_bwd_run };

/* --- The table ---------------------------------------------------------------------------- */

/* Forward and backward of a product of n rows. */
static int visit_products(const struct walk *b, const char *model, const char *what, int64_t n,
			  int64_t in, int64_t out, bool bias)
{
	double flops = 2.0 * (double)n * (double)in * (double)out;
	const char *const ops[] = { "linear_fwd", "linear_bwd_input", "linear_bwd_weight" };
	int bad = 0;
	for (int i = 0; i < 3; i++)
		bad += visit(b, &(struct kernel_row){
					model,
					ops[i],
					what,
					NULL,
					{ .n = n, .c = in, .d = out, .with = bias && i != 1 },
					flops,
					0 }) != 0;
	return bad;
}

/* document: the length of documents; 0: without them. */
static int visit_attention(const struct walk *b, const char *model, const char *what, int64_t batch,
			   int64_t seq, int heads, int kv, int dim, int64_t document)
{
	struct dims d = {
		.n = document,
		.documents = document > 0,
		.s = { .batch = batch, .q_len = seq, .heads = heads, .kv_heads = kv, .dim = dim }
	};
	/* the causal half of two products */
	double seen = (double)(document > 0 ? document : seq),
	       flops = 2.0 * (double)(batch * heads) * (double)seq * seen * dim;
	return (visit(b, &(struct kernel_row){ model, NULL, what, &attention_fwd, d, flops, 0 }) !=
		0) +
	       (visit(b, &(struct kernel_row){ model, NULL, what, &attention_bwd, d, 2.5 * flops,
					       0 }) != 0);
}

/* An op that only moves memory. */
static int visit_moved(const struct walk *b, const char *model, const char *name, const char *what,
		       struct dims d)
{
	return visit(b, &(struct kernel_row){ model, name, what, NULL, d, 0, 0 }) != 0;
}

/* A linear in 8 bits: both casts of its input, and the products of both passes. */
static int visit_eight(const struct walk *b, const char *model, const char *what, int64_t n,
		       int64_t in, int64_t out)
{
	const double flops = 2.0 * (double)n * (double)in * (double)out;
	const struct kernel_row rows[] = {
		{ model, NULL, what, &fp8_cast, { .n = n, .c = in }, 0, 0 },
		{ model, NULL, what, &fp8_cast_current, { .n = n, .c = in, .fused = true }, 0, 0 },
		{ model, NULL, what, &fp8_product, { .n = n, .c = in, .d = out }, flops, 0 },
		{ model,
		  NULL,
		  what,
		  &fp8_product,
		  { .n = out, .c = round_up_int64(n, FP8_ROW), .d = in, .with = true },
		  flops,
		  0 },
	};
	int bad = 0;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		bad += visit(b, &rows[i]) != 0;
	return bad;
}

/* A size; with toy, some dozens. */
static int64_t size(const struct walk *b, int64_t n)
{
	return b->toy && n > 64 ? 48 + n % 17 : n;
}

/* A chunk of bf16 logits: the default of batch.logits, in bytes, and the multiple of rows
 * (plan/spec/model/activations.h). */
#define CHUNK ((int64_t)4 << 30)
enum { CHUNK_ROWS = 256 };

static int visit_gpt2(const struct walk *b)
{
	const char *m = "gpt2-50304";
	int64_t n = size(b, 32 * 1024), c = size(b, 768), f = size(b, 3072), v = size(b, 50304),
		seq = size(b, 1024), weights = size(b, 124475904);
	int64_t rows = shape_head_rows(n, 2 * v, CHUNK, CHUNK_ROWS), batch = b->toy ? 1 : 32;
	int bad = visit_products(b, m, "qkv", n, c, 3 * c, true) +
		  visit_products(b, m, "attention's output", n, c, c, true);
	double flops = 2.0 * (double)n * (double)c * (double)f;
	bad += visit(b, &(struct kernel_row){ m,
					      "linear_gelu_fwd",
					      "up, with GELU",
					      NULL,
					      { .n = n, .c = c, .d = f, .with = true },
					      flops,
					      0 }) != 0;
	bad += visit(b, &(struct kernel_row){ m,
					      "linear_gelu_bwd",
					      "down's input, with GELU",
					      NULL,
					      { .n = n, .c = f, .d = c },
					      flops,
					      0 }) != 0;
	bad += visit_products(b, m, "down", n, f, c, true) +
	       visit_products(b, m, "head, a chunk", rows, c, v, false);
	bad += visit_attention(b, m, "12 heads of 64", batch, seq, 12, 12, b->toy ? 16 : 64, 0);
	bad += visit_moved(b, m, "layernorm_fwd", "with the residual",
			   (struct dims){ .n = n, .c = c, .with = true });
	bad += visit_moved(b, m, "layernorm_bwd", "with the residual",
			   (struct dims){ .n = n, .c = c, .with = true });
	bad += visit_moved(b, m, "gelu_fwd", "", (struct dims){ .n = n * f }) +
	       visit_moved(b, m, "gelu_bwd", "", (struct dims){ .n = n * f });
	bad += visit_moved(b, m, "sum_rows", "a bias's gradient",
			   (struct dims){ .n = n, .c = 3 * c });
	bad += visit(b, &(struct kernel_row){ m,
					      NULL,
					      "with a bias's gradient",
					      &fp8_cast,
					      { .n = n, .c = 3 * c, .with = true },
					      0,
					      0 }) != 0;
	bad += visit_moved(b, m, "add", "", (struct dims){ .n = n * c });
	bad += visit_moved(b, m, "xent", "a chunk, with its gradient",
			   (struct dims){ .n = rows, .c = v, .d = v });
	int64_t odd = v - 47; /* 50257: the rows have gaps */
	bad += visit_moved(b, m, "xent", "a chunk of 50257 columns",
			   (struct dims){ .n = rows, .c = odd, .d = odd, .with = true });
	bad += visit(b, &(struct kernel_row){ m,
					      "linear_bwd_weight_strided",
					      "head of 50257 columns, a chunk",
					      NULL,
					      { .n = rows, .c = c, .d = odd, .with = true },
					      2.0 * (double)rows * (double)c * (double)odd,
					      0 }) != 0;
	bad += visit_moved(b, m, "xent_max", "a chunk", (struct dims){ .n = rows, .c = v, .d = v });
	bad += visit_moved(b, m, "xent_exp", "a chunk", (struct dims){ .n = rows, .c = v, .d = v });
	bad += visit_moved(b, m, "xent_grad", "a chunk",
			   (struct dims){ .n = rows, .c = v, .d = v });
	bad += visit(b, &(struct kernel_row){
				m,
				NULL,
				"tokens and positions",
				&embed_fwd,
				{ .n = n, .c = c, .d = v, .lo = (int32_t)seq, .with = true },
				0,
				1 }) != 0;
	bad += visit(b, &(struct kernel_row){
				m,
				NULL,
				"tokens and positions",
				&embed_bwd,
				{ .n = n, .c = c, .d = v, .lo = (int32_t)seq, .with = true },
				0,
				2 }) != 0;
	bad += visit_eight(b, m, "up, in 8 bits", n, c, f);
	bad += visit_moved(b, m, "dropout", "0.1", (struct dims){ .n = n, .c = c, .p = 0.1f });
	bad += visit_moved(b, m, "sqnorm", "all gradients", (struct dims){ .n = weights });
	bad += visit_moved(b, m, "adamw", "all weights, and their bf16",
			   (struct dims){ .n = weights, .with = true });
	return bad;
}

static int visit_llama(const struct walk *b)
{
	const char *m = "llama-1b";
	int64_t n = size(b, 8 * 2048), c = size(b, 2048), f = size(b, 8192), v = size(b, 128256),
		seq = size(b, 2048);
	int64_t rows = shape_head_rows(n, 2 * v, CHUNK, CHUNK_ROWS), batch = b->toy ? 1 : 8;
	int dim = b->toy ? 16 : 64;
	int bad = visit_products(b, m, "qkv", n, c, 48 * dim, false) +
		  visit_products(b, m, "attention's output", n, 32 * dim, c, false);
	bad += visit_products(b, m, "gate and up", n, c, 2 * f, false) +
	       visit_products(b, m, "down", n, f, c, false);
	bad += visit_eight(b, m, "down, in 8 bits", n, f, c);
	bad += visit_products(b, m, "head, a chunk", rows, c, v, false);
	bad += visit_attention(b, m, "32 heads of 64 over 8", batch, seq, 32, 8, dim, 0);
	bad += visit_attention(b, m, "16 heads of 128 over 4", batch, seq, 16, 4, 2 * dim, 0);
	bad += visit_attention(b, m, "32 heads of 64 over 8, documents of a quarter", batch, seq,
			       32, 8, dim, seq / 4);
	bad += visit_moved(b, m, "rmsnorm_fwd", "with the residual",
			   (struct dims){ .n = n, .c = c, .with = true });
	bad += visit_moved(b, m, "rmsnorm_bwd", "with the residual",
			   (struct dims){ .n = n, .c = c, .with = true });
	bad += visit_moved(b, m, "swiglu_fwd", "", (struct dims){ .n = n, .c = f }) +
	       visit_moved(b, m, "swiglu_bwd", "", (struct dims){ .n = n, .c = f });
	struct dims rope = { .n = n, .c = 48 * dim, .d = seq, .s = { .heads = 40, .dim = dim } };
	bad += visit_moved(b, m, "rope_fwd", "q and k", rope) +
	       visit_moved(b, m, "rope_bwd", "q and k", rope);
	return bad;
}

int kernel_rows_visit(bool toy, kernel_row_fn *fn, void *arg)
{
	const struct walk b = { toy, fn, arg };
	return visit_gpt2(&b) + visit_llama(&b);
}
