#include "agent/tools/bench_rig.h"

#include "base/choices.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 4096 };

/* The next n elements of an arena, in the storage type or fp32. */
static void *next_array(struct bench_rig *r, enum bench_arena a, int64_t n)
{
	size_t width = a < BENCH_INPUT_FP32 ? (size_t)r->width : sizeof(float),
	       size = ((size_t)n * width + ALIGN - 1) / ALIGN * ALIGN;
	if (r->at[a] + size > r->arena)
		r->at[a] = 0;
	void *p = r->arenas[a] + r->at[a];
	r->at[a] += size;
	return p;
}

static const void *in(struct bench_rig *r, int64_t n)
{
	return next_array(r, BENCH_INPUT, n);
}

static void *out(struct bench_rig *r, int64_t n)
{
	return next_array(r, BENCH_OUTPUT, n);
}

static const float *in32(struct bench_rig *r, int64_t n)
{
	return next_array(r, BENCH_INPUT_FP32, n);
}

static float *out32(struct bench_rig *r, int64_t n)
{
	return next_array(r, BENCH_OUTPUT_FP32, n);
}

/* --- The operations ----------------------------------------------------------------------- */

static double run_product_fwd(struct bench_rig *r, const int64_t *d)
{
	r->ops->linear_fwd(r->backend, out(r, d[0] * d[2]), in(r, d[0] * d[1]), in(r, d[1] * d[2]),
			   NULL, d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static double run_product_input(struct bench_rig *r, const int64_t *d)
{
	r->ops->linear_bwd_input(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[2]),
				 in(r, d[1] * d[2]), d[0], d[1], d[2]);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static double run_product_weight(struct bench_rig *r, const int64_t *d)
{
	r->ops->linear_bwd_weight(r->backend, out32(r, d[1] * d[2]), NULL, in(r, d[0] * d[2]),
				  in(r, d[0] * d[1]), d[0], d[1], d[2], !r->sets);
	return 2.0 * (double)(d[0] * d[1] * d[2]);
}

static struct attn_shape attention_of(const int64_t *d)
{
	int64_t row = 3 * d[0] * d[1];
	return (struct attn_shape){
		.batch = 1,
		.q_len = d[2],
		.k_len = d[2],
		.heads = (int)d[0],
		.kv_heads = (int)d[0],
		.dim = (int)d[1],
		.q_row = row,
		.q_batch = row * d[2],
		.kv_row = row,
		.kv_batch = row * d[2],
		.o_batch = d[0] * d[1] * d[2],
		.heads_all = d[0],
		.seq = d[2],
	};
}

static double attention_flops(const int64_t *d)
{
	return 4.0 * (double)(d[0] * d[1]) * (double)(d[2] * (d[2] + 1) / 2);
}

static double run_attention_fwd(struct bench_rig *r, const int64_t *d)
{
	struct attn_shape s = attention_of(d);
	int64_t part = d[0] * d[1] * r->width;
	const char *qkv = in(r, s.q_batch);
	r->ops->attention_fwd(r->backend, out(r, s.o_batch), out32(r, d[0] * d[2]), qkv, qkv + part,
			      qkv + 2 * part, &s);
	return attention_flops(d);
}

static double run_attention_bwd(struct bench_rig *r, const int64_t *d)
{
	struct attn_shape s = attention_of(d);
	int64_t part = d[0] * d[1] * r->width;
	const char *qkv = in(r, s.q_batch);
	char *grad = out(r, s.q_batch);
	r->ops->attention_bwd(r->backend, grad, grad + part, grad + 2 * part, in(r, s.o_batch),
			      in(r, s.o_batch), in32(r, d[0] * d[2]), qkv, qkv + part,
			      qkv + 2 * part, &s, false);
	return 2.5 * attention_flops(d);
}

static double bytes_moved(const struct bench_rig *r, const int64_t *d, double tensors)
{
	return tensors * (double)(r->width * d[0] * d[1]);
}

static double run_norm_fwd(struct bench_rig *r, const int64_t *d)
{
	int64_t n = d[0] * d[1];
	r->ops->rmsnorm_fwd(r->backend, out(r, n), out(r, n), out32(r, d[0]), in(r, n), in(r, n),
			    in(r, d[1]), d[0], d[1], 1e-5f);
	return bytes_moved(r, d, 4);
}

static double run_norm_bwd(struct bench_rig *r, const int64_t *d)
{
	int64_t n = d[0] * d[1];
	r->ops->rmsnorm_bwd(r->backend, out(r, n), out32(r, d[1]), in(r, n), in(r, n), in(r, n),
			    in32(r, d[0]), in(r, d[1]), d[0], d[1], true);
	return bytes_moved(r, d, 4);
}

static double run_gelu_fwd(struct bench_rig *r, const int64_t *d)
{
	r->ops->gelu_fwd(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[1]), d[0] * d[1]);
	return bytes_moved(r, d, 2);
}

static double run_gelu_bwd(struct bench_rig *r, const int64_t *d)
{
	r->ops->gelu_bwd(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[1]), in(r, d[0] * d[1]),
			 d[0] * d[1]);
	return bytes_moved(r, d, 3);
}

