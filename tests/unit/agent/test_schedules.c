/*
 * Real processes execute every schedule. Each schedule computes what one process computes, to the
 * bit: each micro-batch's passes are the same, and every gradient sums them in the same order. (A
 * tied table's gradient has two sources, and the schedule decides their order. That gradient is
 * only nearly equal.)
 */
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include "plan/spec/schedule/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 3, WORDS = 12 };

static const struct tiny llama = { "llama", FAMILY_LLAMA, 9,  24,     4, 2, 6,
				   45,      103,          16, TIE_NO, 1, 7, 0.1 },
			 gpt2 = { "gpt2", FAMILY_GPT2, 8,  20,      5, 5, 4,
				  51,     101,         16, TIE_YES, 1, 6, 0.1 };

struct rank_result {
	double loss[STEPS], eval;
	struct timeline_event events[512];
	int n_events;
};

struct training {
	const struct tiny *model;
	struct job job;
	struct catalogue whole;
	struct rank_result *accounts;
	float *params, *grads;
};

static int train_rank(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct rank_result *a = &c->accounts[comm_rank(world)];
	struct trainee t;
	double norm;
	int rc = trainee_open(c->model, &c->job, world, "cpu", 1, &t, e);
	for (int step = 0; !rc && step < STEPS; step++) {
		rc = trainee_step(&t, step, &a->loss[step], &norm, e);
		/* The evaluation runs between steps, as in a real run. It must not change
		 * gradients and slots. */
		if (!rc && step == 0)
			rc = trainee_eval(&t, STEPS, &a->eval, e);
	}
	if (!rc) {
		const struct timeline *l = pipeline_timeline(t.engine);
		trainee_gather(&t, &c->whole, false, c->params, NULL);
		trainee_gather(&t, &c->whole, true, c->grads, NULL);
		a->n_events = l->n;
		memcpy(a->events, l->events, (size_t)(l->n < 512 ? l->n : 512) * sizeof *l->events);
	}
	trainee_close(&t);
	return rc;
}

static size_t bytes_of(const struct training *c)
{
	return (size_t)c->whole.elements * sizeof(float);
}

static void train_schedule(const struct tiny *model, const char *const *words, struct training *c)
{
	struct model_shape s;
	struct err e = ERR_INIT;
	*c = (struct training){ .model = model };
	if (trainee_job(model, words, &c->job, &e))
		fail_msg("%s", e.text);
	shape_of_job(&c->job, &s);
	assert_int_equal(trainee_whole(&s, &c->whole, &e), 0);
	c->accounts = world_shared(WORLD_MAX * sizeof *c->accounts);
	c->params = world_shared(bytes_of(c));
	c->grads = world_shared(bytes_of(c));
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	assert_int_equal(world_run(layout_world(&l), train_rank, c), 0);
}

static void done(struct training *c)
{
	world_unshared(c->accounts, WORLD_MAX * sizeof *c->accounts);
	world_unshared(c->params, bytes_of(c));
	world_unshared(c->grads, bytes_of(c));
	catalogue_free(&c->whole);
}

static void must_be_equal(const struct training *c, const struct training *alone, const char *what)
{
	for (int i = 0; i < STEPS; i++)
		if (c->accounts[0].loss[i] != alone->accounts[0].loss[i])
			fail_msg("%s: the loss of step %d is %.17g, of one process %.17g", what, i,
				 c->accounts[0].loss[i], alone->accounts[0].loss[i]);
	if (c->accounts[0].eval != alone->accounts[0].eval)
		fail_msg("%s: the evaluation is %.17g, of one process %.17g", what,
			 c->accounts[0].eval, alone->accounts[0].eval);
	for (int i = 0; i < c->whole.n; i++) {
		const struct param *p = &c->whole.params[i];
		size_t n = (size_t)p->count * sizeof(float);
		if (memcmp(c->grads + p->offset, alone->grads + p->offset, n))
			fail_msg("%s: the gradient of %s has other bits", what, p->name);
		if (memcmp(c->params + p->offset, alone->params + p->offset, n))
			fail_msg("%s: %s has other bits", what, p->name);
	}
}

static double difference(const float *a, const float *b, int64_t n)
{
	double diff = 0, size = 0;
	for (int64_t i = 0; i < n; i++) {
		diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		size += (double)b[i] * (double)b[i];
	}
	return sqrt(diff / size);
}

/* Two forms for each schedule: one with its minimum number of chunks, and one with 1 chunk more. */
enum { FORMS = 2 * SCHEDULES };

static int chunks_of(int form)
{
	return schedule_kinds[form / 2]->chunks_least + form % 2;
}

