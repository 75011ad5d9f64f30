/*
 * Two ranks resume from the last checkpoint. At each system call of that they are killed, or the
 * call fails: with EIO or EINTR, or it reads half. They resume from the last checkpoint, whose bits
 * are right, or fail with the file and the cause, and then resume when they are started again. They
 * never fall back to an older checkpoint, because what could not be read is not damaged.
 *
 * MUSTER_LARGE tries every call, otherwise SOME of each sweep (SEED).
 */
#include "base/log.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/crash.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <errno.h>
#include <sys/wait.h>

enum { RANKS = 2, SOME = 6, OLD = 1, LAST = 2, STEPS = 3, TEXT = 1200 };

static const struct tiny gpt2 = {
	"gpt2", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 4, 0.1
};

static struct told {
	int from[RANKS]; /* the step resumed from; 0: failed */
	double loss[RANKS], norm[RANKS];
	char text[RANKS][TEXT];
} * told, undisturbed;

static struct job job;

static int save_two(struct comm *world, void *arg, struct err *e)
{
	struct trainee t;
	double loss, norm;
	int rc = trainee_open(&gpt2, &job, world, "cpu", 1, &t, e);
	(void)arg;
	for (int step = 0; step < LAST && !rc; step++)
		rc = trainee_step(&t, step, &loss, &norm, e) ||
		     trainee_save(&t, fix_dir, step + 1, e);
	trainee_close(&t);
	return rc;
}

static int resume(struct comm *world, void *arg, struct err *e)
{
	struct trainee t = { 0 };
	int rank = comm_rank(world);
	(void)arg;
	if (!freopen("/dev/null", "w", stderr)) /* what the dead leave behind them */
		return -1;
	crash_mark(rank);
	int rc = trainee_resume(&gpt2, &job, world, "cpu", 1, fix_dir, &t, e);
	crash_mark(-1);
	if (rc)
		snprintf(told->text[rank], TEXT, "%s", e->text);
	for (int step = t.from; step < STEPS && !rc; step++)
		rc = trainee_step(&t, step, &told->loss[rank], &told->norm[rank], e);
	if (!rc)
		told->from[rank] = t.from;
	trainee_close(&t);
	return 0;
}

static int resume_as_world(void *arg)
{
	int outcomes[RANKS];
	world_outcomes(RANKS, resume, arg, outcomes);
	return outcomes[0] || outcomes[1];
}

/* Both ranks resumed from the last checkpoint, and the steps after it are the same to the bit. */
static void check_resumed(const char *call)
{
	for (int rank = 0; rank < RANKS; rank++)
		if (told->from[rank] != LAST ||
		    memcmp(&told->loss[rank], &undisturbed.loss[rank], sizeof(double)) ||
		    memcmp(&told->norm[rank], &undisturbed.norm[rank], sizeof(double)))
			fail_msg("%s: rank %d resumes from step %d with the loss %.17g, %s", call,
				 rank, told->from[rank], told->loss[rank], told->text[rank]);
}

static void resume_again(const char *call)
{
	struct err e = ERR_INIT;
	memset(told, 0, sizeof *told);
	for (int step = OLD; step <= LAST; step++)
		if (ckpt_verify(fix_path(step, NULL), &e))
			fail_msg("%s: %s", call, e.text);
	if (resume_as_world(NULL))
		fail_msg("%s: the next start fails", call);
	check_resumed(call);
}

static const struct kind {
	const char *name;
	enum crash_what what;
	int error;
} kinds[] = {
	{ "all killed", CRASH_ALL, 0 },  { "one killed", CRASH_ONE, 0 },
	{ "an error", CRASH_FAIL, EIO }, { "a signal", CRASH_FAIL, EINTR },
	{ "half read", CRASH_SHORT, 0 },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void check_disturbed(const struct kind *kind, const char *call)
{
	int from = told->from[0];
	if (kind->what == CRASH_ALL || kind->what == CRASH_ONE) {
		resume_again(call);
	} else if (kind->error == EIO && !from) {
		for (int rank = 0; rank < RANKS; rank++)
			if (told->from[rank] || !told->text[rank][0])
				fail_msg("%s: the ranks do not agree", call);
		if (!strstr(told->text[0], fix_dir) && !strstr(told->text[1], fix_dir))
			fail_msg("%s: it says only: %s; %s", call, told->text[0], told->text[1]);
		resume_again(call);
	} else {
		check_resumed(call);
	}
}

static void sweep(const struct kind *kind)
{
	long points = 0;
	for (int who = 0; who < RANKS; who++) {
		struct crash_plan plan = { .who = who, .error = kind->error };
		struct crash_seen seen;
		if (kind->what == CRASH_FAIL || kind->what == CRASH_SHORT)
			plan.under = fix_dir;
		memset(told, 0, sizeof *told);
		if (crash_run(resume_as_world, NULL, &plan, &seen))
			fail_msg("%s", strerror(errno));
		undisturbed = *told;
		check_resumed("undisturbed");
		assert_true(seen.count > 3);
		long distance = crash_choose(&plan, seen.count, SOME);
		plan.what = kind->what;
		for (seen.hit = true; seen.hit; plan.at += distance, points++) {
			char call[1024];
			memset(told, 0, sizeof *told);
			if (crash_run(resume_as_world, NULL, &plan, &seen))
				fail_msg("%s", strerror(errno));
			snprintf(call, sizeof call, "%s at call %ld of rank %d, %s", kind->name,
				 plan.at, who, seen.call);
			check_disturbed(kind, call);
		}
	}
	print_message("# %s: %ld points\n", kind->name, points);
}

static void resuming_survives(void **state)
{
	struct err e = ERR_INIT;
	const char *words[] = { "parallel.tp=2", NULL };
	if (!crash_possible())
		skip();
	assert_int_equal(trainee_job(&gpt2, words, &job, &e), 0);
	assert_int_equal(world_run(RANKS, save_two, NULL), 0);
	sweep(*state);
}

int main(void)
{
#define ROW(k) \
	{ \
		"resuming survives: " k, resuming_survives, fix_setup, fix_teardown, NULL \
	}
	struct CMUnitTest tests[] = { ROW("all killed"), ROW("one killed"), ROW("an error"),
				      ROW("a signal"), ROW("half read") };
	_Static_assert(sizeof tests / sizeof *tests == KINDS, "a test for each kind");
	for (int i = 0; i < KINDS; i++)
		tests[i].initial_state = (void *)&kinds[i];
	told = world_shared(sizeof *told);
	log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, "test");
	return cmocka_run_group_tests_name("resuming, call by call", tests, NULL, NULL);
}