static double run_swiglu_fwd(struct bench_rig *r, const int64_t *d)
{
	r->ops->swiglu_fwd(r->backend, out(r, d[0] * d[1]), in(r, 2 * d[0] * d[1]), d[0], d[1]);
	return bytes_moved(r, d, 3);
}

static double run_swiglu_bwd(struct bench_rig *r, const int64_t *d)
{
	r->ops->swiglu_bwd(r->backend, out(r, 2 * d[0] * d[1]), in(r, d[0] * d[1]),
			   in(r, 2 * d[0] * d[1]), d[0], d[1]);
	return bytes_moved(r, d, 5);
}

static double run_rope(struct bench_rig *r, const int64_t *d)
{
	const struct rope_shape s = { .n = d[0],
				      .row = d[1],
				      .heads = (int)(d[1] / BENCH_ROPE_DIM),
				      .dim = BENCH_ROPE_DIM,
				      .seq = d[0] };
	r->ops->rope_fwd(r->backend, out(r, d[0] * d[1]), &s, r->cos, r->sin);
	return bytes_moved(r, d, 2);
}

static double run_xent(struct bench_rig *r, const int64_t *d)
{
	void *logits = out(r, d[0] * d[1]);
	float *max = out32(r, d[0]), *sum = out32(r, d[0]), *target = out32(r, d[0]);
	r->ops->xent_max(r->backend, max, logits, d[0], d[1], d[1]);
	r->ops->xent_exp(r->backend, logits, sum, target, max, r->ids, d[0], d[1], d[1], 0);
	r->ops->xent_grad(r->backend, logits, sum, r->ids, &r->numbers->logit_scale, d[0], d[1],
			  d[1], 0);
	return bytes_moved(r, d, 5);
}

static double run_sum_rows(struct bench_rig *r, const int64_t *d)
{
	r->ops->sum_rows(r->backend, out32(r, d[1]), in(r, d[0] * d[1]), d[0], d[1], true);
	return bytes_moved(r, d, 1);
}

static double run_copies(struct bench_rig *r, const int64_t *d)
{
	r->ops->copy_rows(r->backend, out(r, d[0] * d[1]), d[1], in(r, d[0] * d[1]), d[1], d[0],
			  d[1]);
	r->ops->add(r->backend, out(r, d[0] * d[1]), in(r, d[0] * d[1]), d[0] * d[1]);
	return bytes_moved(r, d, 5);
}

/* Does what a training step does with each parameter. */
static double run_optimizer(struct bench_rig *r, const int64_t *d)
{
	const struct adamw_args a = { .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f };
	int64_t n = d[0] * d[1];
	const float *grad = in32(r, n);
	float *p = out32(r, n);
	const struct update u = { .p = p,
				  .g = grad,
				  .m = out32(r, n),
				  .v = out32(r, n),
				  .count = n,
				  .weight_decay = 0.1f,
				  .stored = r->width < (int64_t)sizeof *p ? out(r, n) : NULL };
	backend_zero(r->backend, out32(r, n), (size_t)n * sizeof *p);
	r->ops->sqnorm(r->backend, r->sum, grad, n);
	r->ops->adamw(r->backend, &u, 1, &a, r->numbers);
	return 28.0 * (double)n;
}

