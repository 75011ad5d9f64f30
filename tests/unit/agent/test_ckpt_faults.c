/* If anything fails or dies while a checkpoint is written, the previous one remains the latest,
 * and valid. */
#include "tests/unit/agent/ckpt_saver.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- one call fails --- */

static void one_failing_call_fails_the_save_and_nothing_else(void **state)
{
	static const int errors[] = { ENOSPC, EIO };
	(void)state;
	int k = 0;
	for (bool was_hit = true; was_hit;) {
		struct err e = ERR_INIT;
		struct saver s;
		fix_write(&whole, 5);
		set_fault(NOTHING, 0, 0);
		assert_int_equal(saver_open(&s, world_alone(), FAULTY, 2, &e), 0);
		k++;
		set_fault(FAIL, k, errors[k % 2]);
		int rc = save(&s, 9, &e);
		if (rc) {
			assert_int_equal(e.code, errors[k % 2] == ENOSPC ? ERR_FULL : ERR_IO);
			if (!strstr(e.text, "checkpoint of step 9") ||
			    !strstr(e.text, strerror(errors[k % 2])))
				fail_msg("call %d: %s", k, e.text);
		} else {
			struct ckpt_report r;
			assert_int_equal(fix_latest(NULL), 9);
			assert_int_equal(ckpt_committed(s.writer, &r), 1);
			/* Only operations after the commit may fail, and the failure must be
			 * reported. */
			if (fault.count >= k && !r.note[0])
				fail_msg("the failure of call %d was lost", k);
		}
		assert_true(fix_latest(NULL) == 5 || fix_latest(NULL) == 9);
		verify(fix_latest(NULL));
		verify(5);
		assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
		was_hit = fault.count >= k;
		set_fault(NOTHING, 0, 0);
		if (save(&s, 10, &e)) /* the same writer continues */
			fail_msg("after call %d failed: %s", k, e.text);
		verify(10);
		struct comm *world = s.world;
		saver_close(&s);
		comm_close(world);
		fix_teardown(NULL);
		fix_setup(NULL);
	}
	assert_true(k > 18); /* the calls up to the publication */
}

static void short_writes_are_continued(void **state)
{
	(void)state;
	for (int k = 1; k <= 12; k++) {
		struct err e = ERR_INIT;
		struct saver s;
		set_fault(SHORT, k, 0);
		assert_int_equal(saver_open(&s, world_alone(), FAULTY, 1, &e), 0);
		assert_int_equal(save(&s, k, &e), 0);
		verify(k);
		struct comm *world = s.world;
		saver_close(&s);
		comm_close(world);
	}
}

