/* Tests loading under another layout, and every way in which a checkpoint can be damaged. */
#include "tests/unit/agent/ckpt_fixture.h"

static const struct fix_layout whole = { 1, 1, 0 }, two_by_two = { 2, 2, 0 };

static void any_layout_loads_any_others(void **state)
{
	int64_t step = 1;
	(void)state;
	for (uint64_t seed = 0; seed < 24; seed++, step++) {
		uint32_t r[4];
		philox4(philox_key(seed, PHILOX_TEST, 1), 0, r);
		struct fix_layout from = { 1 + (int)(r[0] % 5), 1 + (int)(r[1] % 4), seed };
		fix_write(&from, step);
		for (uint64_t k = 1; k <= 4; k++) {
			philox4(philox_key(seed, PHILOX_TEST, 1), k, r);
			struct fix_layout to = { 1 + (int)(r[0] % 8), 1 + (int)(r[1] % 7),
						 seed + k };
			fix_load(fix_path(step, NULL), &to, step);
		}
		fix_load(fix_path(step, NULL), &whole, step);
	}
}

static void boxes_that_cross_every_cut_are_loaded(void **state)
{
	struct fix_layout from = { 5, 2, 7 };
	(void)state;
	fix_write(&from, 9);
	for (uint32_t seed = 0; seed < 200; seed++) {
		struct err e = ERR_INIT;
		uint32_t r[4];
		philox4(philox_key(5, PHILOX_TEST, 2), seed, r);
		int tensor = (int)(seed % FIX_TENSORS);
		int64_t rows = fix_tensors[tensor].shape[0], columns = fix_tensors[tensor].shape[1];
		int64_t lo0 = r[0] % rows, hi0 = lo0 + 1 + r[1] % (rows - lo0);
		int64_t lo1 = r[2] % columns, hi1 = lo1 + 1 + r[3] % (columns - lo1);
		struct ckpt_tensor t = fix_box(tensor, lo0, hi0, lo1, hi1);
		assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), 0);
		fix_each(&t, tensor, 9, true);
		free(t.data);
	}
}

static void slices_larger_than_a_piece_are_loaded(void **state)
{
	/* 700 × 1500 floats are more than 4 pieces of 1 MiB, and the pieces end inside rows. */
	struct err e = ERR_INIT;
	struct snapshot s = { 0 };
	struct manifest m;
	struct buf text = BUF_INIT;
	struct ckpt_state st = fix_state(3);
	json_t *none = json_object();
	struct ckpt_tensor t = {
		.name = "big", .dims = 2, .shape = { 700, 1500 }, .hi = { 700, 1500 }
	};
	t.data = malloc(700 * 1500 * sizeof(float));
	(void)state;
	for (int i = 0; i < 700 * 1500; i++)
		t.data[i] = (float)i;
	ckpt_manifest_init(&m, &st, 1, none, none);
	assert_int_equal(mkdir(fix_path(3, NULL), 0700), 0);
	assert_int_equal(ckpt_snapshot_take(&s, &t, 1), 0);
	assert_int_equal(ckpt_snapshot_write(&s, &ckpt_storage_posix, fix_path(3, NULL), 0, &m, &e),
			 0);
	ckpt_manifest_write(&m, &text);
	assert_int_equal(file_replace(fix_path(3, MANIFEST_NAME), text.data, text.len, &e), 0);
	struct ckpt_tensor part = { .name = "big",
				    .dims = 2,
				    .shape = { 700, 1500 },
				    .lo = { 100, 7 },
				    .hi = { 650, 1400 } };
	part.data = malloc(550 * 1393 * sizeof(float));
	assert_int_equal(ckpt_load(fix_path(3, NULL), none, NULL, &part, 1, NULL, &e), 0);
	for (int i = 0; i < 550; i++)
		for (int j = 0; j < 1393; j++)
			assert_true(part.data[i * 1393 + j] == (float)((i + 100) * 1500 + j + 7));
	assert_int_equal(ckpt_verify(fix_path(3, NULL), &e), 0);
	free(part.data);
	free(t.data);
	buf_fini(&text);
	ckpt_snapshot_fini(&s);
	ckpt_manifest_fini(&m);
	json_decref(none);
}

