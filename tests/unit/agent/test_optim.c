/* AdamW over a catalogue against its formulas in double; rates against their definitions. */
#include "agent/optim/optim.h"
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ELEMENTS = 96 };

/* Two matrices with decay side by side, a vector without, a matrix behind a gap. */
static struct param params[] = {
	{ .name = "a", .decay = true, .offset = 0, .count = 32 },
	{ .name = "b", .decay = true, .offset = 32, .count = 10 },
	{ .name = "c", .decay = false, .offset = 48, .count = 16 },
	{ .name = "d", .decay = true, .offset = 64, .count = 30 },
};
static struct catalogue catalogue = { params, 4, ELEMENTS };

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
	return job;
}

static bool within(const struct param *p, int64_t i)
{
	return i >= p->offset && i < p->offset + p->count;
}

/* 0 gap, 1 without decay, 2 with decay */
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

static void reference_step(struct reference *r, const float *g, double norm, const struct job *job, int64_t step)
{
	double b1 = job->optimizer.beta1, b2 = job->optimizer.beta2, lr = optim_lr(job, step);
	double clip = job->optimizer.clip;
	double scale = clip > 0 && norm > clip ? clip / norm : 1;
	for (int i = 0; i < ELEMENTS; i++) {
		double x = g[i] * scale, decay = kind_of(i) == 2 ? job->optimizer.weight_decay : 0;
		r->m[i] = b1 * r->m[i] + (1 - b1) * x;
		r->v[i] = b2 * r->v[i] + (1 - b2) * x * x;
		double mh = r->m[i] / (1 - pow(b1, (double)(step + 1)));
		double vh = r->v[i] / (1 - pow(b2, (double)(step + 1)));
		r->p[i] -= lr * (mh / (sqrt(vh) + job->optimizer.eps) + decay * r->p[i]);
	}
}

static void steps_follow_the_formulas(const char *backend, double norm, double clip)
{
	struct job job = job_of(LR_COSINE);
	job.optimizer.clip = clip;
	struct kern *k;
	struct optim *o;
	assert_int_equal(kern_open(backend, 1, &k, NULL), 0);
	assert_int_equal(optim_open(k, &catalogue, &job, &o, NULL), 0);
	float p[ELEMENTS], g[ELEMENTS];
	struct reference r = { 0 };
	draw(p, 0);
	for (int i = 0; i < ELEMENTS; i++)
		r.p[i] = p[i];
	for (int step = 0; step < 30; step++) {
		draw(g, (uint64_t)step + 1);
		optim_step(o, p, g, norm, step);
		reference_step(&r, g, norm, &job, step);
	}
	for (int i = 0; i < ELEMENTS; i++) {
		assert_true(fabs(p[i] - r.p[i]) < 2e-6 * (1 + fabs(r.p[i])));
		assert_true(fabs(optim_m(o)[i] - r.m[i]) < 2e-6);
		assert_true(fabs(optim_v(o)[i] - r.v[i]) < 2e-6);
		if (!kind_of(i))
			assert_true(p[i] == 0);
	}
	optim_close(o);
	kern_close(k);
}

static void adamw_with_decay_groups(void **state)
{
	(void)state;
	steps_follow_the_formulas("plain", 0.5, 1.0);
	steps_follow_the_formulas("cpu", 0.5, 1.0);
}

static void gradients_above_the_clip_are_scaled_to_it(void **state)
{
	(void)state;
	steps_follow_the_formulas("plain", 8.0, 1.0);
	steps_follow_the_formulas("cpu", 8.0, 1.0);
}

static void clip_zero_never_scales(void **state)
{
	(void)state;
	steps_follow_the_formulas("plain", 8.0, 0);
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
		{ LR_COSINE, 5.5e-3, 1e-3 }, { LR_LINEAR, 5.5e-3, 1e-3 }, { LR_CONSTANT, 1e-2, 1e-2 },
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

static void a_run_of_nothing_but_warm_up_has_rates(void **state)
{
	(void)state;
	struct job job = job_of(LR_COSINE);
	job.job.steps = 10;
	for (int step = 0; step < 20; step++)
		assert_true(isfinite(optim_lr(&job, step)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adamw_with_decay_groups),
		cmocka_unit_test(gradients_above_the_clip_are_scaled_to_it),
		cmocka_unit_test(clip_zero_never_scales),
		cmocka_unit_test(warm_up_is_linear_and_ends_at_the_rate),
		cmocka_unit_test(schedules_end_at_min_lr_and_stay_there),
		cmocka_unit_test(a_run_of_nothing_but_warm_up_has_rates),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
