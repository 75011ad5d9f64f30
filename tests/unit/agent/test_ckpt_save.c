/* Saving: what is committed is whole and lasts; whatever fails or dies while it is written, the checkpoint before stays the latest, and valid. */
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/world.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- calls that fail, write short, or are the process's last ---------------------- */

enum what { NOTHING, FAIL, SHORT, DIE_BEFORE, DIE_AFTER };

static struct {
	enum what what;
	int at;          /* which call it hits, from 1 */
	int error;       /* its errno */
	int count;
	char trace[256]; /* a letter a call */
} fault;

static bool hit(enum what what)
{
	return fault.what == what && fault.count == fault.at;
}

static bool begin(char letter)
{
	if (fault.count < (int)sizeof fault.trace - 1)
		fault.trace[fault.count] = letter;
	fault.count++;
	if (hit(DIE_BEFORE))
		_exit(42);
	errno = fault.error;
	return hit(FAIL);
}

static int end(int rc)
{
	int saved = errno;
	if (hit(DIE_AFTER))
		_exit(42);
	errno = saved;
	return rc;
}

static int f_mkdir(const char *path, mode_t mode)
{
	return begin('m') ? -1 : end(mkdir(path, mode));
}

static int f_create(const char *path)
{
	return begin('c') ? -1 : end(ckpt_io_system.create(path));
}

static ssize_t f_write(int fd, const void *data, size_t n)
{
	if (begin('w'))
		return -1;
	ssize_t put = write(fd, data, hit(SHORT) && n > 1 ? n / 2 : n);
	end(0);
	return put;
}

static int f_fsync(int fd)
{
	return begin('f') ? -1 : end(fsync(fd));
}

static int f_close(int fd)
{
	int failed = begin('x');
	return close(fd) || failed ? -1 : end(0);
}

static int f_rename(const char *from, const char *to)
{
	return begin('r') ? -1 : end(rename(from, to));
}

static int f_unlink(const char *path)
{
	return begin('u') ? -1 : end(unlink(path));
}

static int f_rmdir(const char *path)
{
	return begin('d') ? -1 : end(rmdir(path));
}

static const struct ckpt_io faulty = { f_mkdir, f_create, f_write, f_fsync, f_close, f_rename, f_unlink, f_rmdir };

static void set_fault(enum what what, int at, int error)
{
	fault.what = what;
	fault.at = at;
	fault.error = error;
	fault.count = 0;
	memset(fault.trace, 0, sizeof fault.trace);
}

/* --- one rank that saves --------------------------------------------------------- */

static const struct fix_layout whole = { 1, 1, 0 };

struct saver {
	struct comm *world;
	struct ckpt_writer *writer;
	json_t *model, *layout;
};

static int saver_open(struct saver *s, struct comm *world, const struct ckpt_io *io, int64_t keep, struct err *e)
{
	*s = (struct saver){ .world = world, .model = fix_model(), .layout = json_pack("{s:i}", "tp", 1) };
	struct ckpt_options opt = { .dir = fix_dir, .keep = keep, .generation = 3, .model = s->model, .layout = s->layout, .io = io };
	return ckpt_writer_open(world, &opt, &s->writer, e);
}

static void saver_close(struct saver *s)
{
	ckpt_writer_close(s->writer);
	json_decref(s->model);
	json_decref(s->layout);
}

static int save_rank(struct saver *s, const struct fix_layout *l, int rank, int64_t step, struct err *e)
{
	struct ckpt_tensor tensors[FIX_TENSORS];
	struct ckpt_state state = fix_state(step);
	int n = fix_rank(l, rank, step, false, tensors);
	int rc = ckpt_save(s->writer, &state, tensors, n, e) || ckpt_wait(s->writer, e);
	fix_free(tensors, n);
	return rc ? -1 : 0;
}

static int save(struct saver *s, int64_t step, struct err *e)
{
	return save_rank(s, &whole, 0, step, e);
}

static void verify(int64_t step)
{
	struct err e = ERR_INIT;
	if (ckpt_verify(fix_path(step, NULL), &e))
		fail_msg("%s", e.text);
}

/* --- what must hold when nothing fails --------------------------------------------- */

