/* Counts the casts of a step in 8 bits, and the bytes that they move, as launches of a device:
 * there, an op that finds the largest number of its result does so while it stores the result.
 * The formulas below are the specification; with the dimensions of another model they give its
 * counts. */
#include "kernels/backend.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny llama = { "llama", FAMILY_LLAMA, 3,  32,     4, 2, 8,
				   48,      37,           16, TIE_NO, 2, 8, 0.1 };
static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 2,  32,      4, 4, 8,
				  64,     37,          16, TIE_YES, 2, 4, 0.1 };

static const struct tiny odd = { "24 tokens", FAMILY_LLAMA, 2,  32,     4, 2, 8,
				 48,          37,           12, TIE_NO, 2, 4, 0.1 };

struct counts {
	int64_t casts, bytes, slow;
	/* passes that only read gradients, which are in e5m2 (hybrid) */
	int64_t gradient_reads;
	int64_t sums; /* of columns, besides those that casts compute */
	/* sums that casts set, that they add to a bias's gradient, and that are added to it later */
	int64_t sets, adds, later;
	/* of ops that also cast: bytes of the copies, and elements that are not stored otherwise */
	int64_t copies, unstored;
	int64_t fast, exact,
		gradients; /* products: forward, of inputs' and of weights' gradients */
};

static struct counts counted;
static struct ops real;

static void count_sums(const struct fp8_copies *to)
{
	if (to->sums)
		*(to->add ? &counted.adds : &counted.sets) += 1;
}

/* The sums inside a cast belong to its host form. */
static void count_cast(const struct counts *before, const struct fp8_copies *to, int64_t elements)
{
	counted = *before;
	counted.casts++;
	counted.bytes += elements * (2 + (to->at ? 1 : 0) + (to->transposed ? 1 : 0));
	counted.gradient_reads += to->format == FP8_E5M2;
	count_sums(to);
}

static void cast(struct backend *k, const void *x, int64_t n, int64_t c,
		 const struct fp8_copies *to)
{
	const struct counts before = counted;
	real.fp8_cast(k, x, n, c, to);
	count_cast(&before, to, n * c);
}

static void cast_current(struct backend *k, const void *x, int64_t n, int64_t c,
			 const struct fp8_copies *to)
{
	const struct counts before = counted;
	real.fp8_cast_current(k, x, n, c, to);
	count_cast(&before, to, n * c);
}

static void accumulate(struct backend *k, float *y, const float *x, int64_t count)
{
	counted.later++;
	real.accumulate(k, y, x, count);
}

static void sum_rows(struct backend *k, float *out, const void *x, int64_t n, int64_t c, bool add)
{
	counted.sums++;
	real.sum_rows(k, out, x, n, c, add);
}

/* Whether cuBLASLt has no product with such an operand. */
static bool is_slow(const struct fp8_tensor *t, int64_t depth)
{
	return depth % FP8_ROW || (t->row && t->row != depth);
}

static void product(struct backend *k, void *d, const struct fp8_tensor *left,
		    const struct fp8_tensor *right, const void *bias, bool single, bool add,
		    int64_t m, int64_t n, int64_t depth)
{
	counted.slow += is_slow(left, depth) || is_slow(right, depth);
	*(left->fast ? &counted.fast : single ? &counted.gradients : &counted.exact) += 1;
	real.fp8_product(k, d, left, right, bias, single, add, m, n, depth);
}

/* The casts inside these ops belong to their composed form. A device writes the copies and not the
 * tensor itself, if nobody reads it. So here it is destroyed, too: then losses become NaN if somebody
 * does. */
static void count_fused(const struct counts *before, void *y, const struct fp8_copies *to,
			int64_t elements)
{
	counted = *before;
	counted.copies += elements * ((to->at ? 1 : 0) + (to->transposed ? 1 : 0));
	counted.unstored += to->only ? elements : 0;
	count_sums(to);
	if (to->only)
		memset(y, 0xff, (size_t)elements * 2);
}

#define FUSED(op, parameters, elements, k, y, ...) \
	static void op parameters \
	{ \
		struct counts before = counted; \
		real.op(k, y, __VA_ARGS__); \
		count_fused(&before, y, to, elements); \
	}

FUSED(rmsnorm_fwd_cast,
      (struct backend * k, void *y, void *sum, float *rstd, const void *x, const void *r,
       const void *w, int64_t n, int64_t c, float eps, const struct fp8_copies *to),
      n *c, k, y, sum, rstd, x, r, w, n, c, eps, to)
FUSED(layernorm_fwd_cast,
      (struct backend * k, void *y, void *sum, float *mean, float *rstd, const void *x,
       const void *r, const void *w, const void *bias, int64_t n, int64_t c, float eps,
       const struct fp8_copies *to),
      n *c, k, y, sum, mean, rstd, x, r, w, bias, n, c, eps, to)
