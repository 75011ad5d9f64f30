/*
 * Tests the parameter server: the bound on staleness, asynchrony within it, learning, gradients
 * that are not finite, stops, checkpoints that are asked for, and failures. (test_strategies.c compares staleness 0 with one
 * process, and test_memory.c tests the memory.)
 */
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct tiny model = { "gpt2", FAMILY_GPT2, 2,  20,      5, 5,  4,
				   51,     101,         16, TIE_YES, 1, 12, 0.1 };

enum { STEPS = 24, OTHER = 7 /* an exit status that no error has */ };

struct training {
	struct job job;
	int steps;
	/* Shared by the ranks. */
	struct board {
		sem_t ahead;             /* posted for each step that rank 0 has completed */
		double first, last;      /* losses of the evaluations */
		int64_t lead[WORLD_MAX]; /* the lead that each server allowed */
		int stopped[WORLD_MAX];  /* the number of steps that each rank made */
		int saves[WORLD_MAX];    /* how often each rank met the others for a checkpoint */
		int pieces[WORLD_MAX];   /* parts of parameters that each server has */
	} * board;
};

static void training_open_of(const struct tiny *m, struct training *c, int dp, int staleness,
			     const char *more)
{
	char words[3][48];
	snprintf(words[0], sizeof words[0], "parallel.dp=%d", dp);
	snprintf(words[1], sizeof words[1], "parallel.staleness=%d", staleness);
	snprintf(words[2], sizeof words[2], "%s", more);
	const char *const list[] = { words[0], words[1], "parallel.sync=server", words[2], NULL };
	struct err e = ERR_INIT;
	*c = (struct training){ .steps = STEPS, .board = world_shared(sizeof *c->board) };
	if (trainee_job(m, list, &c->job, &e))
		fail_msg("%s", e.text);
	sem_init(&c->board->ahead, 1, 0);
}

static void training_open(struct training *c, int dp, int staleness, const char *more)
{
	training_open_of(&model, c, dp, staleness, more);
}

static void course_close(struct training *c)
{
	sem_destroy(&c->board->ahead);
	world_unshared(c->board, sizeof *c->board);
}

/* --- the bound --- */

/* Rank 0 runs ahead as far as the bound allows. Rank 1 makes step k only after rank 0 has
 * completed step k + staleness - 1. If rank 0 had to wait for rank 1 earlier, the run would not
 * end. */
static int run_ahead(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double loss, norm;
	int me = comm_rank(world), rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	for (int i = 1; !rc && me == 1 && i < c->job.parallel.staleness; i++)
		sem_wait(&c->board->ahead);
	for (int step = 0; !rc && step < c->steps; step++) {
		if (me == 1 && step + c->job.parallel.staleness <= c->steps)
			sem_wait(&c->board->ahead);
		rc = trainee_step(&t, step, &loss, &norm, e);
		if (me == 0)
			sem_post(&c->board->ahead);
	}
	if (!rc)
		c->board->lead[me] = param_server_lead(t.server);
	trainee_close(&t);
	return rc;
}

static void a_worker_runs_ahead_by_the_staleness_and_no_further(void **state)
{
	(void)state;
	static const int bounds[] = { 1, 2, 5 };
	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
		struct training c;
		training_open(&c, 2, bounds[i], "job.steps=40");
		assert_int_equal(world_run(2, run_ahead, &c), 0);
		assert_int_equal(c.board->lead[0], bounds[i]);
		assert_int_equal(c.board->lead[1], bounds[i]);
		course_close(&c);
	}
}

static int count_leads(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double loss, norm;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	for (int step = 0; !rc && step < c->steps; step++)
		rc = trainee_step(&t, step, &loss, &norm, e);
	if (!rc)
		c->board->lead[comm_rank(world)] = param_server_lead(t.server);
	trainee_close(&t);
	return rc;
}

static void no_server_allows_a_longer_lead(void **state)
{
	(void)state;
	for (int staleness = 0; staleness < 3; staleness++) {
		struct training c;
		training_open(&c, 6, staleness, "job.steps=40");
		assert_int_equal(world_run(6, count_leads, &c), 0);
		for (int r = 0; r < 6; r++)
			assert_in_range(c.board->lead[r], 0, staleness);
		course_close(&c);
	}
}

/* --- learning --- */

/* All workers pause and evaluate with the same parameters. */
static int evaluate(struct trainee *t, double *loss, struct err *e)
{
	return param_server_pause(t->server, e) || trainee_eval(t, 0, loss, e) ||
			       param_server_resume(t->server, e)
		       ? -1
		       : 0;
}

static int learn(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double loss, norm, first, last;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e) ||
		 evaluate(&t, &first, e);
	for (int step = 0; !rc && step < c->steps; step++)
		rc = trainee_step(&t, step, &loss, &norm, e);
	rc = rc || evaluate(&t, &last, e);
	if (!rc && comm_rank(world) == 0) {
		c->board->first = first;
		c->board->last = last;
	}
	trainee_close(&t);
	return rc;
}

