/*
 * Measures the algorithms of a product.
 *
 * Each algorithm runs once to warm up and once to be timed. Those that are close to the fastest
 * then take turns, so that a change of the clock meets all of them, and the median of their turns
 * counts. The library's first algorithm stays unless another one is clearly faster.
 *
 * The operands are those of the product, since zeros would be faster than numbers. Where there are
 * only zeros, a later use is measured. Outputs that the product overwrites are written; an output
 * to which it adds is only read, and the sums go to the backend's scratch. If they do not fit
 * there, a later use may measure the same sizes without adding.
 */
#include "base/choices.h"
#include "base/clock.h"
#include "kernels/cuda/blas_plan.h"
#include "kernels/cuda/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	TURNS = 5,
	RUNS_MOST = 20, /* of one turn */
	ZERO_USES = 4   /* after which nothing is measured */
};

static const double turn_seconds = 1e-3, /* that a turn should take */
	shape_seconds = 0.5,             /* after which no turn begins */
	all_seconds = 60,                /* of a backend, after which nothing is measured */
	close = 1.3,                     /* times the fastest */
	clearly = 0.99;                  /* times the library's first */

struct blas_timer {
	struct timing timing;
	double spent;
};

struct blas_timer *blas_timer_open(void)
{
	return calloc(1, sizeof(struct blas_timer));
}

void blas_timer_close(struct blas_timer *t)
{
	if (t)
		timing_close(&t->timing);
	free(t);
}

/* --- Kept choices ------------------------------------------------------------------------- */

/* The value of a choice: 1 and the algorithm, or 0 for an epilogue that is left to a separate
 * op. */
enum { SEPARATE, CHOSEN, VALUE_BYTES = 1 + sizeof(cublasLtMatmulAlgo_t) };
_Static_assert((int)VALUE_BYTES <= (int)CHOICES_VALUE, "a choice has no room for an algorithm");

static bool has_epilogue(const struct blas_key *key)
{
	return key->after != BLAS_STORE && key->after != BLAS_BIAS;
}

bool blas_wants_choice(struct backend *k, const struct blas_plan *plan)
{
	char text[BLAS_KEY_TEXT];
	if (!choices_wanted(k->choices))
		return false;
	blas_write_key(k, &plan->key, text);
	return !choices_proposed(k->choices, text);
}

bool blas_take_choice(struct backend *k, struct blas_plan *plan)
{
	const struct cuda_blas *blas = cuda_of(k)->blas;
	char text[BLAS_KEY_TEXT];
	unsigned char value[VALUE_BYTES];
	cublasLtMatmulAlgo_t algo;
	size_t length;
	blas_write_key(k, &plan->key, text);
	if (!choices_find(k->choices, text, value, sizeof value, &length))
		return false;
	if (length == 1 && value[0] == SEPARATE && has_epilogue(&plan->key)) {
		plan->possible = false;
		plan->chosen = true;
	} else if (length == VALUE_BYTES && value[0] == CHOSEN) {
		memcpy(&algo, value + 1, sizeof algo);
		plan->chosen = blas_supports(blas->lt, blas->handle, plan, &algo);
		if (plan->chosen)
			blas_set_algorithm(blas->lt, plan, &algo);
		plan->possible |= plan->chosen;
	}
	plan->wanted &= !plan->chosen;
	return plan->chosen;
}

/* algo: NULL for SEPARATE. */
static void put_choice(struct backend *k, const struct blas_plan *plan,
		       const cublasLtMatmulAlgo_t *algo)
{
	char text[BLAS_KEY_TEXT];
	unsigned char value[VALUE_BYTES] = { algo ? CHOSEN : SEPARATE };
	if (algo)
		memcpy(value + 1, algo, sizeof *algo);
	blas_write_key(k, &plan->key, text);
	choices_put(k->choices, text, value, algo ? VALUE_BYTES : 1);
}

void blas_keep_choice(struct backend *k, const struct blas_plan *plan)
{
	char text[BLAS_KEY_TEXT];
	blas_write_key(k, &plan->key, text);
	if (choices_proposed(k->choices, text) || (!plan->possible && !has_epilogue(&plan->key)))
		return;
	put_choice(k, plan, plan->possible ? &plan->algo : NULL);
	choices_note(k->choices, "others were refused at launch");
}

/* --- Timing ------------------------------------------------------------------------------- */

/* What is timed: a product, and perhaps the op after it. */
struct attempt {
	const struct blas_plan *plan;
	struct blas_product p; /* whose d may be written */
	const void *c;         /* what is added */
	/* of the product with the epilogue, whose other part is timed too; NULL: only the
	 * product */
	const struct blas_product *whole;
};

/* The op that follows if the product has no epilogue, or, for sums, the one that adds them to the
 * gradient. Sums are added to the workspace, which belongs to nobody between two products. */
