/*
 * Each system call on the files of a save, or of a copy, fails once: with ENOSPC, EIO or EINTR, or
 * it writes half. The save then succeeds, or all ranks report the file and the cause; what was there
 * stays, and the next save of the same processes succeeds.
 *
 * Unlike test_ckpt_faults, which replaces the functions of the writer, this finds every call that
 * the processes make below the folder. MUSTER_LARGE lets every call fail, otherwise SOME of each
 * sweep do (SEED).
 */
#include "agent/engine/ckpt/places/upload.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_saver.h"
#include "tests/unit/agent/crash.h"

#include <sys/wait.h>

enum { RANKS = 2, SOME = 6, TEXT = 1200 };

/* What the ranks report. */
static struct told {
	bool saved[RANKS], saved_next[RANKS];
	char text[RANKS][TEXT];
} * told;

static const struct fault_kind {
	enum crash_what what;
	int error;
	bool passes; /* the process must not notice */
} kinds[] = {
	{ CRASH_FAIL, ENOSPC, false },
	{ CRASH_FAIL, EIO, false },
	{ CRASH_FAIL, EINTR, true },
	{ CRASH_SHORT, 0, true },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct scene {
	const char *name;
	int (*act)(void *arg);
	int who;
	void (*before)(void), (*after)(const char *call, const struct fault_kind *kind, bool hit);
};

static void run_scene(const struct scene *s, const struct crash_plan *plan,
		      const struct fault_kind *kind, struct crash_seen *seen)
{
	char call[1024];
	memset(told, 0, sizeof *told);
	s->before();
	if (crash_run(s->act, NULL, plan, seen))
		fail_msg("%s: %s", s->name, strerror(errno));
	snprintf(call, sizeof call, "%s: %s at call %ld of process %d, %s", s->name,
		 kind->error ? strerror(kind->error) : "half a write", plan->at, plan->who,
		 seen->call);
	s->after(call, kind, seen->hit);
	fix_teardown(NULL);
	fix_setup(NULL);
}

static void sweep(const struct scene *s)
{
	if (!crash_possible())
		skip();
	long points = 0;
	for (int i = 0; i < KINDS * s->who; i++) {
		const struct fault_kind *kind = &kinds[i % KINDS];
		struct crash_plan plan = {
			.who = i / KINDS, .under = fix_dir, .what = kind->what, .error = kind->error
		};
		struct crash_seen seen;
		run_scene(s, &plan, kind, &seen);
		if (!WIFEXITED(seen.status) || WEXITSTATUS(seen.status))
			fail_msg("%s: fails undisturbed", s->name);
		assert_true(seen.count >= (kind->what == CRASH_SHORT ? 1 : 10));
		long distance = crash_choose(&plan, seen.count, SOME);
		for (seen.hit = true; seen.hit; plan.at += distance, points++)
			run_scene(s, &plan, kind, &seen);
	}
	print_message("# %s: %ld points\n", s->name, points);
}

/* --- a save --- */

static const struct fix_layout two = { 2, 1, 0 };

static int be_saver(struct comm *world, void *arg, struct err *e)
{
	int rank = comm_rank(world);
	json_t *model = fix_model(), *layout = json_pack("{s:i}", "tp", 2);
	struct saver s = { .world = world, .model = model, .layout = layout };
	const struct ckpt_options opt = {
		.dir = fix_dir, .keep = 4, .generation = 3, .model = model, .layout = layout
	};
	(void)arg;
	crash_mark(rank);
	if (ckpt_writer_open(world, &opt, &s.writer, e) || save_rank(&s, &two, rank, 9, e))
		snprintf(told->text[rank], TEXT, "%s", e->text);
	else
		told->saved[rank] = true;
	crash_mark(-1);
	*e = (struct err)ERR_INIT;
	told->saved_next[rank] = s.writer && !save_rank(&s, &two, rank, 10, e);
	saver_close(&s);
	return 0;
}

static int save_as_world(void *arg)
{
	int outcomes[RANKS];
	if (!freopen("/dev/null", "w", stderr)) /* what the dead leave behind them */
		return 1;
	world_outcomes(RANKS, be_saver, arg, outcomes);
	return outcomes[0] || outcomes[1];
}

static void before_save(void)
{
	fix_write(&whole, 5);
}

static void after_save(const char *call, const struct fault_kind *kind, bool hit)
{
	bool saved = told->saved[0];
	if (told->saved[1] != saved)
		fail_msg("%s: the ranks do not agree: %s%s", call, told->text[0], told->text[1]);
	if (!saved && (!hit || kind->passes))
		fail_msg("%s: %s", call, told->text[0]);
	for (int rank = 0; rank < RANKS && !saved; rank++)
		if (!strstr(told->text[rank], strerror(kind->error)) ||
		    !strstr(told->text[rank], fix_dir))
			fail_msg("%s: it says only: %s", call, told->text[rank]);
	verify(5);
	if (saved)
		verify(9);
	fix_load(fix_path(5, NULL), &two, 5);
	bool opened = told->saved_next[0];
	if (saved && !opened)
		fail_msg("%s: the next save fails", call);
	if (opened)
		verify(10);
	if (fix_latest(NULL) != (opened ? 10 : 5))
		fail_msg("%s: the latest is %d", call, (int)fix_latest(NULL));
	if (opened && fix_count(ATTEMPT_PREFIX))
		fail_msg("%s: an attempt stays", call);
}

static void a_save_whose_calls_fail_keeps_what_is_there(void **state)
{
	(void)state;
	sweep(&(struct scene){ "save", save_as_world, RANKS, before_save, after_save });
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_save_whose_calls_fail_keeps_what_is_there),
	};
	told = world_shared(sizeof *told);
	log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, "test");
	return cmocka_run_group_tests_name("system calls on checkpoints fail", tests, NULL, NULL);
}
