/*
 * Compares the backward ops of the specification with finite differences of its forward ops, in
 * float64. test_ops.c compares the other backends with the specification.
 *
 * For random g the loss is the sum of g · outputs. Each input element is moved by ±h. The slope of
 * the loss must equal the gradient of the backward op.
 */
#include "base/philox.h"
#include "kernels/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ops *o;
static struct backend *k;

static double *numbers(int64_t n, uint64_t stream)
{
	double *x = malloc((size_t)n * sizeof *x);
	assert_non_null(x);
	for (int64_t i = 0; i < n; i++) {
		float f;
		philox_normal(philox_key(11, PHILOX_TEST, stream), (uint64_t)i, 1, &f);
		x[i] = (double)f;
	}
	return x;
}

static double *zeros(int64_t n)
{
	double *x = calloc((size_t)n, sizeof *x);
	assert_non_null(x);
	return x;
}

static double dot(const double *a, const double *b, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* reference64 takes doubles where the ops take floats. */
static float *f(double *x)
{
	return (float *)x;
}

/* A forward op as a function of its inputs; p: the arrays of an op and its backward op. */
typedef double loss_fn(double **p);

/* Moves each of the n elements of x, one of p's arrays. */
static void check_slope(loss_fn *loss, double **p, double *x, const double *grad, int64_t n)
{
	const double h = 1e-5;
	for (int64_t i = 0; i < n; i++) {
		double kept = x[i];
		x[i] = kept + h;
		double up = loss(p);
		x[i] = kept - h;
		double down = loss(p);
		x[i] = kept;
		double slope = (up - down) / (2 * h), size = fabs(slope) + fabs(grad[i]);
		if (!(fabs(slope - grad[i]) <= 1e-7 * (1 + size)))
			fail_msg("element %ld: slope %.10g, gradient %.10g", (long)i, slope,
				 grad[i]);
	}
}

static void release(double **p, int n)
{
	for (int i = 0; i < n; i++)
		free(p[i]);
}

enum { N = 5, C = 7, D = 4 };

/* x w bias g y */
static double linear_loss(double **p)
{
	o->linear_fwd(k, p[4], p[0], p[1], p[2], N, C, D);
	return dot(p[3], p[4], N * D);
}

static void linear_has_the_right_gradients(void **state)
{
	(void)state;
	double *p[] = { numbers(N * C, 1), numbers(D * C, 2), numbers(D, 3), numbers(N * D, 4),
			zeros(N * D) };
	double *grad[] = { zeros(N * C), zeros(D * C), zeros(D) };
	o->linear_bwd_input(k, grad[0], p[3], p[1], N, C, D);
	o->linear_bwd_weight(k, f(grad[1]), f(grad[2]), p[3], p[0], N, C, D, false);
	check_slope(linear_loss, p, p[0], grad[0], N * C);
	check_slope(linear_loss, p, p[1], grad[1], D * C);
	check_slope(linear_loss, p, p[2], grad[2], D);
	release(p, 5);
	release(grad, 3);
}

/* x r w bias g g_sum y sum mean rstd */
static double layernorm_loss(double **p)
{
	o->layernorm_fwd(k, p[6], p[7], f(p[8]), f(p[9]), p[0], p[1], p[2], p[3], N, C, 1e-3f);
	return dot(p[4], p[6], N * C) + dot(p[5], p[7], N * C);
}

static double rmsnorm_loss(double **p)
{
	o->rmsnorm_fwd(k, p[6], p[7], f(p[9]), p[0], p[1], p[2], N, C, 1e-3f);
	return dot(p[4], p[6], N * C) + dot(p[5], p[7], N * C);
}

static void norms_have_the_right_gradients(void **state)
{
	bool rms = *state != NULL;
	loss_fn *loss = rms ? rmsnorm_loss : layernorm_loss;
	double *p[] = { numbers(N * C, 1), numbers(N * C, 2), numbers(C, 3), numbers(C, 4),
			numbers(N * C, 5), numbers(N * C, 6), zeros(N * C),  zeros(N * C),
			zeros(N),          zeros(N) };
	double *grad[] = { zeros(N * C), zeros(C), zeros(C) };
	loss(p);
	if (rms)
		o->rmsnorm_bwd(k, grad[0], f(grad[1]), p[4], p[5], p[7], f(p[9]), p[2], N, C, true);
	else
		o->layernorm_bwd(k, grad[0], f(grad[1]), f(grad[2]), p[4], p[5], p[7], f(p[8]),
				 f(p[9]), p[2], N, C, true);
	check_slope(loss, p, p[0], grad[0], N * C);
	check_slope(loss, p, p[1], grad[0], N * C);
	check_slope(loss, p, p[2], grad[1], C);
	if (!rms)
		check_slope(loss, p, p[3], grad[2], C);
	release(p, 10);
	release(grad, 3);
}

/* x g y */
static double gelu_loss(double **p)
{
	o->gelu_fwd(k, p[2], p[0], N * C);
	return dot(p[1], p[2], N * C);
}

static double swiglu_loss(double **p)
{
	o->swiglu_fwd(k, p[2], p[0], N, C);
	return dot(p[1], p[2], N * C);
}

static void activations_have_the_right_gradients(void **state)
{
	(void)state;
	double *p[] = { numbers(N * 2 * C, 1), numbers(N * C, 2), zeros(N * C) };
	double *grad = zeros(N * 2 * C);
	o->gelu_bwd(k, grad, p[1], p[0], N * C);
	check_slope(gelu_loss, p, p[0], grad, N * C);
	o->swiglu_bwd(k, grad, p[1], p[0], N, C);
	check_slope(swiglu_loss, p, p[0], grad, N * 2 * C);
	release(p, 3);
	free(grad);
}

enum { TOKENS = 10, SEQ = 5, HEADS = 6, DIM = 6, ROW = 8 * DIM };
static const struct rope_shape rope = {
	.n = TOKENS, .row = ROW, .heads = HEADS, .dim = DIM, .seq = SEQ
};

/* x g rotated cos sin */
static double rope_loss(double **p)
{
	memcpy(p[2], p[0], TOKENS * ROW * sizeof(double));
	o->rope_fwd(k, p[2], &rope, f(p[3]), f(p[4]));
	return dot(p[1], p[2], TOKENS * ROW);
}

static void rope_has_the_right_gradient(void **state)
{
	(void)state;
	double *p[] = { numbers(TOKENS * ROW, 1), numbers(TOKENS * ROW, 2), zeros(TOKENS * ROW),
			numbers(SEQ * DIM / 2, 3), numbers(SEQ * DIM / 2, 4) };
	double *grad = zeros(TOKENS * ROW);
	memcpy(grad, p[1], TOKENS * ROW * sizeof *grad);
	o->rope_bwd(k, grad, &rope, f(p[3]), f(p[4]));
	check_slope(rope_loss, p, p[0], grad, TOKENS * ROW);
	release(p, 5);
	free(grad);
}

/* Two sequences, with 4 heads over 2 key-value heads of 6. */
static const int32_t starts[2 * 7] = { 0, 0, 0, 3, 3, 3, 6, 2, 2, 4, 4, 4, 4, 4 };
static const int64_t samples[2] = { 12345, 7 };
#define ATTENTION(q, qf, kl, kf) \
	.batch = 2, .q_len = q, .q_first = qf, .k_len = kl, .k_first = kf, .heads = 4, \
	.kv_heads = 2, .dim = 6, .q_row = 24, .q_batch = 24 * q, .kv_row = 12, \
	.kv_batch = 12 * kl, .o_batch = 24 * q
#define DROPPED \
	.drop = { { { 1, 2 } }, 0.4f }, .samples = samples, .heads_all = 8, .head_first = 4, \
	.seq = 10
static const struct attn_shape shapes[] = {
	{ ATTENTION(5, 0, 5, 0) },
	{ ATTENTION(5, 3, 6, 0) },
	{ ATTENTION(4, 2, 5, 4) },
	{ ATTENTION(7, 0, 7, 0), .starts = starts, .starts_batch = 7 },
	{ ATTENTION(6, 1, 5, 0), .starts = starts, .starts_batch = 7, DROPPED },
	{ ATTENTION(5, 0, 5, 0), DROPPED },
};
static const struct attn_shape *shape;

static int64_t out_count(void)
{
	return shape->batch * shape->o_batch;
}

/* q k v g o lse */
static double attention_loss(double **p)
{
	o->attention_fwd(k, p[4], f(p[5]), p[0], p[1], p[2], shape);
	return dot(p[3], p[4], out_count());
}

static void attention_has_the_right_gradient(void **state)
{
	(void)state;
	for (shape = shapes; shape < shapes + sizeof shapes / sizeof *shapes; shape++) {
		int64_t q = out_count(), kv = shape->batch * shape->kv_batch;
		double *p[] = { numbers(q, 1), numbers(kv, 2), numbers(kv, 3),
				numbers(q, 4), zeros(q),       zeros(q) };
		double *grad[] = { numbers(q, 5), numbers(kv, 6), numbers(kv, 7) };
		attention_loss(p);
		o->attention_bwd(k, grad[0], grad[1], grad[2], p[3], p[4], f(p[5]), p[0], p[1],
				 p[2], shape, false);
		check_slope(attention_loss, p, p[0], grad[0], q);
		check_slope(attention_loss, p, p[1], grad[1], kv);
		check_slope(attention_loss, p, p[2], grad[2], kv);
		release(p, 6);
		release(grad, 3);
	}
}

/* The keys of a whole sequence in two pieces. The arrays are q, k and v of the pieces, and g, o and
 * lse of the second. */
enum { FIRST = 3, SECOND = 4, LEN = FIRST + SECOND };
static const struct attn_shape pieces[2] = {
	{ ATTENTION(LEN, 0, FIRST, 0), .starts = starts, .starts_batch = 7, DROPPED },
	{ ATTENTION(LEN, 0, SECOND, FIRST), .starts = starts, .starts_batch = 7, DROPPED },
};

/* q k v k2 v2 g o lse o2 lse2 */
static double pieces_loss(double **p)
{
	o->attention_fwd(k, p[6], f(p[7]), p[0], p[1], p[2], &pieces[0]);
	o->attention_fwd(k, p[8], f(p[9]), p[0], p[3], p[4], &pieces[1]);
	o->attention_merge(k, p[6], f(p[7]), p[8], f(p[9]), &pieces[0]);
	return dot(p[5], p[6], 2 * LEN * 24);
}

static void attention_of_pieces_has_the_right_gradient(void **state)
{
	(void)state;
	enum { Q = 2 * LEN * 24, KV = 2 * FIRST * 12, KV2 = 2 * SECOND * 12 };
	double *p[] = { numbers(Q, 1),   numbers(KV, 2), numbers(KV, 3), numbers(KV2, 4),
			numbers(KV2, 5), numbers(Q, 6),  zeros(Q),       zeros(Q),
			zeros(Q),        zeros(Q) };
	double *grad[] = { zeros(Q), zeros(KV), zeros(KV), zeros(KV2), zeros(KV2) };
	pieces_loss(p);
	o->attention_bwd(k, grad[0], grad[1], grad[2], p[5], p[6], f(p[7]), p[0], p[1], p[2],
			 &pieces[0], false);
	o->attention_bwd(k, grad[0], grad[3], grad[4], p[5], p[6], f(p[7]), p[0], p[3], p[4],
			 &pieces[1], true);
	const int64_t counts[] = { Q, KV, KV, KV2, KV2 };
	for (int i = 0; i < 5; i++)
		check_slope(pieces_loss, p, p[i], grad[i], counts[i]);
	release(p, 10);
	release(grad, 5);
}

enum { ROWS = 6, LO = 2 };
static const int32_t tokens[TOKENS] = { 0, 2, 7, 3, 3, 8, 1, 5, 2, 9 };
static const int32_t positions[TOKENS] = { 0, 1, 2, 3, 0, 1, 4, 4, 2, 0 };

/* wte wpe g y */
static double embed_loss(double **p)
{
	o->embed_fwd(k, p[3], tokens, positions, p[0], p[1], TOKENS, C, LO, LO + ROWS);
	return dot(p[2], p[3], TOKENS * C);
}

static void embeddings_have_the_right_gradients(void **state)
{
	(void)state;
	double *p[] = { numbers(ROWS * C, 1), numbers(SEQ * C, 2), numbers(TOKENS * C, 3),
			zeros(TOKENS * C) };
	double *grad[] = { zeros(ROWS * C), zeros(SEQ * C) };
	o->embed_bwd(k, f(grad[0]), f(grad[1]), p[2], tokens, positions, TOKENS, C, LO, LO + ROWS);
	check_slope(embed_loss, p, p[0], grad[0], ROWS * C);
	check_slope(embed_loss, p, p[1], grad[1], SEQ * C);
	release(p, 4);
	release(grad, 2);
}

static const struct dropout drop = { { { 3, 4 } }, 0.3f };
static const int64_t drop_rows[N] = { 4, 1000000007, 0, 9, 2 };

/* x g y */
static double dropout_loss(double **p)
{
	o->dropout(k, p[2], p[0], drop_rows, N, C, &drop);
	return dot(p[1], p[2], N * C);
}

static void dropout_has_the_right_gradient(void **state)
{
	(void)state;
	double *p[] = { numbers(N * C, 1), numbers(N * C, 2), zeros(N * C) }, *grad = zeros(N * C);
	o->dropout(k, grad, p[1], drop_rows, N, C, &drop);
	check_slope(dropout_loss, p, p[0], grad, N * C);
	release(p, 3);
	free(grad);
}

enum { EXPERTS = 6, TOP = 3 };
static const float z = 0.125f, aux = 0.5f;
static double scale = 0.75;
static bool before;

/* logits g load weights probs lse; the router's losses are added to the loss of the weights */
static double route_loss(double **p)
{
	int32_t chosen[N * TOP];
	double loss = 0;
	o->route_fwd(k, chosen, f(p[3]), f(p[4]), f(p[5]), f(p[0]), N, EXPERTS, TOP, before);
	for (int i = 0; i < N; i++) {
		loss += scale * (double)z * p[5][i] * p[5][i];
		loss += scale * (double)aux * dot(p[2], p[4] + i * EXPERTS, EXPERTS);
	}
	return loss + dot(p[1], p[3], N * TOP);
}

static void the_router_has_the_right_gradient(void **state)
{
	before = *state != NULL;
	double *p[] = { numbers(N * EXPERTS, 1), numbers(N * TOP, 2), numbers(EXPERTS, 3),
			zeros(N * TOP),          zeros(N * EXPERTS),  zeros(N) };
	double *grad = zeros(N * EXPERTS);
	int32_t chosen[N * TOP];
	o->route_fwd(k, chosen, f(p[3]), f(p[4]), f(p[5]), f(p[0]), N, EXPERTS, TOP, before);
	o->route_bwd(k, f(grad), f(p[1]), chosen, f(p[3]), f(p[4]), f(p[5]), f(p[2]), aux, z,
		     f(&scale), N, EXPERTS, TOP, before);
	check_slope(route_loss, p, p[0], grad, N * EXPERTS);
	release(p, 6);
	free(grad);
}

/* Token i is sent to the places at[i]; place j holds the row of token from[j]. */
enum { PLACES = 8, TOP2 = 2 };
static const int64_t at[N * TOP2] = { 3, 0, -1, 7, 6, 1, -1, -1, 2, 5 };
static const int64_t from[PLACES] = { 0, 2, 4, 0, -1, 4, 2, 1 };

/* x weights g y places */
static double combine_loss(double **p)
{
	o->combine_fwd(k, p[3], p[0], at, f(p[1]), N, TOP2, C);
	return dot(p[2], p[3], N * C);
}

static double gather_loss(double **p)
{
	o->gather_rows(k, p[4], p[0], from, PLACES, C);
	return dot(p[2], p[4], PLACES * C);
}

/* The backward op of gather is combine with weights of 1. */
static void rows_have_the_right_gradients(void **state)
{
	(void)state;
	double *p[] = { numbers(PLACES * C, 1), numbers(N * TOP2, 2), numbers(PLACES * C, 3),
			zeros(N * C), zeros(PLACES * C) };
	double *grad[] = { zeros(PLACES * C), zeros(N * TOP2) };
	o->combine_bwd(k, grad[0], f(grad[1]), p[2], p[0], at, f(p[1]), N, TOP2, C);
	check_slope(combine_loss, p, p[0], grad[0], PLACES * C);
	check_slope(combine_loss, p, p[1], grad[1], N * TOP2);
	o->combine_fwd(k, grad[0], p[2], at, NULL, N, TOP2, C);
	check_slope(gather_loss, p, p[0], grad[0], N * C);
	release(p, 5);
	release(grad, 2);
}

enum { V = 9 };
static const int32_t targets[N] = { 0, 8, 3, 3, 5 };

/* logits work max sum target */
static double xent_loss(double **p)
{
	double loss = 0;
	memcpy(p[1], p[0], N * V * sizeof(double));
	o->xent_max(k, f(p[2]), p[1], N, V, V);
	o->xent_exp(k, p[1], f(p[3]), f(p[4]), f(p[2]), targets, N, V, V, 0);
	for (int i = 0; i < N; i++)
		loss += log(p[3][i]) - p[4][i];
	return loss / 2;
}

static void cross_entropy_has_the_right_gradient(void **state)
{
	(void)state;
	double *p[] = { numbers(N * V, 1), zeros(N * V), zeros(N), zeros(N), zeros(N) };
	double grad[N * V], half = 0.5;
	xent_loss(p);
	o->xent_grad(k, p[1], f(p[3]), targets, f(&half), N, V, V, 0);
	memcpy(grad, p[1], sizeof grad);
	check_slope(xent_loss, p, p[0], grad, N * V);
	release(p, 5);
}

static int open_specification(void **state)
{
	(void)state;
	if (backend_open("reference64", 1, &k, NULL) < 0)
		return -1;
	o = backend_ops(k);
	return 0;
}

static int close_specification(void **state)
{
	(void)state;
	backend_close(k);
	return 0;
}

int main(void)
{
	/* clang-format off */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear_has_the_right_gradients),
		{ "layernorm has the slopes it says", norms_have_the_right_gradients, NULL, NULL, NULL },
		{ "rmsnorm has the slopes it says", norms_have_the_right_gradients, NULL, NULL, "rms" },
		cmocka_unit_test(activations_have_the_right_gradients),
		cmocka_unit_test(rope_has_the_right_gradient),
		cmocka_unit_test(attention_has_the_right_gradient),
		cmocka_unit_test(attention_of_pieces_has_the_right_gradient),
		cmocka_unit_test(embeddings_have_the_right_gradients),
		cmocka_unit_test(dropout_has_the_right_gradient),
		{ "the router has the slope it says", the_router_has_the_right_gradient, NULL, NULL, NULL },
		{ "the router with weights before choosing has the slope it says", the_router_has_the_right_gradient, NULL, NULL, "before" },
		cmocka_unit_test(rows_have_the_right_gradients),
		cmocka_unit_test(cross_entropy_has_the_right_gradient),
	};
	/* clang-format on */
	return cmocka_run_group_tests(tests, open_specification, close_specification);
}