static bench_run_fn *const rows[RATE_CLASSES] = {
	[RATE_PRODUCT_FWD] = run_product_fwd,
	[RATE_PRODUCT_INPUT] = run_product_input,
	[RATE_PRODUCT_WEIGHT] = run_product_weight,
	[RATE_ATTENTION_FWD] = run_attention_fwd,
	[RATE_ATTENTION_BWD] = run_attention_bwd,
	[RATE_NORM_FWD] = run_norm_fwd,
	[RATE_NORM_BWD] = run_norm_bwd,
	[RATE_GELU_FWD] = run_gelu_fwd,
	[RATE_GELU_BWD] = run_gelu_bwd,
	[RATE_SWIGLU_FWD] = run_swiglu_fwd,
	[RATE_SWIGLU_BWD] = run_swiglu_bwd,
	[RATE_ROPE] = run_rope,
	[RATE_XENT] = run_xent,
	[RATE_SUM_ROWS] = run_sum_rows,
	[RATE_MOVED] = run_copies,
	[RATE_OPTIMIZER] = run_optimizer,
};

bench_run_fn *bench_rig_run(enum rate_class class)
{
	return rows[class];
}

/* The next n of the 8-bit numbers, which follow one another as those of the inputs do. */
static struct fp8_tensor eight(struct bench_rig *r, int64_t n)
{
	size_t all = r->arena / (size_t)r->width, at = r->at[BENCH_INPUT] / (size_t)r->width;
	in(r, n);
	return (struct fp8_tensor){ r->eight + (at + (size_t)n <= all ? at : 0), r->scale, FP8_E4M3,
				    false, 0 };
}

double bench_rig_eight(struct bench_rig *r, enum rate_class form, const int64_t *d)
{
	int64_t n = d[0], c = d[1], f = d[2];
	bool weight = form == RATE_PRODUCT_WEIGHT;
	int64_t rows_of = weight ? f : n, columns = form == RATE_PRODUCT_FWD ? f : c,
		depth = weight                     ? n
			: form == RATE_PRODUCT_FWD ? c
						   : f;
	struct fp8_tensor left = eight(r, rows_of * depth), right = eight(r, columns * depth);
	left.fast = form == RATE_PRODUCT_FWD; /* as linears do */
	void *y = weight ? (void *)out32(r, rows_of * columns) : out(r, rows_of * columns);
	r->ops->fp8_product(r->backend, y, &left, &right, NULL, weight, weight, rows_of, columns,
			    depth);
	return 2.0 * (double)(n * c * f);
}

/* --- The arrays --------------------------------------------------------------------------- */

static int no_memory(struct err *e)
{
	return err_set(e, ERR_NOMEM, "no memory to measure operations; close other programs");
}

/* Fills an array of the backend with a pattern of `most` bytes. */
static void repeat(struct bench_rig *r, char *to, size_t bytes, const void *from, size_t most)
{
	for (size_t at = 0; at < bytes; at += most)
		backend_put(r->backend, to + at, from, bytes - at < most ? bytes - at : most);
}

/* The same numbers in fp32 and in the storage type. */
static int fill_arenas(struct bench_rig *r, const struct bench_rig_setup *s, struct err *e)
{
	enum { PATTERN = 1 << 20 };
	size_t most = r->arena < PATTERN * sizeof(float) ? r->arena : PATTERN * sizeof(float);
	float *x = malloc(most);
	if (!x)
		return no_memory(e);
	s->fill(x, (int64_t)(most / sizeof *x));
	for (int a = 0; a < BENCH_ARENAS; a++)
		repeat(r, r->arenas[a], r->arena, x, most);
	for (int a = 0; a < BENCH_INPUT_FP32 && r->width < (int64_t)sizeof *x; a++)
		for (size_t at = 0; at < r->arena; at += r->arena / 2)
			r->ops->fp32_to_storage(r->backend, r->arenas[a] + at,
						(const float *)r->arenas[BENCH_INPUT_FP32],
						(int64_t)(r->arena / 2) / r->width, NULL, 0);
	free(x);
	return backend_sync(r->backend, e);
}

