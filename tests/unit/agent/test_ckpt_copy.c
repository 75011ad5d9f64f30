/* Copies of checkpoints between storages: whole, verified, continued, limited, stopped. */
#include "tests/unit/agent/ckpt_memory_storage.h"
#include "tests/unit/agent/ckpt_storages.h"
#include "tests/unit/agent/ckpt_saver.h"

#include "agent/engine/ckpt/places/copy.h"
#include "agent/engine/ckpt/places/hold.h"
#include "agent/engine/ckpt/storage/pace.h"

#define BUCKET MEMORY_SCHEME "bucket/ckpt"

static const struct fix_layout split = { 2, 2, 7 };

static char original[sizeof fix_dir], other[PATH_MAX];

static int setup(void **state)
{
	if (fix_setup(state))
		return -1;
	strcpy(original, fix_dir);
	snprintf(other, sizeof other, "%s/other", fix_dir);
	fix_write(&split, 9);
	return 0;
}

static int teardown(void **state)
{
	strcpy(fix_dir, original);
	ckpt_memory_storage_clear();
	return fix_teardown(state);
}

static int64_t failing_after; /* bytes until the copy is stopped */
static atomic_bool stop;

static void stop_after(void *arg, const struct ckpt_copy_progress *now)
{
	(void)arg;
	assert_true(now->done <= now->total);
	if (now->done >= failing_after)
		atomic_store(&stop, true);
}

static void expect_copy(const char *from, const char *to, struct ckpt_copy_result *r)
{
	struct err e = ERR_INIT;
	struct ckpt_copy_options opt = { .result = r };
	if (ckpt_copy(from, to, &opt, &e))
		fail_msg("%s", e.text);
}

/* The copy is intact, loads into another layout, and has the same manifest. */
static void expect_same(const char *dir)
{
	struct err e = ERR_INIT;
	char path[PATH_MAX], manifest[PATH_MAX];
	struct buf a = BUF_INIT, b = BUF_INIT;
	snprintf(path, sizeof path, "%.2000s/step-00000009", dir);
	snprintf(manifest, sizeof manifest, "%.2100s/" MANIFEST_NAME, path);
	if (ckpt_verify(path, &e) || file_slurp(fix_path(9, MANIFEST_NAME), 1 << 20, &a, &e) ||
	    ckpt_storage_read_whole(ckpt_storage_of(path), manifest, 1 << 20, &b, &e))
		fail_msg("%s", e.text);
	assert_string_equal(buf_str(&a), buf_str(&b));
	fix_load(path, &(struct fix_layout){ 3, 1, 5 }, 9);
	buf_fini(&a);
	buf_fini(&b);
}

static void a_copy_is_the_same_checkpoint_in_any_storage(void **state)
{
	struct ckpt_copy_result r;
	(void)state;
	expect_copy(fix_path(9, NULL), BUCKET, &r);
	assert_string_equal(r.path, BUCKET "/step-00000009");
	assert_int_equal(r.step, 9);
	assert_int_equal(r.files, 4);
	assert_int_equal(r.sent, r.bytes);
	expect_same(BUCKET);
	expect_copy(r.path, other, &r);
	expect_same(other);
	expect_copy(fix_path(9, NULL), other, &r);
	assert_true(r.there_already);
	assert_int_equal(r.sent, 0);
	assert_int_equal(r.reused, 4);
}

