/*
 * The backward ops of the specification against finite differences of its
 * forward ops, in float64. What the other backends compute is held against
 * the specification by test_ops.c.
 *
 * For random g the loss is the sum of g · outputs. Each input element is moved
 * by ±h; the loss's slope must be the gradient that the backward op gives.
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
static struct kern *k;

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

/* plain64 takes doubles where the ops say float. */
static float *f(double *x)
{
	return (float *)x;
}

/* A forward op as a function of what it reads; `p` are the pair's arrays. */
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
			fail_msg("element %ld: slope %.10g, gradient %.10g", (long)i, slope, grad[i]);
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

static void linear_has_the_slopes_it_says(void **state)
{
	(void)state;
	double *p[] = { numbers(N * C, 1), numbers(D * C, 2), numbers(D, 3), numbers(N * D, 4), zeros(N * D) };
	double *grad[] = { zeros(N * C), zeros(D * C), zeros(D) };
	o->linear_bwd_input(k, grad[0], p[3], p[1], N, C, D);
	o->linear_bwd_weight(k, f(grad[1]), f(grad[2]), p[3], p[0], N, C, D);
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

static void norms_have_the_slopes_they_say(void **state)
{
	bool rms = *state != NULL;
	loss_fn *loss = rms ? rmsnorm_loss : layernorm_loss;
	double *p[] = { numbers(N * C, 1), numbers(N * C, 2), numbers(C, 3), numbers(C, 4), numbers(N * C, 5),
			numbers(N * C, 6), zeros(N * C), zeros(N * C), zeros(N), zeros(N) };
	double *grad[] = { zeros(N * C), zeros(C), zeros(C) };
	loss(p);
	if (rms)
		o->rmsnorm_bwd(k, grad[0], f(grad[1]), p[4], p[5], p[7], f(p[9]), p[2], N, C);
	else
		o->layernorm_bwd(k, grad[0], f(grad[1]), f(grad[2]), p[4], p[5], p[7], f(p[8]), f(p[9]), p[2], N, C);
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

static void activations_have_the_slopes_they_say(void **state)
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

static const struct attn_shape shape = { .batch = 2, .seq = 5, .heads = 4, .kv_heads = 2, .dim = 6 };
enum { QKV = 2 * 5 * 8 * 6, OUT = 2 * 5 * 4 * 6, LSE = 2 * 4 * 5 };

/* qkv g rotated */
static double rope_loss(double **p)
{
	memcpy(p[2], p[0], QKV * sizeof(double));
	o->rope_fwd(k, p[2], &shape, 100);
	return dot(p[1], p[2], QKV);
}

static void rope_has_the_slope_it_says(void **state)
{
	(void)state;
	double *p[] = { numbers(QKV, 1), numbers(QKV, 2), zeros(QKV) };
	double *grad = zeros(QKV);
	memcpy(grad, p[1], QKV * sizeof *grad);
	o->rope_bwd(k, grad, &shape, 100);
	check_slope(rope_loss, p, p[0], grad, QKV);
	release(p, 3);
	free(grad);
}

/* qkv g o lse */
static double attention_loss(double **p)
{
	o->attention_fwd(k, p[2], f(p[3]), p[0], &shape);
	return dot(p[1], p[2], OUT);
}

static void attention_has_the_slope_it_says(void **state)
{
	(void)state;
	double *p[] = { numbers(QKV, 1), numbers(OUT, 2), zeros(OUT), zeros(LSE) };
	double *grad = zeros(QKV);
	attention_loss(p);
	o->attention_bwd(k, grad, p[1], p[2], f(p[3]), p[0], &shape);
	check_slope(attention_loss, p, p[0], grad, QKV);
	release(p, 4);
	free(grad);
}

enum { ROWS = 6, LO = 2, BATCH = 2, SEQ = 5 };
static const int32_t tokens[BATCH * SEQ] = { 0, 2, 7, 3, 3, 8, 1, 5, 2, 9 };

/* wte wpe g y */
static double embed_loss(double **p)
{
	o->embed_fwd(k, p[3], tokens, p[0], p[1], BATCH, SEQ, C, LO, LO + ROWS);
	return dot(p[2], p[3], BATCH * SEQ * C);
}

static void embeddings_have_the_slopes_they_say(void **state)
{
	(void)state;
	double *p[] = { numbers(ROWS * C, 1), numbers(SEQ * C, 2), numbers(BATCH * SEQ * C, 3), zeros(BATCH * SEQ * C) };
	double *grad[] = { zeros(ROWS * C), zeros(SEQ * C) };
	o->embed_bwd(k, f(grad[0]), f(grad[1]), p[2], tokens, BATCH, SEQ, C, LO, LO + ROWS);
	check_slope(embed_loss, p, p[0], grad[0], ROWS * C);
	check_slope(embed_loss, p, p[1], grad[1], SEQ * C);
	release(p, 4);
	release(grad, 2);
}

enum { V = 9 };
static const int32_t targets[N] = { 0, 8, 3, 3, 5 };

/* logits work max sum target */
static double xent_loss(double **p)
{
	double loss = 0;
	memcpy(p[1], p[0], N * V * sizeof(double));
	o->xent_max(k, f(p[2]), p[1], N, V);
	o->xent_exp(k, p[1], f(p[3]), f(p[4]), f(p[2]), targets, N, V, 0);
	for (int i = 0; i < N; i++)
		loss += log(p[3][i]) - p[4][i];
	return loss / 2;
}

static void cross_entropy_has_the_slope_it_says(void **state)
{
	(void)state;
	double *p[] = { numbers(N * V, 1), zeros(N * V), zeros(N), zeros(N), zeros(N) };
	double grad[N * V];
	xent_loss(p);
	o->xent_grad(k, p[1], f(p[3]), targets, 0.5f, N, V, 0);
	memcpy(grad, p[1], sizeof grad);
	check_slope(xent_loss, p, p[0], grad, N * V);
	release(p, 5);
}

static int open_specification(void **state)
{
	(void)state;
	if (kern_open("plain64", 1, &k, NULL) < 0)
		return -1;
	o = kern_ops(k);
	return 0;
}

static int close_specification(void **state)
{
	(void)state;
	kern_close(k);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear_has_the_slopes_it_says),
		{ "layernorm has the slopes it says", norms_have_the_slopes_they_say, NULL, NULL, NULL },
		{ "rmsnorm has the slopes it says", norms_have_the_slopes_they_say, NULL, NULL, "rms" },
		cmocka_unit_test(activations_have_the_slopes_they_say),
		cmocka_unit_test(rope_has_the_slope_it_says),
		cmocka_unit_test(attention_has_the_slope_it_says),
		cmocka_unit_test(embeddings_have_the_slopes_they_say),
		cmocka_unit_test(cross_entropy_has_the_slope_it_says),
	};
	return cmocka_run_group_tests(tests, open_specification, close_specification);
}