static void queue_rest(struct backend *k, const struct attempt *a)
{
	const struct blas_product *p = a->whole;
	float *sums = cuda_of(k)->blas->workspace;
	const bool separate = a->p.after != p->after;
	if (p->after == BLAS_SUMS && separate)
		k->ops.sum_rows(k, sums, p->left, p->k, p->m, p->add);
	else if (p->after == BLAS_SUMS && p->add)
		k->ops.accumulate(k, sums, p->sums, p->m);
	else if (p->after == BLAS_SUMS)
		return; /* the product has set them */
	else if (p->after == BLAS_GELU_SLOPE && separate)
		k->ops.gelu_bwd(k, p->d, p->d, p->given_pre, p->m * p->n);
	else if (separate)
		k->ops.gelu_fwd(k, p->d, p->pre, p->m * p->n);
}

static bool run_attempt(struct backend *k, const struct attempt *a,
			const cublasLtMatmulAlgo_t *algo)
{
	if (blas_queue(k, a->plan, &a->p, a->c, algo) != CUBLAS_STATUS_SUCCESS) {
		cudaGetLastError();
		return false;
	}
	if (a->whole)
		queue_rest(k, a);
	return true;
}

/* Seconds of one run; INFINITY: the library refuses it, or the device has failed. */
static double time_runs(struct backend *k, const struct attempt *a,
			const cublasLtMatmulAlgo_t *algo, int runs)
{
	static const char where[] = "measuring a product";
	const struct timing *t = &cuda_of(k)->blas->timer->timing;
	if (!timing_begin(k, t, where))
		return INFINITY;
	for (int i = 0; i < runs; i++)
		if (!run_attempt(k, a, algo))
			return INFINITY;
	return timing_end(k, t, where) / runs;
}

/* The algorithms of one attempt, and their times. */
struct contest {
	cublasLtMatmulAlgo_t algos[BLAS_CANDIDATES];
	double turn[BLAS_CANDIDATES][TURNS], seconds[BLAS_CANDIDATES];
	int n, best;
};

static double fastest(const struct contest *t)
{
	double least = INFINITY;
	for (int i = 0; i < t->n; i++)
		least = fmin(least, t->seconds[i]);
	return least;
}

static int runs_of(double seconds)
{
	return seconds * RUNS_MOST < turn_seconds ? RUNS_MOST
	       : seconds > turn_seconds           ? 1
						  : (int)(turn_seconds / seconds);
}

/* Lets those that are close to the fastest take turns. */
static void take_turns(struct backend *k, const struct attempt *a, struct contest *t, double begin)
{
	const double limit = close * fastest(t);
	int turns = 0;
	for (; turns < TURNS && clock_s() - begin < shape_seconds; turns++)
		for (int i = 0; i < t->n; i++)
			if (t->seconds[i] <= limit)
				t->turn[i][turns] = time_runs(k, a, &t->algos[i],
							      runs_of(t->seconds[i]));
	for (int i = 0; turns && i < t->n; i++)
		if (t->seconds[i] <= limit)
			t->seconds[i] = timing_median(t->turn[i], turns);
}

/* Measures all algorithms of an attempt. false: none works, or there is nothing to choose. */
static bool hold_contest(struct backend *k, const struct attempt *a, struct contest *t)
{
	const struct cuda_blas *blas = cuda_of(k)->blas;
	const double begin = clock_s();
	t->n = blas_candidates(blas->lt, blas->handle, a->plan, t->algos, BLAS_CANDIDATES);
	t->best = 0;
	if (t->n == 1 && !a->whole)
		return false;
	for (int i = 0; i < t->n; i++) {
		t->seconds[i] = time_runs(k, a, &t->algos[i], 1);
		if (isfinite(t->seconds[i]))
			t->seconds[i] = time_runs(k, a, &t->algos[i], 1);
	}
	take_turns(k, a, t, begin);
	double least = fastest(t);
	for (int i = 1; i < t->n; i++)
		if (t->seconds[i] == least && !(least > clearly * t->seconds[0]))
			t->best = i;
	return t->n > 0 && isfinite(t->seconds[t->best]);
}

/* --- Operands ----------------------------------------------------------------------------- */

static size_t width_of(const struct backend *k, enum blas_type type)
{
	return type == BLAS_STORED ? cuda_of(k)->storage == STORE_FP32 ? 4 : 2 : 1;
}

static size_t left_bytes(const struct backend *k, const struct blas_product *p)
{
	const int64_t rows = p->left_flipped ? p->k : p->m, row = p->left_flipped ? p->m : p->k;
	return (size_t)((rows - 1) * (p->left_row ? p->left_row : row) + row) *
	       width_of(k, p->left_type);
}

static size_t right_bytes(const struct backend *k, const struct blas_product *p)
{
	return (size_t)(p->k * p->n) * width_of(k, p->right_type);
}

/* Whether the output is also an input, so that the product can run once only. */
static bool is_in_place(const struct backend *k, const struct blas_product *p, size_t d_bytes)
{
	return timing_overlap(p->d, d_bytes, p->left, left_bytes(k, p)) ||
	       timing_overlap(p->d, d_bytes, p->right, right_bytes(k, p)) ||
	       timing_overlap(p->d, d_bytes, p->given_pre, d_bytes);
}