static void only_the_slices_that_are_needed_are_read(void **state)
{
	struct err e = ERR_INIT;
	struct fix_layout from = { 4, 1, 0 };
	(void)state;
	fix_write(&from, 9);
	assert_int_equal(unlink(fix_path(9, "shard-00003.safetensors")), 0);
	struct ckpt_tensor t = fix_box(0, 0, 60, 2, 5);
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), 0);
	fix_each(&t, 0, 9, true);
	free(t.data);
	t = fix_box(0, 0, 90, 2, 5);
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(
		e.text, "shard-00003.safetensors: a shard of the checkpoint cannot be opened"));
	free(t.data);
}

static void what_does_not_fit_is_named(void **state)
{
	struct err e = ERR_INIT;
	json_t *other = json_pack("{s:s, s:i}", "family", "gpt2", "hidden", 32);
	struct ckpt_tensor t = fix_box(4, 0, 16, 0, 1);
	(void)state;
	fix_write(&whole, 9);
	assert_int_equal(ckpt_load(fix_path(9, NULL), other, NULL, &t, 1, NULL, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "model.hidden: the checkpoint has 16, this job 32"));
	t.shape[0] = 17;
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	assert_non_null(strstr(
		e.text,
		"norm.weight: the checkpoint has 1 dimensions, 16 × 1, this job has 1, 17 × 1"));
	strcpy(t.name, "norm.bias");
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	assert_non_null(strstr(e.text, "tensor norm.bias: the checkpoint has none of this name"));
	assert_int_equal(ckpt_load(fix_path(10, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	json_decref(other);
	free(t.data);
}

/* --- damages --- */

static void flip(const char *path, long at)
{
	int fd = open(path, O_RDWR);
	char c;
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, at), 1);
	c ^= 4;
	assert_int_equal(pwrite(fd, &c, 1, at), 1);
	close(fd);
}

static long size_of(const char *path)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return (long)st.st_size;
}

static enum err_code verify_code(int64_t step)
{
	struct err e = ERR_INIT;
	return ckpt_verify(fix_path(step, NULL), &e) ? e.code : ERR_NONE;
}

static void one_flipped_bit_anywhere_is_found(void **state)
{
	static const char *const files[] = { MANIFEST_NAME, "shard-00000.safetensors",
					     "shard-00001.safetensors", "shard-00002.safetensors",
					     "shard-00003.safetensors" };
	(void)state;
	fix_write(&two_by_two, 9);
	assert_int_equal(verify_code(9), ERR_NONE);
	for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
		long size = size_of(fix_path(9, files[f]));
		for (long at = 0; at < size; at += f == 0 ? 11 : 5) {
			flip(fix_path(9, files[f]), at);
			if (verify_code(9) != ERR_CORRUPT)
				fail_msg("%s, byte %ld: the change was not found", files[f], at);
			flip(fix_path(9, files[f]), at);
		}
	}
	assert_int_equal(verify_code(9), ERR_NONE);
}

static void a_flipped_bit_in_a_tensor_is_named_by_the_loader(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_tensor t = fix_box(1, 0, 24, 0, 16);
	(void)state;
	fix_write(&whole, 9);
	struct manifest m;
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	long at = (long)(m.files[0].header + ckpt_manifest_find(&m, t.name)->slices[0].offset);
	ckpt_manifest_fini(&m);
	flip(fix_path(9, "shard-00000.safetensors"), at + 100);
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "shard-00000.safetensors: tensor layers.0.attn.q.weight, "
				       "rows [0, 24) × columns [0, 16): the digest differs"));
	free(t.data);
}

/* Each of these functions damages step 9. `latest` must fall back to step 5 and state why. If the
 * sizes are correct, only verify and load can detect the damage. */
static void cut_shard(void)
{
	const char *path = fix_path(9, "shard-00001.safetensors");
	assert_int_equal(truncate(path, size_of(path) - 1), 0);
}

static void longer_shard(void)
{
	const char *path = fix_path(9, "shard-00001.safetensors");
	assert_int_equal(truncate(path, size_of(path) + 1), 0);
}

static void empty_shard(void)
{
	assert_int_equal(truncate(fix_path(9, "shard-00001.safetensors"), 0), 0);
}

static void missing_shard(void)
{
	assert_int_equal(unlink(fix_path(9, "shard-00002.safetensors")), 0);
}

static void folder_for_a_shard(void)
{
	missing_shard();
	assert_int_equal(mkdir(fix_path(9, "shard-00002.safetensors"), 0700), 0);
}

static void missing_manifest(void)
{
	assert_int_equal(unlink(fix_path(9, MANIFEST_NAME)), 0);
}

static void torn_manifest(void)
{
	assert_int_equal(truncate(fix_path(9, MANIFEST_NAME), 4096 / 8), 0);
}