static void a_stopped_copy_is_no_checkpoint_and_the_next_one_continues(void **state)
{
	static const char *const dirs[] = { BUCKET, other };
	(void)state;
	for (int i = 0; i < 2; i++)
		for (failing_after = 1;; failing_after += 700) {
			struct err e = ERR_INIT;
			struct ckpt_copy_result r = { 0 }, next;
			struct ckpt_copy_options opt = { .progress = stop_after,
							 .cancel = &stop,
							 .result = &r };
			char path[PATH_MAX];
			atomic_store(&stop, false);
			snprintf(path, sizeof path, "%.2000s/step-00000009", dirs[i]);
			int rc = ckpt_copy(fix_path(9, NULL), dirs[i], &opt, &e);
			if (!rc && r.sent < failing_after)
				break;
			assert_int_equal(rc, -1);
			assert_int_equal(e.code, ERR_ABORTED);
			assert_int_equal(ckpt_storage_has(ckpt_storage_of(path), dirs[i],
							  "step-00000009", &e),
					 0);
			expect_copy(fix_path(9, NULL), dirs[i], &next);
			assert_true(next.reused > 0 || failing_after < 4000);
			expect_same(dirs[i]);
			assert_int_equal(ckpt_storage_of(path)->ops->remove(ckpt_storage_of(path),
									    path, &e),
					 0);
		}
}

static void flip(const char *path)
{
	struct err e = ERR_INIT;
	struct buf b = BUF_INIT;
	const struct ckpt_storage *s = ckpt_storage_of(path);
	assert_int_equal(ckpt_storage_read_whole(s, path, 1 << 20, &b, &e), 0);
	b.data[b.len - 3] ^= 4;
	assert_int_equal(s->ops->put(s, path, b.data, b.len, &e), 0);
	buf_fini(&b);
}

static void try_to_prune(void *arg, const struct ckpt_copy_progress *now)
{
	struct ckpt_hold hold;
	(void)now;
	assert_false(ckpt_hold_take(&hold, fix_path(9, NULL), CKPT_HOLD_REMOVE));
	++*(int *)arg;
}

static void nobody_prunes_what_is_being_copied(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_hold hold;
	int tries = 0;
	struct ckpt_copy_options opt = { .progress = try_to_prune, .progress_arg = &tries };
	(void)state;
	if (ckpt_copy(fix_path(9, NULL), BUCKET, &opt, &e))
		fail_msg("%s", e.text);
	assert_true(tries > 0);
	assert_true(ckpt_hold_take(&hold, fix_path(9, NULL), CKPT_HOLD_REMOVE));
	assert_int_equal(ckpt_copy(fix_path(9, NULL), other, NULL, &e), -1);
	assert_non_null(strstr(e.text, "is being removed"));
	ckpt_hold_release(&hold);
}

static void a_damaged_original_is_not_copied(void **state)
{
	struct err e = ERR_INIT;
	(void)state;
	flip(fix_path(9, "shard-00002.safetensors"));
	assert_int_equal(ckpt_copy(fix_path(9, NULL), BUCKET, NULL, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "shard-00002.safetensors: tensor "));
	assert_int_equal(truncate(fix_path(9, "shard-00002.safetensors"), 500), 0);
	assert_int_equal(ckpt_copy(fix_path(9, NULL), BUCKET, NULL, &e), -1);
	assert_non_null(strstr(e.text, "has 500 bytes"));
	struct ckpt_storage_names left;
	assert_int_equal(ckpt_storage_names_of(&ckpt_memory_storage, BUCKET, &left, &e), 0);
	assert_int_equal(left.n, 0);
	ckpt_storage_names_free(&left);
	assert_int_equal(ckpt_copy(fix_path(7, NULL), BUCKET, NULL, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
}

/* A file of an earlier attempt whose bytes are wrong is sent again. */
static void a_wrong_file_of_an_earlier_copy_is_replaced(void **state)
{
	static const char *const dirs[] = { BUCKET, other };
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct err e = ERR_INIT;
		struct ckpt_copy_options opt = { .progress = stop_after, .cancel = &stop };
		struct ckpt_storage_names l;
		struct ckpt_copy_result r;
		char attempt[PATH_MAX] = "", file[PATH_MAX];
		const struct ckpt_storage *s = ckpt_storage_of(dirs[i]);
		failing_after = 6000;
		atomic_store(&stop, false);
		assert_int_equal(ckpt_copy(fix_path(9, NULL), dirs[i], &opt, &e), -1);
		assert_int_equal(ckpt_storage_names_of(s, dirs[i], &l, &e), 0);
		for (size_t k = 0; k < l.n; k++)
			if (!strncmp(l.names[k], ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX)))
				snprintf(attempt, sizeof attempt, "%.2000s/%s", dirs[i],
					 l.names[k]);
		ckpt_storage_names_free(&l);
		snprintf(file, sizeof file, "%.3000s/shard-00000.safetensors", attempt);
		flip(file);
		expect_copy(fix_path(9, NULL), dirs[i], &r);
		assert_true(r.sent >= 2000);
		expect_same(dirs[i]);
	}
}