static void a_save_is_committed_whole_and_private(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct ckpt_report r;
	struct stat st;
	(void)state;
	assert_int_equal(saver_open(&s, world_alone(), NULL, 0, &e), 0);
	assert_int_equal(ckpt_committed(s.writer, &r), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(save(&s, 10, &e), 0);
	verify(9);
	verify(10);
	fix_load(fix_path(9, NULL), &whole, 9);
	assert_int_equal(fix_latest(NULL), 10);
	assert_int_equal(ckpt_committed(s.writer, &r), 1);
	assert_int_equal(r.step, 9);
	assert_string_equal(r.path, fix_path(9, NULL));
	assert_string_equal(r.note, "");
	assert_int_equal(stat(fix_path(9, "shard-00000.safetensors"), &st), 0);
	assert_int_equal(r.bytes, st.st_size);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(fix_path(9, NULL), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_true(r.seconds >= r.stall_s && r.stall_s >= 0);
	assert_int_equal(ckpt_committed(s.writer, &r), 1);
	assert_int_equal(r.step, 10);
	assert_int_equal(ckpt_committed(s.writer, &r), 0);
	assert_int_equal(fix_count("step-"), 2);
	assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void count(void *arg)
{
	++*(int *)arg;
}

static void each_piece_written_and_read_is_told(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_tensor tensors[FIX_TENSORS];
	struct ckpt_state st = fix_state(9);
	int pieces = 0;
	struct ckpt_watch watch = { count, &pieces };
	struct comm *world = world_alone();
	struct saver s = { .world = world, .model = fix_model(), .layout = json_object() };
	struct ckpt_options opt = { .dir = fix_dir, .generation = 3, .model = s.model, .layout = s.layout, .watch = &watch };
	(void)state;
	assert_int_equal(ckpt_writer_open(world, &opt, &s.writer, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(pieces, FIX_TENSORS);
	int n = fix_rank(&whole, 0, 9, false, tensors);
	assert_int_equal(ckpt_load(fix_path(9, NULL), s.model, &st, tensors, n, &watch, &e), 0);
	assert_int_equal(pieces, 2 * FIX_TENSORS);
	fix_free(tensors, n);
	saver_close(&s);
	comm_close(world);
}

static void everything_is_synced_before_it_gets_its_name(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	(void)state;
	assert_int_equal(saver_open(&s, world_alone(), &faulty, 0, &e), 0);
	set_fault(NOTHING, 0, 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_string_equal(fault.trace,
			    "mm"         /* the attempt, by rank 0 and as every rank */
			    "cwwwwwwwwfx" /* the shard: header and seven tensors, synced, closed */
			    "fx"         /* its name */
			    "cwfxr"      /* the manifest */
			    "fx"         /* its name */
			    "r"          /* the checkpoint */
			    "fx");       /* its name */
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static sem_t may_write;

static ssize_t late_write(int fd, const void *data, size_t n)
{
	sem_wait(&may_write);
	sem_post(&may_write);
	return write(fd, data, n);
}

static void the_snapshot_is_what_the_tensors_were_at_the_call(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct ckpt_io late = ckpt_io_system;
	struct ckpt_tensor tensors[FIX_TENSORS];
	struct ckpt_state st = fix_state(9);
	(void)state;
	late.write = late_write;
	sem_init(&may_write, 0, 0);
	assert_int_equal(saver_open(&s, world_alone(), &late, 0, &e), 0);
	int n = fix_rank(&whole, 0, 9, false, tensors);
	assert_int_equal(ckpt_save(s.writer, &st, tensors, n, &e), 0); /* returns, though nothing can be written yet */
	for (int i = 0; i < n; i++)
		fix_each(&tensors[i], i, 10, false);
	sem_post(&may_write);
	assert_int_equal(ckpt_wait(s.writer, &e), 0);
	fix_load(fix_path(9, NULL), &whole, 9);
	fix_free(tensors, n);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
	sem_destroy(&may_write);
}

static void the_newest_valid_ones_are_kept(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	(void)state;
	for (int step = 1; step <= 4; step++)
		fix_write(&whole, step);
	assert_int_equal(truncate(fix_path(4, MANIFEST_NAME), 10), 0);
	assert_int_equal(saver_open(&s, world_alone(), NULL, 2, &e), 0);
	assert_int_equal(save(&s, 5, &e), 0); /* 5 and 3 are the newest valid ones; 4 is damaged and may be looked into */
	assert_int_equal(fix_count("step-"), 3);
	verify(3);
	assert_int_equal(save(&s, 6, &e), 0);
	assert_int_equal(fix_count("step-"), 2);
	verify(5);
	verify(6);
	assert_int_equal(save(&s, 2, &e), 0); /* gone back by hand: what was just written is not removed */
	verify(2);
	assert_int_equal(fix_count("step-"), 3);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void a_step_that_is_there_is_replaced(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	(void)state;
	fix_write(&(struct fix_layout){ 2, 2, 0 }, 9);
	assert_int_equal(truncate(fix_path(9, "shard-00000.safetensors"), 10), 0);
	assert_int_equal(saver_open(&s, world_alone(), NULL, 1, &e), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(save(&s, 9, &e), 0);
		verify(9);
		assert_int_equal(fix_count("step-"), 1);
		fix_load(fix_path(9, NULL), &whole, 9);
	}
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static int rename_sent_twice(const char *from, const char *to)
{
	if (rename(from, to))
		return -1;
	errno = ENOENT;
	return -1;
}

static void a_rename_that_nfs_sent_twice_is_a_success(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct ckpt_io nfs = ckpt_io_system;
	(void)state;
	nfs.rename = rename_sent_twice;
	assert_int_equal(saver_open(&s, world_alone(), &nfs, 0, &e), 0);
	if (save(&s, 9, &e))
		fail_msg("%s", e.text);
	verify(9);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void a_folder_that_cannot_be_written_to_is_refused_at_once(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	char dir[sizeof fix_dir], file[PATH_MAX];
	(void)state;
	snprintf(file, sizeof file, "%s/file", fix_dir);
	assert_int_equal(file_replace(file, "", 0, &e), 0);
	strcpy(dir, fix_dir);
	strcat(fix_dir, "/file");
	struct comm *world = world_alone();
	int rc = saver_open(&s, world, NULL, 0, &e);
	strcpy(fix_dir, dir);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_IO);
	assert_non_null(strstr(e.text, "/file: "));
	json_decref(s.model);
	json_decref(s.layout);
	comm_close(world);
}

/* --- one call fails ------------------------------------------------------------------ */

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
		assert_int_equal(saver_open(&s, world_alone(), &faulty, 2, &e), 0);
		k++;
		set_fault(FAIL, k, errors[k % 2]);
		int rc = save(&s, 9, &e);
		if (rc) {
			assert_int_equal(e.code, ERR_IO);
			if (!strstr(e.text, "checkpoint of step 9") || !strstr(e.text, strerror(errors[k % 2])))
				fail_msg("call %d: %s", k, e.text);
		} else {
			struct ckpt_report r;
			assert_int_equal(fix_latest(NULL), 9);
			assert_int_equal(ckpt_committed(s.writer, &r), 1);
			if (fault.count >= k && !r.note[0]) /* only what comes after the commit may fail, and is told */
				fail_msg("the failure of call %d was lost", k);
		}
		assert_true(fix_latest(NULL) == 5 || fix_latest(NULL) == 9);
		verify(fix_latest(NULL));
		verify(5);
		assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
		was_hit = fault.count >= k;
		set_fault(NOTHING, 0, 0);
		if (save(&s, 10, &e)) /* the same writer goes on */
			fail_msg("after call %d failed: %s", k, e.text);
		verify(10);
		struct comm *world = s.world;
		saver_close(&s);
		comm_close(world);
		fix_teardown(NULL);
		fix_setup(NULL);
	}
	assert_true(k > 20);
}

static void short_writes_are_continued(void **state)
{
	(void)state;
	for (int k = 1; k <= 12; k++) {
		struct err e = ERR_INIT;
		struct saver s;
		set_fault(SHORT, k, 0);
		assert_int_equal(saver_open(&s, world_alone(), &faulty, 1, &e), 0);
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
	assert_int_equal(saver_open(&s, world_alone(), &io, 1, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(ckpt_committed(s.writer, &r), 1);
	assert_non_null(strstr(r.note, "cannot remove the folder"));
	assert_int_equal(save(&s, 10, &e), 0);
	assert_int_equal(fix_count("step-"), 1);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static char first_unlinked[PATH_MAX];

static int record_unlink(const char *path)
{
	if (!first_unlinked[0])
		strcpy(first_unlinked, path);
	return unlink(path);
}

static void a_retired_checkpoint_loses_its_manifest_first(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct ckpt_io io = ckpt_io_system;
	(void)state;
	io.unlink = record_unlink;
	fix_write(&(struct fix_layout){ 3, 2, 0 }, 5);
	assert_int_equal(saver_open(&s, world_alone(), &io, 1, &e), 0);
	first_unlinked[0] = '\0';
	assert_int_equal(save(&s, 9, &e), 0);
	assert_string_equal(first_unlinked, fix_path(5, MANIFEST_NAME));
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
	snprintf(attempt, sizeof attempt, "%s/" ATTEMPT_PREFIX "00000007-2-0123456789abcdef", fix_dir);
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
	snprintf(theirs, sizeof theirs, "%s/" ATTEMPT_PREFIX "00000007-4-0123456789abcdef", fix_dir);
	assert_int_equal(mkdir(theirs, 0700), 0);
	assert_int_equal(saver_open(&s, world_alone(), NULL, 1, &e), 0); /* generation 3, a zombie */
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
	for (int step = 5; step <= 6; step++) { /* moved elsewhere, a link in their place */
		fix_write(&whole, step);
		snprintf(kept, sizeof kept, "%s/kept-%d", fix_dir, step);
		assert_int_equal(rename(fix_path(step, NULL), kept), 0);
		assert_int_equal(symlink(kept, fix_path(step, NULL)), 0);
	}
	snprintf(attempt, sizeof attempt, "%s/" ATTEMPT_PREFIX "00000004-1-0123456789abcdef", fix_dir);
	assert_int_equal(symlink(kept, attempt), 0);
	assert_int_equal(fix_latest(NULL), 6);
	assert_int_equal(saver_open(&s, world_alone(), NULL, 1, &e), 0);
	assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
	if (save(&s, 6, &e)) /* takes a link's place, and retires another */
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
	struct ckpt_options opt = { .dir = fix_dir, .owner = "/runs/a", .generation = 1, .model = model, .layout = model };
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

/* In a child with a file system of its own that has room for one checkpoint. */
static int save_twice_on_a_small_disk(void)
{
	struct err e = ERR_INIT;
	struct saver s;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", fix_dir, "tmpfs", 0, "size=28k"))
		return 77;
	if (saver_open(&s, world_alone(), NULL, 0, &e) || save(&s, 9, &e))
		return 1;
	if (save(&s, 10, &e) == 0 || !strstr(e.text, strerror(ENOSPC)) || !strstr(e.text, "free some room"))
		return 2;
	return fix_latest(NULL) == 9 && fix_count(ATTEMPT_PREFIX) == 0 && !ckpt_verify(fix_path(9, NULL), &e) ? 0 : 3;
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

/* --- the process dies at a call ---------------------------------------------------------- */

static int child_save(int64_t step)
{
	pid_t pid = fork();
	int ws;
	if (pid == 0) {
		struct err e = ERR_INIT;
		struct saver s;
		_exit(saver_open(&s, world_alone(), &faulty, 1, &e) || save(&s, step, &e));
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
			/* The next run tidies up, at its start what was being written, at its first commit the rest. */
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

/* --- several ranks ---------------------------------------------------------------------- */

static const struct fix_layout two_by_two = { 2, 2, 0 };

struct ranks {
	int faulty_rank;  /* -1: none */
	enum what what;
	int at;
	unsigned silent;  /* a bit for each rank that gives nothing in the first save */
	bool expect;
	const char *says; /* the error on every rank; NULL: success */
};

/* Exit status: 0 as expected, else which thing was not. */
static int rank_body(struct comm *world, void *arg, struct err *err)
{
	const struct ranks *t = arg;
	struct err e = ERR_INIT;
	int rank = comm_rank(world);
	(void)err;
	struct ckpt_tensor tensors[FIX_TENSORS], all[FIX_TENSORS];
	struct saver s = { .world = world, .model = fix_model(), .layout = json_object() };
	struct ckpt_options opt = { .dir = fix_dir, .generation = 3, .model = s.model, .layout = s.layout, .io = &faulty };
	struct ckpt_state st = fix_state(9);
	if (t->expect) {
		opt.n_expect = fix_rank(&whole, 0, -1, false, all);
		opt.expect = all;
	}
	set_fault(NOTHING, 0, 0);
	if (ckpt_writer_open(world, &opt, &s.writer, &e))
		return 1;
	if (rank == t->faulty_rank)
		set_fault(t->what, t->at, ENOSPC);
	int n = rank < 4 && !(t->silent >> rank & 1) ? fix_rank(&two_by_two, rank, 9, false, tensors) : 0;
	int rc = ckpt_save(s.writer, &st, tensors, n, &e) || ckpt_wait(s.writer, &e);
	if (rc != (t->says != NULL))
		return 2;
	if (rc && !strstr(e.text, t->says)) {
		fprintf(stderr, "rank %d: %s\n", rank, e.text);
		return 3;
	}
	if (t->says && t->what != DIE_BEFORE) { /* the failure is over: the next one succeeds */
		set_fault(NOTHING, 0, 0);
		n = rank < 4 ? fix_rank(&two_by_two, rank, 10, false, tensors) : 0;
		st = fix_state(10);
		if (ckpt_save(s.writer, &st, tensors, n, &e) || ckpt_wait(s.writer, &e))
			return 4;
	}
	saver_close(&s);
	return 0;
}

static void run_ranks(int size, struct ranks t, int64_t latest)
{
	int status[WORLD_MOST];
	world_outcomes(size, rank_body, &t, status);
	for (int r = 0; r < size; r++)
		if (status[r] != (t.what == DIE_BEFORE && r == t.faulty_rank ? 42 : 0))
			fail_msg("rank %d: exit %d", r, status[r]);
	assert_int_equal(fix_latest(NULL), latest);
	verify(latest);
}

static void ranks_make_one_checkpoint_that_any_layout_loads(void **state)
{
	static const struct fix_layout others[] = { { 1, 1, 0 }, { 4, 1, 0 }, { 1, 3, 0 }, { 3, 2, 5 } };
	(void)state;
	run_ranks(6, (struct ranks){ .faulty_rank = -1, .expect = true }, 9);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		fix_load(fix_path(9, NULL), &others[i], 9);
	assert_int_equal(access(fix_path(9, "shard-00003.safetensors"), F_OK), 0);
	assert_int_equal(access(fix_path(9, "shard-00004.safetensors"), F_OK), -1); /* had nothing to write */
}

static void one_ranks_failure_is_everybodys_by_name(void **state)
{
	(void)state;
	for (int rank = 0; rank < 4; rank++)
		for (int at = 2; at <= 4; at++) { /* in the shard: the file, its header, its first tensor */
			char says[32];
			snprintf(says, sizeof says, "rank %d: ", rank);
			fix_write(&whole, 5);
			run_ranks(4, (struct ranks){ .faulty_rank = rank, .what = FAIL, .at = at + (rank == 0), .says = says }, 10);
			verify(5);
			assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
			fix_teardown(NULL);
			fix_setup(NULL);
		}
}

static void a_hole_in_the_coverage_fails_the_save(void **state)
{
	(void)state;
	run_ranks(4, (struct ranks){ .faulty_rank = -1, .silent = 1 << 3, .says = "elements are in no shard" }, 10);
	assert_int_equal(fix_count("step-"), 1);
}

static void a_tensor_that_nobody_gives_is_missed(void **state)
{
	(void)state;
	run_ranks(4, (struct ranks){ .faulty_rank = -1, .silent = 1 << 2 | 1 << 3, .expect = true, .says = "layers.0.attn.q.weight: no rank gave a part of it" }, 10);
}

static void a_rank_that_dies_leaves_the_checkpoint_before(void **state)
{
	(void)state;
	fix_write(&whole, 5);
	for (int rank = 0; rank < 4; rank++)
		run_ranks(4, (struct ranks){ .faulty_rank = rank, .what = DIE_BEFORE, .at = 4, .says = "" }, 5);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_save_is_committed_whole_and_private),
		TEST(each_piece_written_and_read_is_told),
		TEST(everything_is_synced_before_it_gets_its_name),
		TEST(the_snapshot_is_what_the_tensors_were_at_the_call),
		TEST(the_newest_valid_ones_are_kept),
		TEST(a_step_that_is_there_is_replaced),
		TEST(a_rename_that_nfs_sent_twice_is_a_success),
		TEST(a_folder_that_cannot_be_written_to_is_refused_at_once),
		TEST(one_failing_call_fails_the_save_and_nothing_else),
		TEST(short_writes_are_continued),
		TEST(what_was_replaced_can_be_left_behind_and_is_told),
		TEST(a_retired_checkpoint_loses_its_manifest_first),
		TEST(a_dead_writers_attempt_goes_with_the_next_commit),
		TEST(a_later_generations_attempt_is_left_to_it),
		TEST(what_a_link_leads_to_is_not_removed),
		TEST(another_runs_folder_is_refused),
		TEST(a_file_that_may_not_grow_fails_the_save),
		TEST(a_full_disk_keeps_the_checkpoint_before),
		TEST(death_at_any_call_leaves_a_valid_latest),
		TEST(death_while_a_step_is_replaced_leaves_a_valid_latest),
		TEST(ranks_make_one_checkpoint_that_any_layout_loads),
		TEST(one_ranks_failure_is_everybodys_by_name),
		TEST(a_hole_in_the_coverage_fails_the_save),
		TEST(a_tensor_that_nobody_gives_is_missed),
		TEST(a_rank_that_dies_leaves_the_checkpoint_before),
	};
	return cmocka_run_group_tests_name("saving checkpoints", tests, NULL, NULL);
}