static void empty_manifest(void)
{
	assert_int_equal(truncate(fix_path(9, MANIFEST_NAME), 0), 0);
}

static void flipped_manifest(void)
{
	flip(fix_path(9, MANIFEST_NAME), 100);
}

static void manifest_of_another_step(void)
{
	struct buf text = BUF_INIT;
	assert_int_equal(file_slurp(fix_path(5, MANIFEST_NAME), 1 << 20, &text, NULL), 0);
	assert_int_equal(file_replace(fix_path(9, MANIFEST_NAME), text.data, text.len, NULL), 0);
	buf_fini(&text);
}

static void swapped_shards(void)
{
	assert_int_equal(rename(fix_path(9, "shard-00000.safetensors"), fix_path(9, "x")), 0);
	assert_int_equal(rename(fix_path(9, "shard-00002.safetensors"),
				fix_path(9, "shard-00000.safetensors")),
			 0);
	assert_int_equal(rename(fix_path(9, "x"), fix_path(9, "shard-00002.safetensors")), 0);
}

static void stale_shard(void)
{
	struct buf text = BUF_INIT;
	assert_int_equal(file_slurp(fix_path(5, "shard-00001.safetensors"), 1 << 20, &text, NULL),
			 0);
	assert_int_equal(
		file_replace(fix_path(9, "shard-00001.safetensors"), text.data, text.len, NULL), 0);
	buf_fini(&text);
}

static void extra_shard(void)
{
	assert_int_equal(file_replace(fix_path(9, "shard-00004.safetensors"), "x", 1, NULL), 0);
}

/* clang-format off */
static const struct {
	const char *what;
	void (*damage)(void);
	const char *note; /* NULL: the sizes are correct; only verify and load detect it */
} damages[] = {
	{ "a cut shard", cut_shard, "shard-00001.safetensors" },
	{ "a longer shard", longer_shard, "shard-00001.safetensors" },
	{ "an empty shard", empty_shard, "0 bytes, but the manifest says" },
	{ "a missing shard", missing_shard, "shard-00002.safetensors: a shard of the checkpoint cannot be found" },
	{ "a folder for a shard", folder_for_a_shard, "shard-00002.safetensors" },
	{ "a missing manifest", missing_manifest, "MANIFEST.json: no such file" },
	{ "a torn manifest", torn_manifest, "its digest does not fit its contents" },
	{ "an empty manifest", empty_manifest, "too short" },
	{ "a flipped bit in the manifest", flipped_manifest, "its digest does not fit" },
	{ "a manifest of another step", manifest_of_another_step, "its manifest is of step 5" },
	{ "swapped shards", swapped_shards, "shard-0000" },
	{ "a stale shard", stale_shard, NULL },
	{ "an extra shard", extra_shard, NULL },
};
/* clang-format on */

static void damaged_checkpoints_are_passed_over_by_name(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		struct buf notes = BUF_INIT;
		fix_write(&two_by_two, 5);
		fix_write(&two_by_two, 9);
		assert_int_equal(fix_latest(NULL), 9);
		damages[i].damage();
		int64_t latest = fix_latest(&notes);
		if (latest != (damages[i].note ? 5 : 9))
			fail_msg("%s: the latest is %d", damages[i].what, (int)latest);
		if (damages[i].note && (!strstr(buf_str(&notes), damages[i].note) ||
					!strstr(buf_str(&notes), "step-00000009 is skipped")))
			fail_msg("%s: %s", damages[i].what, buf_str(&notes));
		if (verify_code(9) == ERR_NONE)
			fail_msg("%s was not found by verify", damages[i].what);
		fix_load(fix_path(5, NULL), &whole, 5);
		buf_fini(&notes);
		fix_remove(fix_path(5, NULL));
		fix_remove(fix_path(9, NULL));
	}
}

static void a_stale_shard_is_not_loaded(void **state)
{
	struct err e = ERR_INIT;
	struct ckpt_tensor t = fix_box(0, 0, 101, 0, 12);
	(void)state;
	fix_write(&two_by_two, 5);
	fix_write(&two_by_two, 9);
	stale_shard();
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	free(t.data);
}

