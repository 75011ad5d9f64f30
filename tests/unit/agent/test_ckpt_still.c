/* Slices that do not change are links to the file of the checkpoint before, and every checkpoint is
 * whole without the others. */
#include "agent/engine/ckpt/places/copy.h"
#include "agent/engine/ckpt/places/repair.h"
#include "agent/engine/ckpt/save/still.h"
#include "tests/unit/agent/ckpt_saver.h"

#define STILL  "shard-00000-still.safetensors"
#define MOVING "shard-00000.safetensors"

enum { ROWS = 300, COLUMNS = 1024, COUNT = ROWS * COLUMNS, TENSORS = 3 };

/* Tensor 0 moves; 1 and 2 stand still unless a test changes them. */
struct scene {
	struct saver saver;
	struct ckpt_tensor tensors[TENSORS];
	int64_t step;
};

static void open_scene(struct scene *c, const struct ckpt_storage *storage, int64_t keep)
{
	struct err e = ERR_INIT;
	*c = (struct scene){ .step = 0 };
	for (int i = 0; i < TENSORS; i++) {
		struct ckpt_tensor *t = &c->tensors[i];
		*t = (struct ckpt_tensor){ .dims = 2,
					   .shape = { ROWS, COLUMNS },
					   .hi = { ROWS, COLUMNS },
					   .data = malloc(COUNT * sizeof(float)) };
		snprintf(t->name, sizeof t->name, "tensor.%d", i);
		for (int k = 0; k < COUNT; k++)
			t->data[k] = (float)(k % 1000 + i);
	}
	if (saver_open(&c->saver, world_alone(), storage, keep, &e))
		fail_msg("%s", e.text);
}

static void close_scene(struct scene *c)
{
	struct comm *world = c->saver.world;
	saver_close(&c->saver);
	comm_close(world);
	fix_free(c->tensors, TENSORS);
}

static int try_save(struct scene *c, struct err *e)
{
	c->step++;
	for (int k = 0; k < COUNT; k++)
		c->tensors[0].data[k] = (float)(c->step * 1000 + k);
	struct ckpt_state state = fix_state(c->step);
	return ckpt_save(c->saver.writer, &state, c->tensors, TENSORS, e) ||
	       ckpt_wait(c->saver.writer, e);
}

/* The checkpoint at `path` holds exactly the tensors. */
static void check_path(const struct scene *c, const char *path)
{
	struct err e = ERR_INIT;
	struct ckpt_state state;
	struct ckpt_tensor back[TENSORS];
	if (ckpt_verify(path, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < TENSORS; i++) {
		back[i] = c->tensors[i];
		back[i].data = malloc(COUNT * sizeof(float));
	}
	if (ckpt_load(path, c->saver.model, &state, back, TENSORS, NULL, &e))
		fail_msg("%s", e.text);
	for (int i = 0; i < TENSORS; i++)
		assert_memory_equal(back[i].data, c->tensors[i].data, COUNT * sizeof(float));
	fix_free(back, TENSORS);
}

static void save_next(struct scene *c)
{
	struct err e = ERR_INIT;
	if (try_save(c, &e))
		fail_msg("%s", e.text);
	check_path(c, fix_path(c->step, NULL));
}

static void save_times(struct scene *c, int n)
{
	for (int i = 0; i < n; i++)
		save_next(c);
}

static struct stat look(int64_t step, const char *file)
{
	struct stat st;
	if (stat(fix_path(step, file), &st))
		fail_msg("%s: %s", fix_path(step, file), strerror(errno));
	return st;
}

static bool linked(int64_t a, int64_t b)
{
	return look(a, STILL).st_ino == look(b, STILL).st_ino;
}

static void what_stands_still_is_written_once(void **state)
{
	struct scene c;
	(void)state;
	open_scene(&c, NULL, 0);
	save_times(&c, 5);
	assert_int_equal(access(fix_path(1, STILL), F_OK), -1);
	assert_true(look(1, MOVING).st_size > TENSORS * COUNT * 4);
	for (int64_t step = 2; step <= 5; step++) {
		assert_true(linked(2, step));
		assert_true(look(step, MOVING).st_size < 2 * COUNT * 4);
	}
	assert_int_equal(look(5, STILL).st_nlink, 4);
	for (int64_t step = 1; step <= 5; step++)
		verify(step);
	close_scene(&c);
}

static void each_checkpoint_lives_without_the_others(void **state)
{
	struct scene c;
	(void)state;
	open_scene(&c, NULL, 1);
	save_times(&c, 6);
	assert_int_equal(fix_count("step-"), 1);
	assert_int_equal(look(6, STILL).st_nlink, 1);
	check_path(&c, fix_path(6, NULL));
	/* The one before may also disappear in another way. */
	struct err e = ERR_INIT;
	assert_int_equal(ckpt_storage_posix.ops->remove(&ckpt_storage_posix, fix_path(6, NULL), &e),
			 0);
	save_times(&c, 2);
	assert_true(look(8, STILL).st_size > 2 * COUNT * 4);
	close_scene(&c);
}

/* The last element: a glance at the first bytes sees no difference. */
static void a_slice_that_changes_again_is_written_again(void **state)
{
	struct scene c;
	(void)state;
	open_scene(&c, NULL, 0);
	save_times(&c, 3);
	c.tensors[2].data[COUNT - 1] += 1;
	save_next(&c);
	assert_false(linked(3, 4));
	assert_true(look(4, STILL).st_size < 2 * COUNT * 4);
	save_times(&c, 2); /* it stands still again */
	assert_false(linked(4, 5));
	assert_true(linked(5, 6));
	c.tensors[2].data[COUNT - 1] -= 1;
	check_path(&(struct scene){ .saver = c.saver,
				    .tensors = { c.tensors[1], c.tensors[1], c.tensors[2] } },
		   fix_path(3, NULL));
	close_scene(&c);
}

static void only_the_file_that_was_written_is_linked(void **state)
{
	struct scene c;
	(void)state;
	open_scene(&c, NULL, 0);
	save_times(&c, 3);
	/* Somebody writes into the file, or puts another one in its place. */
	int fd = open(fix_path(3, STILL), O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, COUNT), 1);
	close(fd);
	save_times(&c, 2);
	assert_false(linked(3, 4));
	assert_true(linked(4, 5));
	assert_int_equal(rename(fix_path(3, STILL), fix_path(5, STILL)), 0);
	save_next(&c);
	assert_false(linked(5, 6));
	assert_int_equal(look(6, STILL).st_nlink, 1);
	close_scene(&c);
}