/* Where the sums go if the product is added: in the scratch, behind its own sums. NULL: they do not
 * fit. */
static void *place_sums(const struct backend *k, const struct blas_product *p, size_t d_bytes)
{
	char *scratch = cuda_of(k)->scratch;
	size_t from = 0;
	if (timing_overlap(scratch, CUDA_SCRATCH, p->sums, 1))
		from = (size_t)((char *)(p->sums + p->m) - scratch + CUDA_ALIGN - 1) / CUDA_ALIGN *
		       CUDA_ALIGN;
	return from + d_bytes <= CUDA_SCRATCH ? scratch + from : NULL;
}

/* Whether the product can be measured now. If so, *a is ready for that. */
static bool prepare(struct backend *k, struct blas_plan *plan, const struct blas_product *p,
		    struct attempt *a)
{
	const size_t d_bytes = (size_t)(p->m * p->n) * (p->single ? sizeof(float) : k->element);
	struct blas_timer *t = cuda_of(k)->blas->timer;
	*a = (struct attempt){ .plan = plan, .p = *p, .c = p->d };
	if (t->spent > all_seconds || is_in_place(k, p, d_bytes) || !timing_open(k, &t->timing)) {
		plan->wanted = false;
		return false;
	}
	if (p->add)
		a->p.d = place_sums(k, p, d_bytes);
	if (!a->p.d)
		return false;
	if (timing_has_numbers(k, p->left, left_bytes(k, p)) &&
	    timing_has_numbers(k, p->right, right_bytes(k, p)))
		return true;
	plan->wanted = ++plan->zero_uses < ZERO_USES;
	return false;
}

/* --- Choosing ----------------------------------------------------------------------------- */

static void put_winner(struct backend *k, const struct blas_plan *plan, const struct contest *t,
		       const char *what)
{
	put_choice(k, plan, &t->algos[t->best]);
	choices_note(k->choices, "%s%.1f us, algorithm %d of %d; first: %.1f us", what,
		     1e6 * t->seconds[t->best], t->best + 1, t->n, 1e6 * t->seconds[0]);
}

static void measure_product(struct backend *k, struct blas_plan *plan, const struct attempt *a,
			    struct contest *t)
{
	plan->wanted = false;
	if (hold_contest(k, a, t))
		put_winner(k, plan, t, "");
}

/* The product to which a separate op is applied. */
static struct blas_product without_epilogue(const struct blas_product *from)
{
	struct blas_product p = *from;
	const bool gelu = p.after == BLAS_GELU || p.after == BLAS_GELU_BIAS;
	p.after = p.after == BLAS_GELU_BIAS ? BLAS_BIAS : BLAS_STORE;
	if (gelu)
		p.d = p.pre;
	p.pre = NULL;
	p.given_pre = NULL;
	p.sums = NULL;
	return p;
}

/* A separate op was faster with the product's fastest algorithm, so the product gets that one. */
static void choose_separate_product(struct backend *k, struct blas_plan *plan,
				    const struct contest *t)
{
	if (plan->chosen || !blas_wants_choice(k, plan))
		return;
	put_winner(k, plan, t, "with the separate op ");
	plan->wanted = false;
	blas_take_choice(k, plan);
}

/* The epilogue against the separate op, each with its fastest algorithm. */
static void measure_epilogue(struct backend *k, struct blas_plan *plan, struct attempt *fused,
			     const struct blas_product *p, struct contest t[2])
{
	struct contest *separately = t + 1;
	struct attempt separate = { .p = without_epilogue(p), .c = fused->c, .whole = p };
	struct blas_plan *product = blas_plan_of(k, &separate.p);
	if (p->add)
		separate.p.d = fused->p.d;
	plan->wanted = false;
	fused->whole = p;
	separate.plan = product;
	bool works = hold_contest(k, fused, t),
	     works_separately = product->possible && hold_contest(k, &separate, separately);
	bool fuses = works && (!works_separately ||
			       t->seconds[t->best] <= separately->seconds[separately->best]);
	if (!works && !works_separately)
		return;
	put_choice(k, plan, fuses ? &t->algos[t->best] : NULL);
	choices_note(k->choices, "with its epilogue %.1f us, first: %.1f us; separately %.1f us",
		     works ? 1e6 * t->seconds[t->best] : 0, works ? 1e6 * t->seconds[0] : 0,
		     works_separately ? 1e6 * separately->seconds[separately->best] : 0);
	if (!fuses)
		choose_separate_product(k, product, separately);
}

void blas_measure(struct backend *k, struct blas_plan *plan, const struct blas_product *p)
{
	struct blas_timer *timer = cuda_of(k)->blas->timer;
	struct attempt a;
	if (!prepare(k, plan, p, &a))
		return;
	const double begin = clock_s();
	struct contest *t = calloc(2, sizeof *t);
	if (t && has_epilogue(&plan->key))
		measure_epilogue(k, plan, &a, p, t);
	else if (t)
		measure_product(k, plan, &a, t);
	free(t);
	timer->spent += clock_s() - begin;
	blas_take_choice(k, plan);
}
