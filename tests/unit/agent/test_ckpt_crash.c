/*
 * The processes that save, copy or load a checkpoint are killed at each of their system calls, and
 * then run again. Nothing that was announced is lost, no wrong byte is loaded, and nothing of the
 * dead stays.
 *
 * MUSTER_LARGE kills at every call; otherwise SOME calls of each sweep are tried, from a random one
 * on (SEED sets it).
 */
#include "agent/engine/ckpt/places/upload.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_saver.h"
#include "tests/unit/agent/crash.h"
#include "tests/unit/agent/s3_double.h"

#include <signal.h>
#include <sys/wait.h>

enum { RANKS = 2, SOME = 12 };

/* What the processes announce before they are killed. */
static struct told {
	int64_t steps[8];
	int n;
} * told;

static void tell(int64_t step)
{
	told->steps[told->n++] = step;
}

/* One way to kill, and what is killed. */
struct scene {
	const char *name;
	int (*act)(void *arg); /* in a process of its own; marks itself */
	int who;               /* how many marks there are */
	void (*before)(void), (*after)(const char *call);
};

static void run_scene(const struct scene *s, const struct crash_plan *plan, struct crash_seen *seen)
{
	memset(told, 0, sizeof *told);
	s->before();
	if (crash_run(s->act, NULL, plan, seen))
		fail_msg("%s: %s", s->name, strerror(errno));
	char call[1024];
	static const char *const whats[] = { "", "all killed", "one killed" };
	snprintf(call, sizeof call, "%s: %s before call %ld of process %d, %s", s->name,
		 whats[plan->what], plan->at, plan->who, seen->call);
	s->after(call);
	fix_teardown(NULL);
	fix_setup(NULL);
}

static void sweep(const struct scene *s)
{
	if (!crash_possible())
		skip();
	long points = 0, calls = 0;
	for (int i = 0; i < 2 * s->who; i++) {
		struct crash_plan plan = { .who = i / 2 };
		struct crash_seen seen;
		run_scene(s, &plan, &seen);
		if (!WIFEXITED(seen.status) || WEXITSTATUS(seen.status))
			fail_msg("%s: fails undisturbed", s->name);
		assert_true(seen.count > 20);
		calls += seen.count;
		long distance = crash_choose(&plan, seen.count, SOME);
		plan.what = i % 2 ? CRASH_ONE : CRASH_ALL;
		/* The number of calls varies: the sweep ends when none is hit. */
		for (seen.hit = true; seen.hit; plan.at += distance, points++)
			run_scene(s, &plan, &seen);
	}
	print_message("# %s: %ld points of %ld calls\n", s->name, points, calls);
}

/* --- a save --- */

static const struct fix_layout two = { 2, 1, 0 };

static const char *save_dir = fix_dir;

static int save_step(struct comm *world, uint32_t generation, int64_t keep, int64_t step,
		     struct err *e)
{
	json_t *model = fix_model(), *layout = json_pack("{s:i}", "tp", 2);
	struct saver s = { .world = world, .model = model, .layout = layout };
	const struct ckpt_options opt = { .dir = save_dir,
					  .keep = keep,
					  .generation = generation,
					  .model = model,
					  .layout = layout };
	struct ckpt_report report;
	int rc = ckpt_writer_open(world, &opt, &s.writer, e) ||
				 save_rank(&s, &two, comm_rank(world), step, e)
			 ? -1
			 : 0;
	if (!rc && ckpt_committed(s.writer, &report) == 1)
		tell(report.step);
	saver_close(&s);
	return rc;
}

static int be_saver(struct comm *world, void *arg, struct err *e)
{
	(void)arg;
	crash_mark(comm_rank(world));
	return save_step(world, 3, 2, 9, e);
}

static int be_next_saver(struct comm *world, void *arg, struct err *e)
{
	(void)arg;
	return save_step(world, 4, 1, 10, e);
}

static int save_as_world(void *arg)
{
	int outcomes[RANKS];
	if (!freopen("/dev/null", "w", stderr)) /* what the dead leave behind them */
		return 1;
	world_outcomes(RANKS, be_saver, arg, outcomes);
	return outcomes[0] || outcomes[1];
}