static int fill_tables(struct bench_rig *r, struct err *e)
{
	static const struct step_numbers numbers = {
		.step = 9, .lr = 1e-3f, .grad_scale = 1, .logit_scale = 0.1f
	};
	size_t angles = (size_t)r->tokens * BENCH_ROPE_DIM / 2;
	int32_t *ids = malloc((size_t)r->tokens * sizeof *ids);
	float *ones = malloc(angles * sizeof *ones);
	r->ids = backend_alloc(r->backend, (size_t)r->tokens * sizeof *ids);
	r->cos = backend_alloc(r->backend, angles * sizeof *ones);
	r->sin = backend_alloc(r->backend, angles * sizeof *ones);
	r->sum = backend_alloc(r->backend, sizeof *r->sum);
	r->numbers = backend_alloc(r->backend, sizeof *r->numbers);
	bool good = ids && ones && r->ids && r->cos && r->sin && r->sum && r->numbers;
	for (int64_t i = 0; good && i < r->tokens; i++)
		ids[i] = (int32_t)(i * 31 % 500);
	for (size_t i = 0; good && i < angles; i++)
		ones[i] = 1;
	if (good) {
		backend_put(r->backend, r->ids, ids, (size_t)r->tokens * sizeof *ids);
		backend_put(r->backend, r->cos, ones, angles * sizeof *ones);
		backend_put(r->backend, r->numbers, &numbers, sizeof numbers);
	}
	free(ids);
	free(ones);
	return good ? 0 : no_memory(e);
}

static int fill_eight(struct bench_rig *r, struct err *e)
{
	enum { ROW = 256 };
	static const struct fp8_scale one = { .scale = 1, .inverse = 1 };
	int64_t all = (int64_t)r->arena / r->width;
	r->eight = backend_alloc(r->backend, (size_t)all);
	r->scale = backend_alloc(r->backend, sizeof one);
	if (!r->eight || !r->scale)
		return no_memory(e);
	backend_put(r->backend, r->scale, &one, sizeof one);
	r->ops->fp8_cast(
		r->backend, r->arenas[BENCH_INPUT], all / ROW, ROW,
		&(struct fp8_copies){ .at = r->eight, .scale = r->scale, .format = FP8_E4M3 });
	return backend_sync(r->backend, e);
}

int bench_rig_open(struct bench_rig *r, const struct bench_rig_setup *s, struct err *e)
{
	if (backend_open_device(s->backend, s->threads, s->device, &r->backend, e))
		return -1;
	struct choices *choices = backend_choices(r->backend);
	if (choices)
		choices_set_mode(choices, CHOICES_MEASURED);
	r->ops = backend_ops(r->backend);
	r->width = (int64_t)backend_width(r->backend);
	r->arena = s->arena;
	r->tokens = s->tokens;
	for (int i = 0; i < BENCH_ARENAS; i++)
		if (!(r->arenas[i] = backend_alloc(r->backend, r->arena)))
			return no_memory(e);
	if (fill_arenas(r, s, e) || fill_tables(r, e))
		return -1;
	return s->eight ? fill_eight(r, e) : 0;
}

void bench_rig_close(struct bench_rig *r)
{
	void *const arrays[] = { r->ids, r->cos, r->sin, r->sum, r->numbers, r->eight, r->scale };
	for (int i = 0; i < BENCH_ARENAS; i++)
		if (r->arenas[i])
			backend_free(r->backend, r->arenas[i]);
	for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
		if (arrays[i])
			backend_free(r->backend, arrays[i]);
	backend_close(r->backend);
	memset(r, 0, sizeof *r);
}