FUSED(rmsnorm_bwd_cast,
      (struct backend * k, void *dx, float *dw, const void *dy, const void *dres, const void *x,
       const float *rstd, const void *w, int64_t n, int64_t c, bool add,
       const struct fp8_copies *to),
      n *c, k, dx, dw, dy, dres, x, rstd, w, n, c, add, to)
FUSED(layernorm_bwd_cast,
      (struct backend * k, void *dx, float *dw, float *dbias, const void *dy, const void *dres,
       const void *x, const float *mean, const float *rstd, const void *w, int64_t n, int64_t c,
       bool add, const struct fp8_copies *to),
      n *c, k, dx, dw, dbias, dy, dres, x, mean, rstd, w, n, c, add, to)
FUSED(gelu_fwd_cast,
      (struct backend * k, void *y, const void *x, int64_t n, int64_t c,
       const struct fp8_copies *to),
      n *c, k, y, x, n, c, to)
FUSED(gelu_bwd_cast,
      (struct backend * k, void *dx, const void *dy, const void *x, int64_t n, int64_t c,
       const struct fp8_copies *to),
      n *c, k, dx, dy, x, n, c, to)
FUSED(swiglu_fwd_cast,
      (struct backend * k, void *y, const void *gu, int64_t n, int64_t f,
       const struct fp8_copies *to),
      n *f, k, y, gu, n, f, to)
FUSED(swiglu_bwd_cast,
      (struct backend * k, void *dgu, const void *dy, const void *gu, int64_t n, int64_t f,
       const struct fp8_copies *to),
      2 * n * f, k, dgu, dy, gu, n, f, to)

static void count_ops(struct backend *k)
{
	real = k->ops;
	k->ops.fp8_cast = cast;
	k->ops.fp8_cast_current = cast_current;
	k->ops.accumulate = accumulate;
	k->ops.sum_rows = sum_rows;
	k->ops.fp8_product = product;
	k->ops.rmsnorm_fwd_cast = rmsnorm_fwd_cast;
	k->ops.layernorm_fwd_cast = layernorm_fwd_cast;
	k->ops.rmsnorm_bwd_cast = rmsnorm_bwd_cast;
	k->ops.layernorm_bwd_cast = layernorm_bwd_cast;
	k->ops.gelu_fwd_cast = gelu_fwd_cast;
	k->ops.gelu_bwd_cast = gelu_bwd_cast;
	k->ops.swiglu_fwd_cast = swiglu_fwd_cast;
	k->ops.swiglu_bwd_cast = swiglu_bwd_cast;
}

struct task {
	const struct tiny *model;
	const char *words[5];
	struct counts *step, *evaluation; /* shared with the rank */
};

enum { STEP, EVALUATION, RESULTS };

static int count_step(struct comm *world, void *arg, struct err *e)
{
	struct task *t = arg;
	struct trainee trainee;
	struct job job;
	double loss, norm;
	if (trainee_job(t->model, t->words, &job, e) ||
	    trainee_open(t->model, &job, world, "cpu", 1, &trainee, e))
		return -1;
	int rc = trainee_step(&trainee, 0, &loss, &norm, e);
	count_ops(pipeline_backend(trainee.engine));
	counted = (struct counts){ 0 };
	if (!rc)
		rc = trainee_step(&trainee, 1, &loss, &norm, e);
	if (!rc && !(isfinite(loss) && isfinite(norm)))
		rc = err_set(e, ERR_CORRUPT, "an op reads a tensor that is not stored");
	*t->step = counted;
	for (int i = 0; i < 2 && !rc; i++) {
		counted = (struct counts){ 0 };
		rc = trainee_eval(&trainee, 1, &loss, e);
	}
	*t->evaluation = counted;
	trainee_close(&trainee);
	return rc;
}

/* Sets `out` to the counts of the second step of a training, and of the second evaluation after
 * it. */
static void count_with(const struct tiny *model, const char *fp8, const char *more,
		       const char *recompute, struct counts out[RESULTS])
{
	struct counts *shared = world_shared(RESULTS * sizeof *shared);
	struct task t = { model,
			  { "precision.dtype=bf16", fp8, more, recompute },
			  &shared[STEP],
			  &shared[EVALUATION] };
	assert_int_equal(world_run(1, count_step, &t), 0);
	memcpy(out, shared, RESULTS * sizeof *shared);
	world_unshared(shared, RESULTS * sizeof *shared);
}

static void count(const struct tiny *model, const char *fp8, const char *more,
		  struct counts out[RESULTS])
{
	count_with(model, fp8, more, NULL, out);
}

struct sizes {
	int64_t layers, micros, n, c, q, w, u, f;
	int64_t weights; /* of a layer's four linears */
};

