/* Counts the bytes that the head's products move in a step. On a device the first chunk of a step
 * sets the fp32 gradient of the head's weights, and the others read and write it. The job is one for
 * a device, whose chunks batch.logits sets; the backend is the processor's. */
#include "kernels/backend.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 1 MiB holds 124 rows of its logits: 3 chunks of a micro-batch, of which there are 2. */
enum { VOCAB = 4100, ROW = 4224, TOKENS = 320, MICROS = 2, CHUNKS = 3, HIDDEN = 16, WIDTH = 2 };
static const struct tiny wide = { "llama", FAMILY_LLAMA, 1,      HIDDEN, 2, 2,      8,
				  16,      VOCAB,        TOKENS, TIE_NO, 1, MICROS, 0.1 };

struct moved {
	int64_t weights, gradient, logits, inputs, products;
};

static struct moved counted;
static struct ops real;

/* The head's products are those with its vocabulary. */
static bool is_of_head(int64_t out)
{
	return out == VOCAB || out == ROW;
}

static void count(int64_t n, int64_t in, int64_t row)
{
	counted.products++;
	counted.logits += n * row * WIDTH;
	counted.inputs += n * in * WIDTH;
}

static void fwd(struct backend *k, void *y, const void *x, const void *w, const void *bias,
		int64_t n, int64_t in, int64_t out)
{
	if (is_of_head(out)) {
		count(n, in, out);
		counted.weights += in * out * WIDTH;
	}
	real.linear_fwd(k, y, x, w, bias, n, in, out);
}

static void bwd_input(struct backend *k, void *dx, const void *dy, const void *w, int64_t n,
		      int64_t in, int64_t out)
{
	if (is_of_head(out)) {
		count(n, in, out);
		counted.weights += in * out * WIDTH;
	}
	real.linear_bwd_input(k, dx, dy, w, n, in, out);
}

static void bwd_weight(struct backend *k, float *dw, const void *dy, int64_t row, const void *x,
		       int64_t n, int64_t in, int64_t out, bool add)
{
	if (is_of_head(out)) {
		count(n, in, row);
		counted.gradient += (add ? 2 : 1) * in * out * (int64_t)sizeof *dw;
	}
	real.linear_bwd_weight_strided(k, dw, dy, row, x, n, in, out, add);
}

static void count_ops(struct backend *k)
{
	real = k->ops;
	k->ops.linear_fwd = fwd;
	k->ops.linear_bwd_input = bwd_input;
	k->ops.linear_bwd_weight_strided = bwd_weight;
}

static int count_step(struct comm *world, void *arg, struct err *e)
{
	static const char *const words[] = { "precision.dtype=bf16", "job.device=cuda",
					     "batch.logits=1", NULL };
	struct moved *out = arg;
	struct trainee t;
	struct job job;
	double loss, norm;
	if (trainee_job(&wide, words, &job, e) || trainee_open(&wide, &job, world, "cpu", 1, &t, e))
		return -1;
	count_ops(pipeline_backend(t.engine));
	int rc = trainee_step(&t, 0, &loss, &norm, e);
	*out = counted;
	trainee_close(&t);
	return rc;
}

static void a_step_writes_the_head_s_gradient_in_its_first_chunk(void **state)
{
	const int64_t chunks = CHUNKS * MICROS, rows = TOKENS * MICROS;
	struct moved *m = world_shared(sizeof *m);
	(void)state;
	assert_int_equal(world_run(1, count_step, m), 0);
	assert_int_equal(m->products, 3 * chunks);
	assert_int_equal(m->gradient, (2 * chunks - 1) * 4 * VOCAB * HIDDEN);
	assert_int_equal(m->weights, chunks * 2 * WIDTH * ROW * HIDDEN);
	assert_int_equal(m->logits, 3 * rows * ROW * WIDTH);
	assert_int_equal(m->inputs, 3 * rows * HIDDEN * WIDTH);
	world_unshared(m, sizeof *m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_writes_the_head_s_gradient_in_its_first_chunk),
	};
	return cmocka_run_group_tests_name("bytes that the head moves", tests, NULL, NULL);
}
