/* AdamW and SGD over a store's pieces agree with their formulas in double, also when their states
 * are in a file. Learning rates agree with the definitions of their schedules. */
#include "agent/engine/optim/offload.h"
#include "agent/engine/optim/optim.h"
#include "base/philox.h"
#include "plan/spec/model/zero.h"
#include "tests/unit/agent/store_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <cmocka.h>

enum { ELEMENTS = 96 };

/* Two adjacent matrices with decay, a vector without decay, and a matrix after a gap. */
static struct param params[] = {
	{ .name = "a", .hi = { 32, 1 }, .decay = true, .offset = 0, .count = 32 },
	{ .name = "b", .hi = { 10, 1 }, .decay = true, .offset = 32, .count = 10 },
	{ .name = "c", .hi = { 16, 1 }, .decay = false, .offset = 48, .count = 16 },
	{ .name = "d", .hi = { 30, 1 }, .decay = true, .offset = 64, .count = 30 },
};
static struct unit unit = { .kind = UNIT_LAYER, .hi = ELEMENTS, .n_params = 4 };
static struct catalogue catalogue = { params, 4, &unit, 1, ELEMENTS };

static struct job job_of(enum job_lr_schedule schedule)
{
	struct job job = { 0 };
	job.job.steps = 100;
	job.optimizer.lr = 1e-2;
	job.optimizer.min_lr = 1e-3;
	job.optimizer.warmup = 10;
	job.optimizer.schedule = schedule;
	job.optimizer.beta1 = 0.9;
	job.optimizer.beta2 = 0.95;
	job.optimizer.eps = 1e-8;
	job.optimizer.weight_decay = 0.1;
	job.optimizer.clip = 1.0;
	job.optimizer.momentum = 0.8;
	return job;
}

static bool within(const struct param *p, int64_t i)
{
	return i >= p->offset && i < p->offset + p->count;
}

/* Returns 0 for a gap, 1 without decay, 2 with decay. */
static int kind_of(int64_t i)
{
	for (int k = 0; k < catalogue.n; k++)
		if (within(&params[k], i))
			return params[k].decay ? 2 : 1;
	return 0;
}

static void draw(float *out, uint64_t item)
{
	philox_normal(philox_key(5, PHILOX_TEST, item), 0, ELEMENTS, out);
	for (int i = 0; i < ELEMENTS; i++)
		if (!kind_of(i))
			out[i] = 0;
}