static void training_with_staleness_lowers_the_loss(void **state)
{
	(void)state;
	static const char *const kinds[] = { "optimizer.kind=adamw",
					     "optimizer.kind=sgd optimizer.lr=0.05" };
	for (int i = 0; i < 2; i++) {
		struct training c;
		training_open(&c, 4, 3, "job.steps=40");
		c.steps = 40;
		c.job.optimizer.kind = i ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
		c.job.optimizer.lr = i ? 0.1 : 3e-3;
		assert_int_equal(world_run(4, learn, &c), 0);
		printf("    %s, staleness 3, dp 4: loss %.3f before, %.3f after %d steps\n",
		       kinds[i], c.board->first, c.board->last, c.steps);
		assert_true(c.board->last < c.board->first - 0.2);
		course_close(&c);
	}
}

/* --- gradients that are not finite --- */

static bool all_finite(struct param_store *s)
{
	int n;
	const struct param_piece *p = param_store_pieces(s, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < p[i].count; j++)
			if (!isfinite(p[i].master[j]))
				return false;
	return true;
}

/* Rank 1's gradient is NaN. The parameters of both ranks must stay finite, and the worker that
 * pushes the gradient sees its norm. */
static int spoil(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	struct server_step io = { .step = 0, .loss = 1 };
	bool whole = c->job.parallel.staleness == 0, mine = comm_rank(world) == 1;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	if (!rc && mine)
		param_store_flat_grads(pipeline_store(t.engine))[5] = NAN;
	rc = rc || param_server_step(t.server, &io, e);
	if (!rc &&
	    (isfinite(io.norm) == (whole || mine) || !all_finite(pipeline_store(t.engine)) ||
	     (whole &&
	      !all_finite(
		      t.state.store)))) /* with staleness > 0 the server's thread may write there */
		rc = err_set(e, ERR_NUMERIC, "the norm is %g, or a parameter is no number",
			     io.norm);
	t.failed = rc != 0;
	trainee_close(&t);
	return rc;
}

static void a_gradient_that_is_not_finite_is_not_applied(void **state)
{
	(void)state;
	for (int staleness = 0; staleness < 2; staleness++) {
		struct training c;
		training_open(&c, 2, staleness, "job.steps=40");
		assert_int_equal(world_run(2, spoil, &c), 0);
		course_close(&c);
	}
}

/* --- stops --- */

/* Rank 2 is asked to stop in its step 4. */
static int stop(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	int me = comm_rank(world), step = 0;
	struct trainee t;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	for (bool stops = false; !rc && !stops && step < c->steps; step++) {
		struct server_step io = { .step = step,
					  .loss = 1,
					  .wants_stop = me == 2 && step >= 4 };
		rc = param_server_step(t.server, &io, e);
		stops = io.stops;
	}
	c->board->stopped[me] = step;
	t.failed = rc != 0;
	trainee_close(&t);
	return rc;
}

static void all_stop_after_the_same_step(void **state)
{
	(void)state;
	for (int staleness = 0; staleness < 6; staleness += 5) {
		struct training c;
		training_open(&c, 4, staleness, "job.steps=40");
		c.steps = 40;
		assert_int_equal(world_run(4, stop, &c), 0);
		for (int r = 0; r < 4; r++)
			assert_int_equal(c.board->stopped[r], c.board->stopped[0]);
		/* The other ranks learn of rank 2's stop after its fifth step at the latest. The
		 * fastest rank may then be staleness steps ahead, and in 1 more step. */
		assert_in_range(c.board->stopped[0], 5, 5 + staleness + 1);
		course_close(&c);
	}
}

/* --- checkpoints that somebody asks for --- */

/* The ranks are asked after different steps, and meet in param_server_pause() and in an all-reduce,
 * which fails or never ends if they are not in the same step. */
static int save(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	int me = comm_rank(world), asked = 0, saved_for = 0;
	struct trainee t;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	for (int step = 0; !rc && step < c->steps; step++) {
		asked = step >= 4 + me ? 1 + (step >= 20 + 2 * me) : 0;
		struct server_step io = { .step = step,
					  .loss = 1,
					  .wants_save = asked > saved_for };
		rc = param_server_step(t.server, &io, e);
		if (rc || !io.saves)
			continue;
		int32_t words[] = { asked, step, -step };
		rc = param_server_pause(t.server, e) ||
		     comm_all_reduce(world, words, words, 3, COMM_I32, COMM_MAX, e) ||
		     param_server_resume(t.server, e);
		assert_int_equal(words[1], step);
		assert_int_equal(words[2], -step);
		saved_for = words[0];
		c->board->saves[me]++;
	}
	rc = rc || param_server_leave(t.server, e);
	t.failed = rc != 0;
	trainee_close(&t);
	return rc;
}