static struct sizes sizes_of(const struct tiny *t)
{
	struct sizes s = { .layers = t->layers,
			   .micros = t->global / t->micro,
			   .n = t->micro * t->seq,
			   .c = t->hidden,
			   .q = t->heads * t->head_dim,
			   .w = (t->heads + 2 * t->kv_heads) * t->head_dim,
			   .u = t->family == FAMILY_LLAMA ? 2 * t->ffn : t->ffn,
			   .f = t->ffn };
	s.weights = s.c * (s.w + s.q + s.u + s.f);
	return s;
}

/* Bytes of a micro-batch in a layer. Forward: q, k and v, up and down read their input and write
 * two copies; the input of o is read twice, and one copy is written. Backward: gradients have two
 * copies; that of q, k and v is read twice, others once, because the activation or a norm found the
 * largest number; the input of o is cast again, transposed. */
static int64_t layer_bytes(const struct sizes *s)
{
	int64_t forward = 4 * (s->c + s->c + s->f) + 5 * s->q,
		backward = 4 * (s->u + s->c + s->c) + 6 * s->w + 3 * s->q;
	return s->n * (forward + backward);
}

enum { GRADIENT_READS = 2 + 3, LAYER_CASTS = 3 + 2 + GRADIENT_READS + 1, WEIGHT_CASTS = 4 * 2 };

/* The first micro-batch sets a bias's gradient, later ones add to it. ahead: the norms sum the
 * gradients of o and down, which are added later. */
static void check_biases(const struct tiny *model, const struct sizes *s, const struct counts *step,
			 bool ahead)
{
	int64_t biases = model->family == FAMILY_GPT2 ? 4 * s->layers : 0,
		norms = ahead ? biases / 2 : 0;
	assert_int_equal(step->sums, 0);
	assert_int_equal(step->sets, biases - norms + norms * s->micros);
	assert_int_equal(step->adds, (biases - norms) * (s->micros - 1));
	assert_int_equal(step->later, norms * (s->micros - 1));
}

static void check_model(const struct tiny *model)
{
	const struct sizes s = sizes_of(model);
	struct counts all[RESULTS], step;
	count(model, "precision.fp8=hybrid", NULL, all);
	step = all[STEP];
	int64_t passes = s.layers * s.micros;
	/* without copies that are kept: 5 B of each operand of each product */
	int64_t before = passes *
			 (s.n * (10 * (s.c + s.q + s.c + s.f) + 6 * (s.w + s.c + s.u + s.c)) +
			  10 * s.weights);
	printf("%s: %lld casts, %lld bytes a step (with a cast for each product: %lld, %lld)\n",
	       model->name, (long long)step.casts, (long long)step.bytes,
	       (long long)(passes * 4 * 5 * 2), (long long)before);
	assert_int_equal(step.casts, passes * LAYER_CASTS + s.layers * WEIGHT_CASTS);
	assert_int_equal(step.bytes, passes * layer_bytes(&s) + s.layers * 6 * s.weights);
	assert_int_equal(step.gradient_reads, passes * GRADIENT_READS);
	check_biases(model, &s, &step, false);
	assert_int_equal(step.fast, passes * 4);
	assert_int_equal(step.exact, passes * 4);
	assert_int_equal(step.gradients, passes * 4);
}

static void a_step_casts_each_tensor_as_rarely_as_possible(void **state)
{
	(void)state;
	check_model(&llama);
	check_model(&gpt2);
}

static void products_are_those_of_the_library_for_any_number_of_tokens(void **state)
{
	(void)state;
	struct counts all[RESULTS];
	assert_true(odd.micro * odd.seq % FP8_ROW == 8);
	count(&odd, "precision.fp8=hybrid", NULL, all);
	assert_int_equal(all[STEP].gradients, odd.layers * (odd.global / odd.micro) * 4);
	assert_int_equal(all[STEP].slow, 0);
}

/* The first evaluation after a step casts the new weights, the second one does not, and neither
 * writes transposed copies of inputs. */
static void an_evaluation_casts_only_inputs(void **state)
{
	(void)state;
	const struct sizes s = sizes_of(&llama);
	struct counts all[RESULTS];
	count(&llama, "precision.fp8=e4m3", NULL, all);
	int64_t passes = s.layers * s.micros;
	assert_int_equal(all[EVALUATION].casts, passes * 5);
	assert_int_equal(all[EVALUATION].bytes, passes * s.n * (3 * (s.c + s.c + s.f) + 5 * s.q));
}

/* With delayed scaling the norms, the activation and their gradients write the copies of what they
 * compute. One cast reads each of the other tensors once: the input of o, again transposed in the
 * backward pass, and the gradient of q, k and v. Nothing else reads the gradients, and a tensor that
 * has copies is not stored. The stream's gradient is, because it goes on. */