struct reference {
	double p[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
};

/* Computes one element's step. */
typedef void formula(const struct job *job, double lr, double x, double decay, int64_t step,
		     double *p, double *m, double *v);

static void adamw(const struct job *job, double lr, double x, double decay, int64_t step, double *p,
		  double *m, double *v)
{
	double b1 = job->optimizer.beta1, b2 = job->optimizer.beta2;
	*m = b1 * *m + (1 - b1) * x;
	*v = b2 * *v + (1 - b2) * x * x;
	double mh = *m / (1 - pow(b1, (double)(step + 1))),
	       vh = *v / (1 - pow(b2, (double)(step + 1)));
	*p -= lr * (mh / (sqrt(vh) + job->optimizer.eps) + decay * *p);
}

static void sgd(const struct job *job, double lr, double x, double decay, int64_t step, double *p,
		double *m, double *v)
{
	(void)v;
	x += decay * *p;
	*m = step ? job->optimizer.momentum * *m + x : x;
	*p -= lr * *m;
}

static formula *const formulas[] = { [OPTIMIZER_ADAMW] = adamw, [OPTIMIZER_SGD] = sgd };

static void reference_step(struct reference *r, const float *g, double norm, const struct job *job,
			   int64_t step)
{
	double clip = job->optimizer.clip, scale = clip > 0 && norm > clip ? clip / norm : 1;
	for (int i = 0; i < ELEMENTS; i++) {
		double decay = kind_of(i) == 2 ? job->optimizer.weight_decay : 0;
		if (kind_of(i))
			formulas[job->optimizer.kind](job, optim_lr(job, step), g[i] * scale, decay,
						      step, &r->p[i], &r->m[i], &r->v[i]);
	}
}

struct bed {
	struct backend *k;
	struct param_store *store;
	struct optim *o;
};

static void bed_open(struct bed *b, const char *backend_name, const struct job *job)
{
	assert_int_equal(backend_open(backend_name, 1, &b->k, NULL), 0);
	const struct param_store_options so = { .catalogue = &catalogue, .backend = b->k };
	assert_int_equal(param_store_open(&so, &b->store, NULL), 0);
	const struct optim_options oo = {
		.backend = b->k, .store = b->store, .job = job, .spill_dir = "/tmp"
	};
	assert_int_equal(optim_open(&oo, &b->o, NULL), 0);
}

static void bed_close(struct bed *b)
{
	optim_close(b->o);
	param_store_close(b->store);
	backend_close(b->k);
}

/* Returns the first parameter's pieces, in the flat order. */
static const struct param_piece *first_piece(struct bed *b)
{
	int n;
	return param_store_pieces(b->store, &n);
}

static float *masters(struct bed *b)
{
	return first_piece(b)->master;
}

/* loss_scale: the scale of the stored gradients. */
static void steps_follow_the_formulas(const char *backend_name, const struct job *job, double norm,
				      float loss_scale)
{
	struct bed b;
	bed_open(&b, backend_name, job);
	float *p = masters(&b), *g = param_store_flat_grads(b.store), true_g[ELEMENTS];
	const float *m = optim_state(b.o, 0, first_piece(&b)),
		    *v = optim_state(b.o, 1, first_piece(&b));
	struct reference r = { 0 };
	draw(p, 0);
	for (int i = 0; i < ELEMENTS; i++)
		r.p[i] = p[i];
	for (int step = 0; step < 30; step++) {
		draw(true_g, (uint64_t)step + 1);
		for (int i = 0; i < ELEMENTS; i++)
			g[i] = true_g[i] * loss_scale;
		assert_int_equal(optim_step(b.o, norm, loss_scale, step, NULL), 0);
		reference_step(&r, true_g, norm, job, step);
	}
	for (int i = 0; i < ELEMENTS; i++) {
		assert_true(fabs(p[i] - r.p[i]) < 2e-6 * (1 + fabs(r.p[i])));
		assert_true(fabs(m[i] - r.m[i]) < 2e-6 * (1 + fabs(r.m[i])));
		if (v)
			assert_true(fabs(v[i] - r.v[i]) < 2e-6);
		if (!kind_of(i))
			assert_true(p[i] == 0);
	}
	assert_int_equal(v != NULL, job->optimizer.kind == OPTIMIZER_ADAMW);
	bed_close(&b);
}

static void both_backends(enum job_optimizer kind, double norm, double clip, float loss_scale,
			  bool spilled)
{
	struct job job = job_of(LR_COSINE);
	job.optimizer.kind = kind;
	job.optimizer.clip = clip;
	job.offload.optimizer = spilled;
	steps_follow_the_formulas("reference", &job, norm, loss_scale);
	steps_follow_the_formulas("cpu", &job, norm, loss_scale);
}

/* Returns the size of the last of 200 steps with a constant gradient. Each step is made in `parts`
 * equal pieces; 0: optim_step is used. */
static double last_stride(enum job_optimizer kind, int parts, double clip)
{
	struct job job = job_of(LR_CONSTANT);
	struct bed b;
	double before = 0;
	job.optimizer.kind = kind;
	job.optimizer.clip = clip;
	job.optimizer.weight_decay = 0;
	bed_open(&b, "reference", &job);
	float *p = masters(&b), *g = param_store_flat_grads(b.store);
	for (int step = 0; step < 200; step++) {
		before = p[0];
		g[0] = 0.5f / (float)(parts ? parts : 1);
		if (!parts)
			assert_int_equal(optim_step(b.o, 0.5, 1, step, NULL), 0);
		for (int i = 0; i < parts; i++)
			optim_step_part(b.o, 0.5, 1.0 / parts, step, step * parts + i);
	}
	double stride = before - p[0];
	bed_close(&b);
	return stride;
}

static void parts_of_a_step_add_up_to_one_step(void **state)
{
	(void)state;
	for (int kind = OPTIMIZER_ADAMW; kind <= OPTIMIZER_SGD; kind++)
		for (int clipped = 0; clipped < 2; clipped++) {
			double clip = clipped ? 0.1 : 0, whole = last_stride(kind, 0, clip);
			assert_true(whole > 1e-3);
			assert_true(last_stride(kind, 1, clip) == whole);
			assert_true(fabs(last_stride(kind, 2, clip) / whole - 1) < 1e-3);
			assert_true(fabs(last_stride(kind, 7, clip) / whole - 1) < 1e-3);
		}
}

static void adamw_with_decay_groups(void **state)
{
	(void)state;
	both_backends(OPTIMIZER_ADAMW, 0.5, 1.0, 1, false);
}

static void sgd_with_decay_groups(void **state)
{
	(void)state;
	both_backends(OPTIMIZER_SGD, 0.5, 1.0, 1, false);
}

static void gradients_above_the_clip_are_scaled_to_it(void **state)
{
	(void)state;
	both_backends(OPTIMIZER_ADAMW, 8.0, 1.0, 1, false);
	both_backends(OPTIMIZER_SGD, 8.0, 1.0, 1, false);
}

static void clip_zero_never_scales(void **state)
{
	(void)state;
	both_backends(OPTIMIZER_ADAMW, 8.0, 0, 1, false);
}

static void the_loss_scale_does_not_change_a_step(void **state)
{
	(void)state;
	both_backends(OPTIMIZER_ADAMW, 8.0, 1.0, 1024, false);
	both_backends(OPTIMIZER_SGD, 0.5, 1.0, 1024, false);
}

static void states_in_a_file_give_the_same_steps(void **state)
{
	(void)state;
	both_backends(OPTIMIZER_ADAMW, 0.5, 1.0, 1, true);
	both_backends(OPTIMIZER_SGD, 0.5, 1.0, 1, true);
}

/* The test sets a file size limit of 0, which has the effect of a full disk. */
static void a_full_disk_is_an_error(void **state)
{
	(void)state;
	struct job job = job_of(LR_COSINE);
	struct bed b;
	struct err e = ERR_INIT;
	struct rlimit was, none;
	bed_open(&b, "reference", &job);
	job.offload.optimizer = true;
	const struct optim_options opt = {
		.backend = b.k, .store = b.store, .job = &job, .spill_dir = "/tmp"
	};
	struct optim *o = NULL;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	none = (struct rlimit){ 0, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	int rc = optim_open(&opt, &o, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_IO);
	assert_null(o);
	bed_close(&b);
}

static void the_norm_excludes_the_loss_scale_and_is_not_finite_if_a_gradient_is_not(void **state)
{
	(void)state;
	struct job job = job_of(LR_COSINE);
	struct bed b;
	double norm, sum = 0;
	bed_open(&b, "cpu", &job);
	float *g = param_store_flat_grads(b.store);
	draw(g, 1);
	for (int i = 0; i < ELEMENTS; i++)
		sum += (double)g[i] * g[i];
	assert_int_equal(optim_grad_norm(b.o, NULL, 4, &norm, NULL), 0);
	assert_true(fabs(norm - sqrt(sum) / 4) < 1e-12 * norm);
	g[50] = INFINITY;
	assert_int_equal(optim_grad_norm(b.o, NULL, 4, &norm, NULL), 0);
	assert_false(isfinite(norm));
	bed_close(&b);
}

/* Whether the squares are added in the backend's memory. Here that is the host's, so that any group
 * can. */
static bool norm_on_device;

/* In every layout, the norm is that of the whole model's gradient, summed over all replicas. */
static int norm_of_ranks(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	struct job job = job_of(LR_COSINE);
	struct optim *o = NULL;
	double norm = 0, want = 0;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) || bench_pass(&b, 0, e)
			 ? -1
			 : 0;
	const struct optim_options opt = {
		.backend = b.backend,
		.store = b.store,
		.job = &job,
		.device_world = norm_on_device ? world : NULL,
	};
	if (!rc)
		rc = optim_open(&opt, &o, e) ||
				     optim_grad_norm(o, norm_on_device ? NULL : world, 1, &norm, e)
			     ? -1
			     : 0;
	for (int k = 0; k < b.catalogue.n; k++) {
		const struct param *p = &b.catalogue.params[k];
		for (int64_t i = 0; i < p->count && p->copy == 0 && !p->tied_copy && b.replica == 0;
		     i++)
			want += (double)b.totals[p->offset + i] * b.totals[p->offset + i];
	}
	if (!rc)
		rc = comm_all_reduce(world, &want, &want, 1, COMM_F64, COMM_SUM, e);
	if (!rc && norm != sqrt(want))
		rc = err_set(e, ERR_NUMERIC, "%s: the norm is %.17g, not %.17g", b.cut->name, norm,
			     sqrt(want));
	optim_close(o);
	bench_close(&b);
	return rc;
}

static void the_norm_counts_each_element_of_the_model_once(void **state)
{
	(void)state;
	/* clang-format off */
	struct cut cuts[] = {
		{ "gpt2, tp 2, sp, pp 2", FAMILY_GPT2, 4, 2, true, 1, 2, 1, 2, 3, "reference", true, false, 1 },
		{ "llama, kv shared", FAMILY_LLAMA, 1, 2, false, 1, 2, 2, 1, 1, "reference", true, false, 1 },
		{ "gpt2, copies", FAMILY_GPT2, 4, 1, false, 1, 1, 3, 1, 0, "reference", true, false, 1 },
	};
	/* clang-format on */
	for (size_t i = 0; i < 2 * (sizeof cuts / sizeof *cuts); i++) {
		norm_on_device = i % 2;
		assert_int_equal(world_run(cut_world(&cuts[i / 2]), norm_of_ranks, &cuts[i / 2]),
				 0);
	}
	norm_on_device = false;
}

static void close_to(double got, double want)
{
	assert_true(fabs(got - want) <= 1e-12 * fabs(want) + 1e-18);
}

static void warm_up_is_linear_and_ends_at_the_rate(void **state)
{
	(void)state;
	struct job job = job_of(LR_COSINE);
	for (int step = 0; step < 10; step++)
		close_to(optim_lr(&job, step), 1e-3 * (step + 1));
	close_to(optim_lr(&job, 10), 1e-2);
	job.optimizer.warmup = 0;
	close_to(optim_lr(&job, 0), 1e-2);
}

static void schedules_end_at_min_lr_and_stay_there(void **state)
{
	(void)state;
	static const struct {
		enum job_lr_schedule schedule;
		double half, end;
	} rows[] = {
		{ LR_COSINE, 5.5e-3, 1e-3 },
		{ LR_LINEAR, 5.5e-3, 1e-3 },
		{ LR_CONSTANT, 1e-2, 1e-2 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job = job_of(rows[i].schedule);
		close_to(optim_lr(&job, 55), rows[i].half);
		close_to(optim_lr(&job, 100), rows[i].end);
		close_to(optim_lr(&job, 5000), rows[i].end);
		job.optimizer.decay_steps = 55;
		close_to(optim_lr(&job, 55), rows[i].end);
	}
	struct job job = job_of(LR_COSINE);
	close_to(optim_lr(&job, 10 + 30), 1e-3 + 9e-3 * 0.5 * (1 + cos(M_PI / 3)));
}

static void inverse_sqrt_continues_from_the_warm_up(void **state)
{
	(void)state;
	struct job job = job_of(LR_INVERSE_SQRT);
	close_to(optim_lr(&job, 10), 1e-2);
	close_to(optim_lr(&job, 40), 5e-3);
	close_to(optim_lr(&job, 90), 1e-2 / 3);
	close_to(optim_lr(&job, 1000000), 1e-3);
	job.optimizer.min_lr = job.optimizer.lr;
	close_to(optim_lr(&job, 40), 1e-2);
	job = job_of(LR_INVERSE_SQRT);
	job.optimizer.warmup = 0;
	close_to(optim_lr(&job, 0), 1e-2);
	close_to(optim_lr(&job, 4), 5e-3);
}

static void wsd_is_stable_until_its_cooldown(void **state)
{
	(void)state;
	struct job job = job_of(LR_WSD);
	job.optimizer.cooldown = 20;
	close_to(optim_lr(&job, 4), 5e-3);
	close_to(optim_lr(&job, 10), 1e-2);
	close_to(optim_lr(&job, 79), 1e-2);
	close_to(optim_lr(&job, 89), 1e-3 + 9e-3 / 2);
	close_to(optim_lr(&job, 99), 1e-3);
	close_to(optim_lr(&job, 200), 1e-3);
	job.optimizer.cooldown = 0;
	close_to(optim_lr(&job, 99), 1e-2);
}

static void a_run_that_ends_in_its_warm_up_has_finite_rates(void **state)
{
	(void)state;
	struct job job = job_of(LR_COSINE);
	job.job.steps = 10;
	for (int step = 0; step < 20; step++)
		assert_true(isfinite(optim_lr(&job, step)));
}

struct parts {
	const struct update *whole;
	int64_t seen;
};

static void check_numbers(const struct update *part, void *arg)
{
	struct parts *a = arg;
	const struct update *whole = a->whole;
	assert_ptr_equal(part->g, whole->g + a->seen);
	for (int64_t i = 0, n, of_whole; i < part->count; i += n) {
		assert_true(backend_update_row(part, i, &n) ==
			    backend_update_row(whole, a->seen + i, &of_whole));
		assert_true(n == of_whole || n == part->count - i);
	}
	a->seen += part->count;
}

/* An offloaded update is cut anywhere, also inside a row of a part of the tensor. */
static void parts_of_an_update_keep_its_random_numbers(void **state)
{
	enum { COUNT = 2 * ZERO_STAGED + 12345 };
	struct optim_offload *offload;
	struct backend *k;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(backend_open("cpu", 1, &k, &e), 0);
	assert_int_equal(optim_offload_open(k, 1, false, &offload, &e), 0);
	float *memory = calloc(COUNT, sizeof *memory);
	assert_non_null(memory);
	for (int64_t gap = 0; gap < 8000; gap += 7777) {
		const struct update u = { .p = memory,
					  .g = memory,
					  .m = memory,
					  .count = COUNT,
					  .stored = memory,
					  .random = true,
					  .first = 1000003,
					  .row = 999,
					  .column = 77,
					  .gap = gap };
		struct parts a = { &u, 0 };
		optim_offload_update(offload, &u, 1, check_numbers, &a);
		assert_true(a.seen == COUNT);
	}
	free(memory);
	optim_offload_close(offload);
	backend_close(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adamw_with_decay_groups),
		cmocka_unit_test(parts_of_a_step_add_up_to_one_step),
		cmocka_unit_test(sgd_with_decay_groups),
		cmocka_unit_test(gradients_above_the_clip_are_scaled_to_it),
		cmocka_unit_test(clip_zero_never_scales),
		cmocka_unit_test(the_loss_scale_does_not_change_a_step),
		cmocka_unit_test(states_in_a_file_give_the_same_steps),
		cmocka_unit_test(parts_of_an_update_keep_its_random_numbers),
		cmocka_unit_test(a_full_disk_is_an_error),
		cmocka_unit_test(
			the_norm_excludes_the_loss_scale_and_is_not_finite_if_a_gradient_is_not),
		cmocka_unit_test(the_norm_counts_each_element_of_the_model_once),
		cmocka_unit_test(warm_up_is_linear_and_ends_at_the_rate),
		cmocka_unit_test(schedules_end_at_min_lr_and_stay_there),
		cmocka_unit_test(inverse_sqrt_continues_from_the_warm_up),
		cmocka_unit_test(wsd_is_stable_until_its_cooldown),
		cmocka_unit_test(a_run_that_ends_in_its_warm_up_has_finite_rates),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