static int no_link(const char *from, const char *to)
{
	(void)from, (void)to;
	errno = EPERM;
	return -1;
}

static void without_links_everything_is_written(void **state)
{
	struct scene c;
	struct ckpt_io io = ckpt_io_system;
	(void)state;
	io.link = no_link;
	open_scene(&c, storage_with(&io), 0);
	save_times(&c, 4);
	assert_false(linked(3, 4));
	assert_int_equal(look(4, STILL).st_nlink, 1);
	close_scene(&c);
}

static ssize_t full_disk(int fd, const void *data, size_t n)
{
	(void)fd, (void)data, (void)n;
	errno = ENOSPC;
	return -1;
}

static void after_a_failed_save_nothing_is_linked(void **state)
{
	struct scene c;
	struct err e = ERR_INIT;
	struct ckpt_io io = ckpt_io_system;
	(void)state;
	open_scene(&c, storage_with(&io), 0);
	save_times(&c, 3);
	io.write = full_disk;
	storage_with(&io);
	assert_int_equal(try_save(&c, &e) != 0, 1);
	assert_int_equal(e.code, ERR_FULL);
	assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
	verify(3);
	io.write = write;
	save_times(&c, 3);
	assert_true(linked(6, 7));
	assert_false(linked(3, 7));
	close_scene(&c);
}

static void a_new_writer_links_nothing(void **state)
{
	struct scene c;
	(void)state;
	open_scene(&c, NULL, 0);
	save_times(&c, 3);
	close_scene(&c);
	open_scene(&c, NULL, 0);
	c.step = 3;
	save_times(&c, 2);
	assert_false(linked(3, 5));
	close_scene(&c);
}

static void flip(const char *path, off_t at)
{
	char byte;
	int fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void a_linked_file_is_copied_and_repaired_like_any_other(void **state)
{
	struct scene c;
	struct err e = ERR_INIT;
	struct ckpt_repair r;
	char dir[sizeof fix_dir + 32], copy[sizeof dir + 32];
	(void)state;
	open_scene(&c, NULL, 0);
	save_times(&c, 4);
	snprintf(dir, sizeof dir, "%s/copies", fix_dir);
	snprintf(copy, sizeof copy, "%s/step-00000004", dir);
	if (ckpt_copy(fix_path(4, NULL), dir, NULL, &e))
		fail_msg("%s", e.text);
	check_path(&c, copy);
	flip(fix_path(4, STILL), 20);        /* its header */
	flip(fix_path(4, STILL), COUNT * 4); /* a slice */
	assert_int_not_equal(ckpt_verify(fix_path(4, NULL), &e), 0);
	assert_int_equal(ckpt_verify(copy, &e), 0);
	if (ckpt_repair(fix_path(4, NULL), copy, false, &r, &e))
		fail_msg("%s", e.text);
	assert_int_equal(r.headers, 1);
	assert_int_equal(r.fetched, 1);
	check_path(&c, fix_path(4, NULL));
	close_scene(&c);
}

static void little_that_stands_still_is_not_worth_a_file(void **state)
{
	struct scene c;
	(void)state;
	open_scene(&c, NULL, 0);
	for (int i = 1; i < TENSORS; i++)
		c.tensors[i].shape[0] = c.tensors[i].hi[0] = STILL_LEAST / 4 / COLUMNS / 2 - 1;
	struct err e = ERR_INIT;
	for (int i = 0; i < 3; i++)
		assert_int_equal(try_save(&c, &e), 0);
	assert_int_equal(access(fix_path(3, STILL), F_OK), -1);
	verify(3);
	close_scene(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, fix_setup, fix_teardown)
		CASE(what_stands_still_is_written_once),
		CASE(each_checkpoint_lives_without_the_others),
		CASE(a_slice_that_changes_again_is_written_again),
		CASE(only_the_file_that_was_written_is_linked),
		CASE(without_links_everything_is_written),
		CASE(after_a_failed_save_nothing_is_linked),
		CASE(a_new_writer_links_nothing),
		CASE(a_linked_file_is_copied_and_repaired_like_any_other),
		CASE(little_that_stands_still_is_not_worth_a_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