static void all_save_after_the_same_steps(void **state)
{
	(void)state;
	for (int staleness = 0; staleness < 6; staleness += 5) {
		struct training c;
		training_open(&c, 4, staleness, "job.steps=40");
		c.steps = 40;
		assert_int_equal(world_run(4, save, &c), 0);
		for (int r = 0; r < 4; r++)
			assert_int_equal(c.board->saves[r], 2);
		course_close(&c);
	}
}

/* --- a very small model --- */

/* Of 8 blocks of 16 elements only the first ones have elements of this model: the other shards are
 * only padding. */
static const struct tiny smallest = { "smallest", FAMILY_LLAMA, 1, 2,      1, 1, 2,
				      4,          16,           8, TIE_NO, 1, 8, 0.1 };

static int train_smallest(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double loss = 0, norm;
	int n, me = comm_rank(world),
	       rc = trainee_open(&smallest, &c->job, world, "reference", 1, &t, e);
	for (int step = 0; !rc && step < c->steps; step++)
		rc = trainee_step(&t, step, &loss, &norm, e);
	if (!rc) {
		param_store_pieces(t.state.store, &n);
		c->board->pieces[me] = n;
	}
	if (me == 0)
		c->board->last = loss;
	trainee_close(&t);
	return rc;
}

static void a_shard_without_parameters_serves_too(void **state)
{
	(void)state;
	double losses[2];
	for (int i = 0; i < 2; i++) {
		struct training c;
		int dp = i ? 8 : 2;
		training_open_of(&smallest, &c, dp, 0, "job.steps=24");
		assert_int_equal(world_run(dp, train_smallest, &c), 0);
		assert_true(c.board->pieces[0] > 0);
		assert_true((c.board->pieces[dp - 1] == 0) == (dp == 8));
		losses[i] = c.board->last;
		course_close(&c);
	}
	assert_true(losses[0] > 0 && fabs(losses[1] - losses[0]) < 1e-5);
}

/* --- failures --- */

/* Rank 1 is a worker and a server. It dies in the middle of its third step. */
static int die(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double loss, norm;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	for (int step = 0; !rc && step < c->steps; step++) {
		if (comm_rank(world) == 1 && step == 2)
			raise(SIGKILL);
		rc = trainee_step(&t, step, &loss, &norm, e);
	}
	trainee_close(&t);
	return rc ? OTHER : 0;
}

/* Only rank 1 fails, as a rank does that cannot read its data. */
static int fail_alone(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	double loss, norm;
	int rc = trainee_open(&model, &c->job, world, "reference", 1, &t, e);
	for (int step = 0; !rc && step < c->steps; step++) {
		if (comm_rank(world) == 1 && step == 2)
			rc = err_set(e, ERR_IO, "no data");
		else
			rc = trainee_step(&t, step, &loss, &norm, e);
	}
	t.failed = rc != 0;
	trainee_close(&t);
	return rc ? OTHER : 0;
}

static void check_outcomes(world_fn *fn, int of_the_failed)
{
	for (int staleness = 0; staleness < 4; staleness += 3) {
		struct training c;
		int outcomes[WORLD_MAX];
		training_open(&c, 4, staleness, "job.steps=40");
		world_outcomes(4, fn, &c, outcomes);
		for (int r = 0; r < 4; r++)
			assert_int_equal(outcomes[r], r == 1 ? of_the_failed : OTHER);
		course_close(&c);
	}
}

static void a_rank_that_dies_is_an_error_on_all(void **state)
{
	(void)state;
	check_outcomes(die, -1);
}

static void a_rank_that_fails_is_an_error_on_all(void **state)
{
	(void)state;
	check_outcomes(fail_alone, OTHER);
}

/* Ticks keep a server's receive from timing out while its worker computes for longer than
 * network.timeout. The world of this test has a timeout of its own, so the test only shows that
 * ticks between the requests do no harm. */
static void ticks_do_not_disturb(void **state)
{
	(void)state;
	struct training c;
	training_open(&c, 3, 2, "network.timeout=0.001");
	assert_int_equal(world_run(3, count_leads, &c), 0);
	for (int r = 0; r < 3; r++)
		assert_in_range(c.board->lead[r], 0, 2);
	course_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_worker_runs_ahead_by_the_staleness_and_no_further),
		cmocka_unit_test(no_server_allows_a_longer_lead),
		cmocka_unit_test(training_with_staleness_lowers_the_loss),
		cmocka_unit_test(a_gradient_that_is_not_finite_is_not_applied),
		cmocka_unit_test(all_stop_after_the_same_step),
		cmocka_unit_test(all_save_after_the_same_steps),
		cmocka_unit_test(a_shard_without_parameters_serves_too),
		cmocka_unit_test(a_rank_that_dies_is_an_error_on_all),
		cmocka_unit_test(a_rank_that_fails_is_an_error_on_all),
		cmocka_unit_test(ticks_do_not_disturb),
	};
	return cmocka_run_group_tests_name("parameter server", tests, NULL, NULL);
}