static void what_was_replaced_can_be_left_behind_and_is_told(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct ckpt_report r;
	struct ckpt_io io = ckpt_io_system;
	(void)state;
	io.rmdir = f_rmdir;
	set_fault(FAIL, 1, EBUSY);
	fix_write(&whole, 4);
	fix_write(&whole, 5);
	assert_int_equal(saver_open(&s, world_alone(), storage_with(&io), 1, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(ckpt_committed(s.writer, &r), 1);
	assert_non_null(strstr(r.note, "cannot remove the folder"));
	assert_int_equal(save(&s, 10, &e), 0);
	assert_int_equal(fix_count("step-"), 1);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static int unlinked;

static int unlink_without_a_checkpoint(const char *path)
{
	struct stat st;
	unlinked++;
	assert_int_equal(stat(fix_path(5, NULL), &st), -1);
	return unlink(path);
}

static void a_retired_checkpoint_is_none_before_its_files_go(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct ckpt_io io = ckpt_io_system;
	(void)state;
	io.unlink = unlink_without_a_checkpoint;
	fix_write(&(struct fix_layout){ 3, 2, 0 }, 5);
	assert_int_equal(saver_open(&s, world_alone(), storage_with(&io), 1, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_true(unlinked > 2);
	assert_int_equal(fix_count("step-"), 1);
	assert_int_equal(fix_count(".attempt-"), 0);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void a_dead_writers_attempt_goes_with_the_next_commit(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	char attempt[PATH_MAX], shard[PATH_MAX];
	(void)state;
	assert_int_equal(saver_open(&s, world_alone(), NULL, 1, &e), 0);
	snprintf(attempt, sizeof attempt, "%s/" ATTEMPT_PREFIX "00000007-2-0123456789abcdef",
		 fix_dir);
	snprintf(shard, sizeof shard, "%.4000s/shard-00000.safetensors", attempt);
	assert_int_equal(mkdir(attempt, 0700), 0);
	assert_int_equal(file_replace(shard, "half", 4, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void a_later_generations_attempt_is_left_to_it(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	char theirs[PATH_MAX];
	(void)state;
	snprintf(theirs, sizeof theirs, "%s/" ATTEMPT_PREFIX "00000007-4-0123456789abcdef",
		 fix_dir);
	assert_int_equal(mkdir(theirs, 0700), 0);
	/* This saver is of generation 3: it still runs after a later generation has started. */
	assert_int_equal(saver_open(&s, world_alone(), NULL, 1, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(access(theirs, F_OK), 0);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void what_a_link_leads_to_is_not_removed(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	char kept[PATH_MAX], attempt[PATH_MAX];
	(void)state;
	for (int step = 5; step <= 6; step++) { /* moved away; a link is in their place */
		fix_write(&whole, step);
		snprintf(kept, sizeof kept, "%s/kept-%d", fix_dir, step);
		assert_int_equal(rename(fix_path(step, NULL), kept), 0);
		assert_int_equal(symlink(kept, fix_path(step, NULL)), 0);
	}
	snprintf(attempt, sizeof attempt, "%s/" ATTEMPT_PREFIX "00000004-1-0123456789abcdef",
		 fix_dir);
	assert_int_equal(symlink(kept, attempt), 0);
	assert_int_equal(fix_latest(NULL), 6);
	assert_int_equal(saver_open(&s, world_alone(), NULL, 1, &e), 0);
	assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
	if (save(&s, 6, &e)) /* replaces a link, and retires another */
		fail_msg("%s", e.text);
	verify(6);
	assert_int_equal(fix_count("step-"), 1);
	for (int step = 5; step <= 6; step++) {
		snprintf(kept, sizeof kept, "%s/kept-%d", fix_dir, step);
		if (ckpt_verify(kept, &e))
			fail_msg("%s", e.text);
	}
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void another_runs_folder_is_refused(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_writer *w;
	struct comm *world = world_alone();
	json_t *model = fix_model();
	struct ckpt_options opt = {
		.dir = fix_dir, .owner = "/runs/a", .generation = 1, .model = model, .layout = model
	};
	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ckpt_writer_open(world, &opt, &w, &e), 0);
		ckpt_writer_close(w);
	}
	opt.owner = "/runs/b";
	assert_int_equal(ckpt_writer_open(world, &opt, &w, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "of the run /runs/a;"));
	opt.owner = NULL;
	assert_int_equal(ckpt_writer_open(world, &opt, &w, &e), 0);
	ckpt_writer_close(w);
	json_decref(model);
	comm_close(world);
}

static void a_file_that_may_not_grow_fails_the_save(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct rlimit was, small;
	(void)state;
	fix_write(&whole, 5);
	assert_int_equal(saver_open(&s, world_alone(), NULL, 0, &e), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small = was;
	small.rlim_cur = 5000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int rc = save(&s, 9, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -1);
	assert_non_null(strstr(e.text, strerror(EFBIG)));
	assert_int_equal(fix_latest(NULL), 5);
	assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	verify(9);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

/* Runs in a child that has its own file system with room for one checkpoint. */
static int save_twice_on_a_small_disk(void)
{
	struct err e = ERR_INIT;
	struct saver s;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", fix_dir, "tmpfs", 0, "size=28k"))
		return 77;
	if (saver_open(&s, world_alone(), NULL, 0, &e) || save(&s, 9, &e))
		return 1;
	if (save(&s, 10, &e) == 0 || !strstr(e.text, strerror(ENOSPC)) ||
	    !strstr(e.text, "free some room"))
		return 2;
	return fix_latest(NULL) == 9 && fix_count(ATTEMPT_PREFIX) == 0 &&
			       !ckpt_verify(fix_path(9, NULL), &e)
		       ? 0
		       : 3;
}

static void a_full_disk_keeps_the_checkpoint_before(void **state)
{
	int ws;
	(void)state;
	pid_t pid = fork();
	if (pid == 0)
		_exit(save_twice_on_a_small_disk());
	assert_int_equal(waitpid(pid, &ws, 0), pid);
	if (WIFEXITED(ws) && WEXITSTATUS(ws) == 77)
		skip();
	assert_true(WIFEXITED(ws));
	assert_int_equal(WEXITSTATUS(ws), 0);
}

/* --- the process dies at a call --- */

static int child_save(int64_t step)
{
	pid_t pid = fork();
	int ws;
	if (pid == 0) {
		struct err e = ERR_INIT;
		struct saver s;
		_exit(saver_open(&s, world_alone(), FAULTY, 1, &e) || save(&s, step, &e));
	}
	assert_int_equal(waitpid(pid, &ws, 0), pid);
	assert_true(WIFEXITED(ws));
	return WEXITSTATUS(ws);
}

static void die_at_each_call(int64_t before, int64_t step)
{
	for (int k = 1;; k++) {
		bool last = true;
		for (enum what what = DIE_BEFORE; what <= DIE_AFTER; what++) {
			fix_write(&whole, before);
			set_fault(what, k, 0);
			int rc = child_save(step);
			last &= rc == 0;
			if (rc != 0 && rc != 42)
				fail_msg("call %d: exit %d", k, rc);
			int64_t latest = fix_latest(NULL);
			if (latest != before && latest != step)
				fail_msg("call %d: the latest is %d", k, (int)latest);
			char *path = NULL;
			struct err e = ERR_INIT;
			assert_int_equal(ckpt_latest(fix_dir, NULL, &path, NULL, NULL, &e), 0);
			if (ckpt_verify(path, &e))
				fail_msg("call %d: %s", k, e.text);
			free(path);
			if (rc == 0)
				assert_int_equal(latest, step);
			/* The next run cleans up: unfinished checkpoints when it starts,
			 * everything else at its first commit. */
			set_fault(NOTHING, 0, 0);
			assert_int_equal(child_save(step + 1), 0);
			assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
			assert_int_equal(fix_count("step-"), 1);
			verify(step + 1);
			fix_teardown(NULL);
			fix_setup(NULL);
		}
		if (last) {
			assert_true(k > 15);
			return;
		}
	}
}

static void death_at_any_call_leaves_a_valid_latest(void **state)
{
	(void)state;
	die_at_each_call(5, 9);
}

static void death_while_a_step_is_replaced_leaves_a_valid_latest(void **state)
{
	(void)state;
	die_at_each_call(9, 9);
}

static void a_number_that_is_not_finite_is_never_committed(void **state)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	(void)state;
	fix_write(&whole, 5);
	for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
		struct err e = ERR_INIT;
		struct saver s;
		struct ckpt_tensor tensors[FIX_TENSORS];
		struct ckpt_state at = fix_state(9);
		assert_int_equal(saver_open(&s, world_alone(), NULL, 2, &e), 0);
		int n = fix_rank(&whole, 0, 9, false, tensors);
		((float *)(uintptr_t)tensors[n - 1].data)[k] = bad[k];
		assert_int_equal(ckpt_save(s.writer, &at, tensors, n, &e), 0);
		assert_int_equal(ckpt_wait(s.writer, &e), -1);
		assert_int_equal(e.code, ERR_NUMERIC);
		assert_non_null(strstr(e.text, tensors[n - 1].name));
		fix_free(tensors, n);
		assert_int_equal(fix_latest(NULL), 5);
		struct comm *world = s.world;
		saver_close(&s);
		comm_close(world);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(one_failing_call_fails_the_save_and_nothing_else),
		TEST(short_writes_are_continued),
		TEST(what_was_replaced_can_be_left_behind_and_is_told),
		TEST(a_retired_checkpoint_is_none_before_its_files_go),
		TEST(a_dead_writers_attempt_goes_with_the_next_commit),
		TEST(a_later_generations_attempt_is_left_to_it),
		TEST(what_a_link_leads_to_is_not_removed),
		TEST(another_runs_folder_is_refused),
		TEST(a_file_that_may_not_grow_fails_the_save),
		TEST(a_number_that_is_not_finite_is_never_committed),
		TEST(a_full_disk_keeps_the_checkpoint_before),
		TEST(death_at_any_call_leaves_a_valid_latest),
		TEST(death_while_a_step_is_replaced_leaves_a_valid_latest),
	};
	return cmocka_run_group_tests_name("failures while checkpoints are saved", tests, NULL,
					   NULL);
}