/* Every checkpoint that is there is whole and right. Returns the last one's step. */
static int64_t check_all(const char *call, int64_t a, int64_t b)
{
	const int64_t steps[] = { a, b };
	for (int i = 0; i < 2; i++) {
		struct err e = ERR_INIT;
		if (access(fix_path(steps[i], NULL), F_OK))
			continue;
		if (ckpt_verify(fix_path(steps[i], NULL), &e))
			fail_msg("%s: %s", call, e.text);
		fix_load(fix_path(steps[i], NULL), &whole, steps[i]);
	}
	return fix_latest(NULL);
}

static void after_save(const char *call, int64_t before)
{
	int64_t latest = check_all(call, before, 9);
	if (latest != before && latest != 9)
		fail_msg("%s: the latest is %d", call, (int)latest);
	if (told->n && latest != 9)
		fail_msg("%s: 9 was announced, and %d is the latest", call, (int)latest);
	if (world_run(RANKS, be_next_saver, NULL))
		fail_msg("%s: the next run does not save", call);
	verify(10);
	if (fix_count(ATTEMPT_PREFIX) || fix_count("step-") != 1)
		fail_msg("%s: something stays", call);
}

static void before_new_step(void)
{
	fix_write(&whole, 5);
}

static void after_new_step(const char *call)
{
	if (access(fix_path(5, NULL), F_OK))
		fail_msg("%s: the checkpoint before is gone", call);
	after_save(call, 5);
}

static void before_same_step(void)
{
	fix_write(&whole, 9);
}

static void after_same_step(const char *call)
{
	after_save(call, 9);
}

static void a_save_is_killed_at_each_call(void **state)
{
	(void)state;
	sweep(&(struct scene){ "save", save_as_world, RANKS, before_new_step, after_new_step });
}

static void a_save_that_replaces_its_step_is_killed_at_each_call(void **state)
{
	(void)state;
	sweep(&(struct scene){ "replace", save_as_world, RANKS, before_same_step,
			       after_same_step });
}

/* --- a copy to a remote place --- */

static char remote[sizeof fix_dir + 32];
static bool in_store;

static int upload(void *arg)
{
	const struct upload_options o = { .dir = fix_dir,
					  .remote = remote,
					  .owner = "/runs/a",
					  .rules = { .last = 100, .keep = 2 } };
	struct upload_result r;
	struct err e = ERR_INIT;
	int rc;
	if (!arg)
		crash_mark(0);
	while ((rc = ckpt_upload_one(&o, &r, &e)) == 1)
		tell(r.copy.step);
	if (rc)
		fprintf(stderr, "%s\n", e.text);
	return rc ? 1 : 0;
}

static void before_upload(void)
{
	static int n;
	if (in_store)
		snprintf(remote, sizeof remote, "s3://bucket/run-%d", n++);
	else
		snprintf(remote, sizeof remote, "%s/remote", fix_dir);
	fix_write(&two, 10);
	fix_write(&whole, 20);
}

/* What is there is whole, and is what was copied. `all`: both steps are there. */
static int check_copies(bool all, struct err *e)
{
	const struct ckpt_storage *s = ckpt_storage_of(remote);
	for (int64_t step = 10; step <= 20; step += 10) {
		struct buf here = BUF_INIT, there = BUF_INIT;
		char name[16], path[PATH_MAX], file[PATH_MAX];
		bool said = all;
		for (int i = 0; i < told->n; i++)
			said |= told->steps[i] == step;
		snprintf(name, sizeof name, "step-%08d", (int)step);
		int has = ckpt_storage_has(s, remote, name, e);
		if (has < 0)
			return -1;
		if (said && !has)
			return err_set(e, ERR_INTERNAL, "%s was announced, and is lost", name);
		if (!has)
			continue;
		int rc = ckpt_storage_join(path, sizeof path, remote, name, e) ||
			 ckpt_storage_join(file, sizeof file, path, MANIFEST_NAME, e) ||
			 ckpt_verify(path, e) || ckpt_verify(fix_path(step, NULL), e) ||
			 ckpt_storage_read_whole(s, file, 1 << 20, &there, e) ||
			 file_slurp_own(fix_path(step, MANIFEST_NAME), 1 << 20, &here, e);
		if (!rc && (here.len != there.len || memcmp(here.data, there.data, here.len)))
			rc = err_set(e, ERR_INTERNAL, "%s is another one than here", name);
		buf_fini(&here);
		buf_fini(&there);
		if (rc)
			return -1;
	}
	return 0;
}

