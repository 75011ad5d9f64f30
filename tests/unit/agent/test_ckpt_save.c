/* Tests saving by one rank and by several: a committed checkpoint is complete and durable. */
#include "tests/unit/agent/ckpt_saver.h"

#include <semaphore.h>
#include <signal.h>

/* --- what must hold when nothing fails --- */

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
	struct ckpt_options opt = { .dir = fix_dir,
				    .generation = 3,
				    .model = s.model,
				    .layout = s.layout,
				    .watch = &watch };
	(void)state;
	assert_int_equal(ckpt_writer_open(world, &opt, &s.writer, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_int_equal(pieces, FIX_TENSORS + 1); /* and when they are durable */
	int n = fix_rank(&whole, 0, 9, false, tensors);
	assert_int_equal(ckpt_load(fix_path(9, NULL), s.model, &st, tensors, n, &watch, &e), 0);
	assert_int_equal(pieces, 2 * FIX_TENSORS + 1);
	fix_free(tensors, n);
	saver_close(&s);
	comm_close(world);
}

static void everything_is_synced_before_it_gets_its_name(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	(void)state;
	assert_int_equal(saver_open(&s, world_alone(), FAULTY, 0, &e), 0);
	set_fault(NOTHING, 0, 0);
	assert_int_equal(save(&s, 9, &e), 0);
	assert_string_equal(fault.trace,
			    "mm"    /* the attempt, by rank 0 and as every rank */
			    "cwfx"  /* the shard, which is small: one write, synced, closed */
			    "fx"    /* its name */
			    "cwfxr" /* the manifest */
			    "fx"    /* its name */
			    "r"     /* the checkpoint */
			    "fx");  /* its name */
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
	assert_int_equal(saver_open(&s, world_alone(), storage_with(&late), 0, &e), 0);
	int n = fix_rank(&whole, 0, 9, false, tensors);
	/* The call returns, although nothing can be written yet. */
	assert_int_equal(ckpt_save(s.writer, &st, tensors, n, &e), 0);
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
	/* 5 and 3 are the latest valid ones. 4 is damaged, and is kept for inspection. */
	assert_int_equal(save(&s, 5, &e), 0);
	assert_int_equal(fix_count("step-"), 3);
	verify(3);
	assert_int_equal(save(&s, 6, &e), 0);
	assert_int_equal(fix_count("step-"), 2);
	verify(5);
	verify(6);
	/* Somebody went back to an earlier step by hand. The checkpoint just written is not
	 * removed. */
	assert_int_equal(save(&s, 2, &e), 0);
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
	assert_int_equal(saver_open(&s, world_alone(), storage_with(&nfs), 0, &e), 0);
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

/* --- several ranks --- */

static const struct fix_layout two_by_two = { 2, 2, 0 };

struct ranks {
	int faulty_rank; /* -1: none */
	enum what what;
	int at;
	unsigned silent; /* a bit per rank that gives nothing in the first save */
	bool expect;
	const char *says; /* the error on every rank; NULL: success */
};

/* Returns the exit status: 0 if everything is as expected, otherwise the number of the failed
 * check. */
static int rank_body(struct comm *world, void *arg, struct err *err)
{
	const struct ranks *t = arg;
	struct err e = ERR_INIT;
	int rank = comm_rank(world);
	(void)err;
	struct ckpt_tensor tensors[FIX_TENSORS], all[FIX_TENSORS];
	struct saver s = { .world = world, .model = fix_model(), .layout = json_object() };
	struct ckpt_options opt = { .dir = fix_dir,
				    .generation = 3,
				    .model = s.model,
				    .layout = s.layout,
				    .storage = FAULTY };
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
	int n = rank < 4 && !(t->silent >> rank & 1)
			? fix_rank(&two_by_two, rank, 9, false, tensors)
			: 0;
	int rc = ckpt_save(s.writer, &st, tensors, n, &e) || ckpt_wait(s.writer, &e);
	if (rc != (t->says != NULL))
		return 2;
	if (rc && !strstr(e.text, t->says)) {
		fprintf(stderr, "rank %d: %s\n", rank, e.text);
		return 3;
	}
	if (t->says && t->what != DIE_BEFORE) { /* the next one succeeds, without the failure */
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
	int status[WORLD_MAX];
	world_outcomes(size, rank_body, &t, status);
	for (int r = 0; r < size; r++)
		if (status[r] != (t.what == DIE_BEFORE && r == t.faulty_rank ? 42 : 0))
			fail_msg("rank %d: exit %d", r, status[r]);
	assert_int_equal(fix_latest(NULL), latest);
	verify(latest);
}

static void ranks_make_one_checkpoint_that_any_layout_loads(void **state)
{
	static const struct fix_layout others[] = {
		{ 1, 1, 0 }, { 4, 1, 0 }, { 1, 3, 0 }, { 3, 2, 5 }
	};
	(void)state;
	run_ranks(6, (struct ranks){ .faulty_rank = -1, .expect = true }, 9);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		fix_load(fix_path(9, NULL), &others[i], 9);
	assert_int_equal(access(fix_path(9, "shard-00003.safetensors"), F_OK), 0);
	/* Rank 4 had nothing to write. */
	assert_int_equal(access(fix_path(9, "shard-00004.safetensors"), F_OK), -1);
}

static void one_ranks_failure_is_everybodys_by_name(void **state)
{
	(void)state;
	for (int rank = 0; rank < 4; rank++)
		/* These calls are in the shard: the file, its header, its first tensor. */
		for (int at = 2; at <= 4; at++) {
			char says[32];
			snprintf(says, sizeof says, "rank %d: ", rank);
			fix_write(&whole, 5);
			run_ranks(4,
				  (struct ranks){ .faulty_rank = rank,
						  .what = FAIL,
						  .at = at + (rank == 0),
						  .says = says },
				  10);
			verify(5);
			assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
			fix_teardown(NULL);
			fix_setup(NULL);
		}
}

static void a_hole_in_the_coverage_fails_the_save(void **state)
{
	(void)state;
	run_ranks(4,
		  (struct ranks){
			  .faulty_rank = -1, .silent = 1 << 3, .says = "elements are in no shard" },
		  10);
	assert_int_equal(fix_count("step-"), 1);
}

static void a_tensor_that_nobody_gives_is_missed(void **state)
{
	(void)state;
	run_ranks(4,
		  (struct ranks){ .faulty_rank = -1,
				  .silent = 1 << 2 | 1 << 3,
				  .expect = true,
				  .says = "layers.0.attn.q.weight: no rank saved any part of it" },
		  10);
}

static void a_rank_that_dies_leaves_the_checkpoint_before(void **state)
{
	(void)state;
	fix_write(&whole, 5);
	for (int rank = 0; rank < 4; rank++)
		run_ranks(4,
			  (struct ranks){
				  .faulty_rank = rank, .what = DIE_BEFORE, .at = 4, .says = "" },
			  5);
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
		TEST(ranks_make_one_checkpoint_that_any_layout_loads),
		TEST(one_ranks_failure_is_everybodys_by_name),
		TEST(a_hole_in_the_coverage_fails_the_save),
		TEST(a_tensor_that_nobody_gives_is_missed),
		TEST(a_rank_that_dies_leaves_the_checkpoint_before),
	};
	return cmocka_run_group_tests_name("saving checkpoints", tests, NULL, NULL);
}