static void another_checkpoint_of_the_step_is_replaced_only_on_request(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_copy_options opt = { .replace = true };
	(void)state;
	assert_int_equal(mkdir(other, 0700), 0);
	strcpy(fix_dir, other);
	fix_write(&whole, 9);
	strcpy(fix_dir, original);
	assert_int_equal(ckpt_copy(fix_path(9, NULL), BUCKET, NULL, &e), 0);
	assert_int_equal(ckpt_copy(BUCKET "/step-00000009", other, NULL, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_int_equal(ckpt_copy(BUCKET "/step-00000009", other, &opt, &e), 0);
	expect_same(other);
	strcpy(fix_dir, other);
	assert_int_equal(fix_count(""), 3); /* ".", ".." and the copy */
}

static void the_pace_allows_the_rate_and_a_small_burst(void **state)
{
	struct ckpt_pace p;
	(void)state;
	ckpt_pace_start(&p, 1000);
	p.at = 100;
	assert_true(ckpt_pace_take(&p, 500, 100) == 0.5);
	assert_true(ckpt_pace_take(&p, 500, 100.25) == 0.75);
	assert_true(ckpt_pace_take(&p, 250, 200) == 0); /* a pause is not made up for */
	assert_true(ckpt_pace_take(&p, 250, 200) == 0.25);
	assert_int_equal(ckpt_pace_piece(&p, 1000), 250);
	assert_int_equal(ckpt_pace_piece(&p, 100), 100);
	ckpt_pace_start(&p, 0);
	assert_int_equal(ckpt_pace_piece(&p, 1000), 1000);
	assert_true(ckpt_pace_take(&p, (size_t)1 << 40, 200) == 0);
}

static void a_limited_copy_takes_its_time_and_can_be_stopped(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_copy_result r;
	struct ckpt_copy_options opt = { .bytes_per_s = 40000, .result = &r };
	(void)state;
	assert_int_equal(ckpt_copy(fix_path(9, NULL), BUCKET, &opt, &e), 0);
	assert_true(r.seconds >= (double)r.bytes / 40000 - 0.001);
	opt = (struct ckpt_copy_options){ .bytes_per_s = 1, .cancel = &stop };
	opt.progress = stop_after; /* stopped in the first file, long before its hours are over */
	failing_after = 1;
	atomic_store(&stop, false);
	assert_int_equal(ckpt_copy(fix_path(9, NULL), other, &opt, &e), -1);
	assert_int_equal(e.code, ERR_ABORTED);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_copy_is_the_same_checkpoint_in_any_storage),
		TEST(a_stopped_copy_is_no_checkpoint_and_the_next_one_continues),
		TEST(nobody_prunes_what_is_being_copied),
		TEST(a_damaged_original_is_not_copied),
		TEST(a_wrong_file_of_an_earlier_copy_is_replaced),
		TEST(another_checkpoint_of_the_step_is_replaced_only_on_request),
		TEST(the_pace_allows_the_rate_and_a_small_burst),
		TEST(a_limited_copy_takes_its_time_and_can_be_stopped),
	};
	ckpt_storages_add(&ckpt_memory_storage);
	return cmocka_run_group_tests_name("copies of checkpoints", tests, NULL, NULL);
}