static int check_no_attempts(struct err *e)
{
	const struct ckpt_storage *s = ckpt_storage_of(remote);
	struct ckpt_storage_names names;
	int rc = ckpt_storage_names_of(s, remote, &names, e);
	if (rc)
		return rc;
	for (size_t i = 0; i < names.n; i++)
		if (!strncmp(names.names[i], ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX)))
			rc = err_set(e, ERR_INTERNAL, "%s stays", names.names[i]);
	ckpt_storage_names_free(&names);
	return rc;
}

/* In a process of its own: connections to a store do not survive fork(2). */
static int check_then_go_on(struct comm *world, void *arg, struct err *e)
{
	(void)world;
	(void)arg;
	if (check_copies(false, e))
		return -1;
	if (upload(e))
		return err_set(e, ERR_INTERNAL, "the next process does not copy");
	return check_copies(true, e) || check_no_attempts(e) ? -1 : 0;
}

static void after_upload(const char *call)
{
	if (world_run(1, check_then_go_on, NULL))
		fail_msg("%s", call);
}

static void a_copy_to_a_folder_is_killed_at_each_call(void **state)
{
	(void)state;
	in_store = false;
	sweep(&(struct scene){ "upload", upload, 1, before_upload, after_upload });
}

/* --- a save to a store --- */

static int be_first_saver(struct comm *world, void *arg, struct err *e)
{
	(void)arg;
	return save_step(world, 2, 2, 5, e);
}

static void before_store_save(void)
{
	static int n;
	snprintf(remote, sizeof remote, "s3://bucket/save-%d", n++);
	if (world_run(RANKS, be_first_saver, NULL))
		fail_msg("the first save fails");
	told->n = 0;
}

/* The last checkpoint is valid, and not older than what was announced. */
static int check_store(struct comm *world, void *arg, struct err *e)
{
	char *path = NULL;
	(void)world;
	(void)arg;
	if (ckpt_latest(remote, NULL, &path, NULL, NULL, e))
		return -1;
	int64_t step = path ? strtoll(strstr(path, "/step-") + 6, NULL, 10) : 0;
	int rc = path ? ckpt_verify(path, e) : -1;
	if (!rc && step != (told->n ? told->steps[told->n - 1] : step))
		rc = err_set(e, ERR_INTERNAL, "%s is the latest", path);
	if (!rc && step != 5 && step < 9)
		rc = err_set(e, ERR_INTERNAL, "%s is there", path);
	free(path);
	return rc;
}

static int count_store(struct comm *world, void *arg, struct err *e)
{
	const struct ckpt_storage *s = ckpt_storage_of(remote);
	struct ckpt_storage_names names;
	(void)arg;
	int rc = ckpt_storage_names_of(s, remote, &names, e);
	if (rc)
		return rc;
	/* The small object with which a writer that died tried the store may stay. */
	for (size_t i = 0; i < names.n && !rc; i++)
		if (strcmp(names.names[i], "step-00000010") &&
		    strncmp(names.names[i], ".probe-", 7))
			rc = err_set(e, ERR_INTERNAL, "%s stays", names.names[i]);
	ckpt_storage_names_free(&names);
	return rc ? rc : check_store(world, NULL, e);
}

static void after_store_save(const char *call)
{
	if (world_run(1, check_store, NULL))
		fail_msg("%s", call);
	if (world_run(RANKS, be_next_saver, NULL) || world_run(1, count_store, NULL))
		fail_msg("%s: the next run", call);
}

static void a_save_to_a_store_is_killed_at_each_call(void **state)
{
	(void)state;
	if (!crash_possible() || !s3_double_start())
		skip();
	s3_double_plan("");
	save_dir = remote;
	sweep(&(struct scene){ "save to a store", save_as_world, RANKS, before_store_save,
			       after_store_save });
	save_dir = fix_dir;
	s3_double_stop();
}

static void a_copy_to_a_store_is_killed_at_each_call(void **state)
{
	(void)state;
	in_store = true;
	if (!crash_possible() || !s3_double_start())
		skip();
	s3_double_plan("");
	sweep(&(struct scene){ "upload to a store", upload, 1, before_upload, after_upload });
	s3_double_stop();
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_save_is_killed_at_each_call),
		TEST(a_save_that_replaces_its_step_is_killed_at_each_call),
		TEST(a_copy_to_a_folder_is_killed_at_each_call),
		TEST(a_copy_to_a_store_is_killed_at_each_call),
		TEST(a_save_to_a_store_is_killed_at_each_call),
	};
	told = world_shared(sizeof *told);
	log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_ERROR, "test");
	return cmocka_run_group_tests_name("processes die at their system calls", tests, NULL,
					   NULL);
}