static void a_shard_of_another_size_is_not_loaded(void **state)
{
	(void)state;
	for (int more = -1; more <= 1; more += 2) {
		struct err e = ERR_INIT;
		/* This box is at the beginning of the file. */
		struct ckpt_tensor t = fix_box(0, 0, 2, 0, 12);
		fix_write(&whole, 9);
		const char *path = fix_path(9, "shard-00000.safetensors");
		assert_int_equal(truncate(path, size_of(path) + more), 0);
		assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_non_null(strstr(e.text, "the file was truncated or replaced"));
		free(t.data);
		fix_remove(fix_path(9, NULL));
	}
}

static void latest_goes_by_step_and_by_nothing_else(void **state)
{
	(void)state;
	assert_int_equal(fix_latest(NULL), 0);
	fix_write(&whole, 123456789);
	fix_write(&whole, 20);
	fix_write(&whole, 3);
	assert_int_equal(fix_latest(NULL), 123456789);
	char other[PATH_MAX];
	snprintf(other, sizeof other, "%s/notes.txt", fix_dir);
	assert_int_equal(file_replace(other, "x", 1, NULL), 0);
	snprintf(other, sizeof other, "%s/step-x", fix_dir);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(fix_latest(NULL), 123456789);
}

static void another_models_checkpoints_are_not_started_over(void **state)
{
	struct err e = ERR_INIT;
	struct buf notes = BUF_INIT;
	char *path = NULL;
	json_t *other = json_pack("{s:s, s:i}", "family", "gpt2", "hidden", 32);
	(void)state;
	fix_write(&whole, 5);
	assert_int_equal(ckpt_latest(fix_dir, other, &path, fix_note, &notes, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(
		strstr(e.text, "step-00000005: model.hidden: the checkpoint has 16, this job 32"));
	assert_non_null(strstr(buf_str(&notes), "model.hidden"));
	assert_null(path);
	json_decref(other);
	buf_fini(&notes);
}

/* Writes the manifest of a checkpoint again after `change`. */
static void rewrite_manifest(int64_t step, void (*change)(struct manifest *m))
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT;
	if (ckpt_manifest_load(fix_path(step, NULL), &m, &e))
		fail_msg("%s", e.text);
	change(&m);
	ckpt_manifest_write(&m, &text);
	assert_int_equal(file_replace(fix_path(step, MANIFEST_NAME), text.data, text.len, &e), 0);
	buf_fini(&text);
	ckpt_manifest_fini(&m);
}

static void drop_sums(struct manifest *m)
{
	for (int64_t i = 0; i < m->n_tensors; i++)
		m->tensors[i].has_sums = false;
}

static void a_checkpoint_of_an_older_version_has_no_sums_and_loads(void **state)
{
	struct fix_layout from = { 3, 2, 5 };
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	(void)state;
	fix_write(&from, 9);
	rewrite_manifest(9, drop_sums);
	assert_int_equal(ckpt_storage_read_whole(&ckpt_storage_posix, fix_path(9, MANIFEST_NAME),
						 1 << 20, &text, &e),
			 0);
	assert_null(strstr(buf_str(&text), "sums"));
	assert_null(strstr(buf_str(&text), "state_digest"));
	buf_fini(&text);
	fix_load(fix_path(9, NULL), &two_by_two, 9);
	if (ckpt_verify(fix_path(9, NULL), &e))
		fail_msg("%s", e.text);
}

static void change_sum(struct manifest *m)
{
	m->tensors[2].sums.at[0]++;
}

/* What no slice's digest can find: the slices are what was written, but not what was meant. */
static void sums_of_another_state_are_found(void **state)
{
	struct err e = ERR_INIT;
	(void)state;
	fix_write(&two_by_two, 9);
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), 0);
	rewrite_manifest(9, change_sum);
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "the sums of its blocks differ"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(any_layout_loads_any_others),
		TEST(boxes_that_cross_every_cut_are_loaded),
		TEST(slices_larger_than_a_piece_are_loaded),
		TEST(only_the_slices_that_are_needed_are_read),
		TEST(what_does_not_fit_is_named),
		TEST(one_flipped_bit_anywhere_is_found),
		TEST(a_flipped_bit_in_a_tensor_is_named_by_the_loader),
		TEST(damaged_checkpoints_are_passed_over_by_name),
		TEST(a_stale_shard_is_not_loaded),
		TEST(a_shard_of_another_size_is_not_loaded),
		TEST(latest_goes_by_step_and_by_nothing_else),
		TEST(a_checkpoint_of_an_older_version_has_no_sums_and_loads),
		TEST(sums_of_another_state_are_found),
		TEST(another_models_checkpoints_are_not_started_over),
	};
	return cmocka_run_group_tests_name("loading checkpoints", tests, NULL, NULL);
}