static void check_delayed(const struct tiny *model)
{
	const struct sizes s = sizes_of(model);
	struct counts all[RESULTS];
	count(model, "precision.fp8=hybrid", "precision.fp8_scaling=delayed", all);
	int64_t passes = s.layers * s.micros, casts = 1 + 1 + 1,
		bytes = s.n * (4 * s.w + 2 * 3 * s.q);
	printf("%s, delayed: %lld casts, %lld bytes a step\n", model->name,
	       (long long)all[STEP].casts, (long long)all[STEP].bytes);
	assert_int_equal(all[STEP].casts, passes * casts + s.layers * WEIGHT_CASTS);
	assert_int_equal(all[STEP].bytes, passes * bytes + s.layers * 6 * s.weights);
	assert_int_equal(all[STEP].copies, passes * s.n * 2 * (s.c + s.c + s.f + s.u + s.c + s.c));
	assert_int_equal(all[STEP].unstored, passes * s.n * (s.c + s.c + s.f + s.u));
	assert_int_equal(all[STEP].gradient_reads, passes);
	check_biases(model, &s, &all[STEP], true);
	assert_int_equal(all[EVALUATION].casts, passes * 5);
	assert_int_equal(all[EVALUATION].copies, 0);
	assert_int_equal(all[EVALUATION].unstored, 0);
}

static void delayed_scaling_casts_where_tensors_are_computed(void **state)
{
	(void)state;
	check_delayed(&llama);
	check_delayed(&gpt2);
}

/* What the backward pass computes again is cast where it is computed, with the scale of the forward
 * pass. The forward pass leaves out the transposed copies. Full recomputation also repeats all products
 * but that of down, and so the cast for o. It needs the scratch in which the norm of the layer above
 * would leave down's gradient, which has a cast of its own. */
static void recomputed_tensors_are_cast_where_they_are_computed(void **state)
{
	(void)state;
	const struct sizes s = sizes_of(&llama);
	const int64_t passes = s.layers * s.micros, inputs = s.c + s.c + s.f;
	static const char *const scaling[] = { "precision.fp8_scaling=current",
					       "precision.fp8_scaling=delayed" };
	struct counts all[RESULTS];
	count_with(&llama, "precision.fp8=hybrid", scaling[0], "recompute.mode=selective", all);
	assert_int_equal(all[STEP].casts, passes * LAYER_CASTS + s.layers * WEIGHT_CASTS);
	assert_int_equal(all[STEP].copies, passes * s.n * inputs);
	assert_int_equal(all[STEP].unstored, passes * s.n * inputs);
	count_with(&llama, "precision.fp8=hybrid", scaling[1], "recompute.mode=selective", all);
	assert_int_equal(all[STEP].casts, passes * 3 + s.layers * WEIGHT_CASTS);
	assert_int_equal(all[STEP].copies, passes * s.n * 2 * (inputs + s.u + s.c + s.c));
	assert_int_equal(all[STEP].unstored, passes * s.n * (2 * inputs + s.u));
	count_with(&llama, "precision.fp8=hybrid", scaling[1], "recompute.mode=full", all);
	assert_int_equal(all[STEP].casts, passes * 5 + s.layers * WEIGHT_CASTS);
	assert_int_equal(all[STEP].copies,
			 passes * s.n * (3 * (s.c + s.c) + 2 * (s.f + s.u + s.c)));
	assert_int_equal(all[STEP].unstored, passes * s.n * (2 * inputs + s.u));
}

/* Parameters that are gathered for each pass are cast in each pass. */
static void zero_3_casts_weights_in_each_pass(void **state)
{
	(void)state;
	const struct sizes s = sizes_of(&llama);
	struct counts all[RESULTS];
	count(&llama, "precision.fp8=e4m3", "parallel.zero=3", all);
	int64_t passes = s.layers * s.micros;
	assert_int_equal(all[STEP].casts, passes * (LAYER_CASTS + 2 * WEIGHT_CASTS));
	assert_int_equal(all[STEP].bytes, passes * (layer_bytes(&s) + 2 * 5 * s.weights));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_casts_each_tensor_as_rarely_as_possible),
		cmocka_unit_test(products_are_those_of_the_library_for_any_number_of_tokens),
		cmocka_unit_test(an_evaluation_casts_only_inputs),
		cmocka_unit_test(delayed_scaling_casts_where_tensors_are_computed),
		cmocka_unit_test(recomputed_tensors_are_cast_where_they_are_computed),
		cmocka_unit_test(zero_3_casts_weights_in_each_pass),
	};
	return cmocka_run_group_tests_name("casts to 8 bits", tests, NULL, NULL);
}