static void words_for(int form, int pp, int global, const char *more, const char **words,
		      char text[4][40])
{
	int n = 0;
	bool chunked = schedule_kinds[form / 2]->chunks_most > 1;
	snprintf(text[0], 40, "parallel.pp=%d", pp);
	snprintf(text[1], 40, "batch.global=%d", global);
	snprintf(text[2], 40, "parallel.schedule=%s", schedule_words[form / 2]);
	snprintf(text[3], 40, "parallel.chunks=%d", chunked ? chunks_of(form) : 0);
	words[n++] = "optimizer.clip=0";
	for (int i = 0; i < 4; i++)
		words[n++] = text[i];
	if (more)
		words[n++] = more;
	words[n] = NULL;
}

static bool fits(const struct tiny *model, int form, int pp)
{
	return chunks_of(form) <= schedule_kinds[form / 2]->chunks_most &&
	       pp * chunks_of(form) <= model->layers;
}

static void all_schedules(const struct tiny *model, int global, const char *more)
{
	const char *words[WORDS];
	char text[4][40];
	struct training alone;
	words_for(0, 1, global, more, words, text);
	train_schedule(model, words, &alone);
	for (int s = 0; s < FORMS; s++)
		for (int pp = 2; pp <= 4; pp++) {
			char what[128];
			struct training c;
			if (!fits(model, s, pp))
				continue;
			snprintf(what, sizeof what, "%s, %d chunks, pp %d, %d micro-batches%s%s",
				 schedule_words[s / 2], chunks_of(s), pp, global, more ? ", " : "",
				 more ? more : "");
			words_for(s, pp, global, more, words, text);
			train_schedule(model, words, &c);
			must_be_equal(&c, &alone, what);
			done(&c);
		}
	done(&alone);
}

static void every_schedule_has_the_bits_of_one_process(void **state)
{
	(void)state;
	all_schedules(&llama, 7, NULL);
}

static void few_micro_batches_too(void **state)
{
	(void)state;
	all_schedules(&llama, 1, NULL);
	all_schedules(&llama, 3, NULL);
}

static void dropout_and_recomputing_too(void **state)
{
	(void)state;
	all_schedules(&llama, 4, "model.dropout=0.2");
	all_schedules(&llama, 4, "recompute.mode=full");
	all_schedules(&llama, 4, "recompute.mode=selective");
}

static void a_tied_table_is_summed_in_the_schedules_order(void **state)
{
	(void)state;
	const char *words[WORDS];
	char text[4][40];
	struct training alone;
	words_for(0, 1, 6, NULL, words, text);
	train_schedule(&gpt2, words, &alone);
	for (int s = 0; s < FORMS; s++)
		for (int pp = 2; pp <= 4; pp++) {
			struct training c;
			if (!fits(&gpt2, s, pp))
				continue;
			words_for(s, pp, 6, NULL, words, text);
			train_schedule(&gpt2, words, &c);
			assert_true(difference(c.grads, alone.grads, c.whole.elements) < 1e-5);
			for (int i = 0; i < STEPS; i++)
				assert_true(fabs(c.accounts[0].loss[i] -
						 alone.accounts[0].loss[i]) < 1e-5);
			done(&c);
		}
	done(&alone);
}

/* The measured timeline equals the table's row: the same passes, in the same order, one after
 * another. */
static void the_measured_timeline_is_the_tables_row(void **state)
{
	(void)state;
	for (int s = 0; s < FORMS; s++) {
		const char *words[WORDS];
		char text[4][40];
		struct training c;
		struct schedule table;
		if (!fits(&llama, s, 3))
			continue;
		words_for(s, 3, 5, NULL, words, text);
		train_schedule(&llama, words, &c);
		struct layout l = layout_of(&c.job, 1);
		assert_int_equal(schedule_build(c.job.parallel.schedule, &l, 5, &table, NULL), 0);
		for (int r = 0; r < 3; r++) {
			const struct rank_result *a = &c.accounts[r];
			double before = 0;
			int n = 0;
			for (int i = 0; i < table.rows[r].n; i++) {
				const struct sched_step *step = &table.rows[r].steps[i];
				if (step->op == SCHED_RECV_ACT || step->op == SCHED_RECV_GRAD ||
				    step->op == SCHED_SEND_ACT || step->op == SCHED_SEND_GRAD)
					continue;
				const struct timeline_event *v = &a->events[n++];
				assert_int_equal(v->rank, r);
				assert_int_equal(v->op, step->op);
				assert_int_equal(v->chunk, step->chunk);
				assert_int_equal(v->micro, step->micro);
				assert_true(v->begin >= before && v->end >= v->begin);
				before = v->end;
			}
			assert_int_equal(a->n_events, n);
		}
		schedule_free(&table);
		done(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_schedule_has_the_bits_of_one_process),
		cmocka_unit_test(few_micro_batches_too),
		cmocka_unit_test(dropout_and_recomputing_too),
		cmocka_unit_test(a_tied_table_is_summed_in_the_schedules_order),
		cmocka_unit_test(the_measured_timeline_is_the_tables_row),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
