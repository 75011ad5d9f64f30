/* Tests the copies of shards in memory. */
#include "agent/engine/ckpt/memory/store.h"
#include "tests/unit/agent/ckpt_fixture.h"

#include <malloc.h>
#include <math.h>

static const struct fix_layout layout = { 3, 2, 5 };
enum { OWNERS = 6, GENERATION = 4 };
static json_t *model, *degrees;

static struct ckpt_store *open_store(void)
{
	struct ckpt_store *s;
	struct err e = ERR_INIT;
	const struct ckpt_store_options opt = { .owners = OWNERS,
						.model = model,
						.layout = degrees };
	if (ckpt_store_open(&opt, &s, &e))
		fail_msg("%s", e.text);
	return s;
}

static int take(struct ckpt_store *s, int owner, int64_t step, struct err *e)
{
	struct ckpt_tensor list[FIX_TENSORS];
	struct ckpt_state state = fix_state(step);
	int n = fix_rank(&layout, owner, step, false, list);
	int rc = ckpt_store_take(s, owner, &state, GENERATION, list, n, e);
	fix_free(list, n);
	return rc;
}

static void keep(struct ckpt_store *s, int owner, int64_t step)
{
	struct err e = ERR_INIT;
	if (take(s, owner, step, &e) || ckpt_store_seal(s, owner, &e))
		fail_msg("%s", e.text);
}

static bool has(const struct ckpt_store *s, int owner, int64_t step)
{
	struct store_copy copy;
	return ckpt_store_find(s, owner, step, GENERATION, &copy);
}

static const char *image_of(const struct ckpt_store *s, int owner, int64_t step)
{
	struct store_copy copy;
	assert_true(ckpt_store_find(s, owner, step, GENERATION, &copy));
	assert_true(copy.part->files[0].size > 0);
	return copy.image;
}

/* The manifest that is sent with a copy. */
static struct buf describe(const struct ckpt_store *s, int owner, int64_t step)
{
	struct buf text = BUF_INIT;
	struct store_copy copy;
	assert_true(ckpt_store_find(s, owner, step, GENERATION, &copy));
	ckpt_manifest_write(copy.part, &text);
	return text;
}

/* Starts to receive the copy of `from`. The bytes are there, but not checked. */
static void receive(struct ckpt_store *to, const struct ckpt_store *from, int owner, int64_t step,
		    char **image, size_t *bytes)
{
	struct err e = ERR_INIT;
	struct store_copy copy;
	struct buf text = describe(from, owner, step);
	if (ckpt_store_receive(to, owner, text.data, text.len, image, bytes, &e))
		fail_msg("%s", e.text);
	buf_fini(&text);
	assert_true(ckpt_store_find(from, owner, step, GENERATION, &copy));
	if (*bytes)
		memcpy(*image, copy.image, *bytes);
}

static void copies_are_what_a_checkpoint_would_have_written(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	struct err e = ERR_INIT;
	struct manifest whole, disk;
	fix_write(&layout, 9);
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &disk, &e), 0);
	for (int owner = 0; owner < OWNERS; owner++) {
		struct store_copy copy;
		struct buf shard = BUF_INIT;
		char name[MANIFEST_FILE_NAME];
		keep(s, owner, 9);
		assert_true(ckpt_store_find(s, owner, 9, GENERATION, &copy));
		snprintf(name, sizeof name, "shard-%05d.safetensors", owner);
		assert_int_equal(ckpt_storage_read_whole(&ckpt_storage_posix, fix_path(9, name),
							 1 << 20, &shard, &e),
				 0);
		assert_int_equal(shard.len, copy.part->files[0].size);
		assert_memory_equal(shard.data, copy.image, shard.len);
		if (owner == 0)
			ckpt_manifest_init(&whole, &copy.part->state, GENERATION, copy.part->model,
					   copy.part->layout);
		assert_int_equal(ckpt_manifest_merge(&whole, copy.part, &e), 0);
		buf_fini(&shard);
	}
	/* together they are proven complete, with the digests of the files */
	assert_int_equal(ckpt_manifest_prove(&whole, &e), 0);
	for (int64_t i = 0; i < disk.n_tensors; i++) {
		const struct manifest_tensor *t = ckpt_manifest_find(&whole, disk.tensors[i].name);
		assert_int_equal(t->n, disk.tensors[i].n);
		for (int64_t k = 0; k < t->n; k++)
			assert_true(ckpt_digest_equal(&t->slices[k].digest,
						      &disk.tensors[i].slices[k].digest));
	}
	ckpt_manifest_fini(&whole);
	ckpt_manifest_fini(&disk);
	ckpt_store_close(s);
}

static void a_complete_copy_exists_at_every_moment(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	struct err e = ERR_INIT;
	keep(s, 0, 1);
	for (int64_t step = 2; step < 6; step++) {
		assert_int_equal(take(s, 0, step, &e), 0);
		assert_true(has(s, 0, step - 1)); /* the new one is not complete yet */
		assert_false(has(s, 0, step));
		assert_int_equal(ckpt_store_seal(s, 0, &e), 0);
		assert_true(has(s, 0, step));
		assert_true(has(s, 0, step - 1));
		assert_false(has(s, 0, step - 2));
	}
	struct store_copy copy;
	assert_true(ckpt_store_list(s, 0, 0, &copy));
	assert_int_equal(copy.part->state.step, 5);
	assert_true(ckpt_store_list(s, 0, 1, &copy));
	assert_int_equal(copy.part->state.step, 4);
	assert_false(ckpt_store_list(s, 0, 2, &copy));
	assert_false(ckpt_store_list(s, 1, 0, &copy));
	assert_false(ckpt_store_find(s, 0, 5, GENERATION + 1, &copy));
	ckpt_store_close(s);
}

static void memory_does_not_grow_with_the_steps(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	keep(s, 0, 1);
	keep(s, 0, 2);
	const char *first = image_of(s, 0, 1), *second = image_of(s, 0, 2);
	for (int64_t step = 3; step < 9; step += 2) {
		keep(s, 0, step);
		keep(s, 0, step + 1);
		assert_ptr_equal(image_of(s, 0, step), first);
		assert_ptr_equal(image_of(s, 0, step + 1), second);
	}
	ckpt_store_forget(s);
	assert_false(has(s, 0, 7) || has(s, 0, 8));
	keep(s, 0, 9);
	assert_true(image_of(s, 0, 9) == first || image_of(s, 0, 9) == second);
	ckpt_store_close(s);
}

static void a_copy_with_bad_numbers_is_dropped(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	struct err e = ERR_INIT;
	struct ckpt_tensor list[FIX_TENSORS];
	struct ckpt_state at = fix_state(2);
	keep(s, 0, 1);
	int n = fix_rank(&layout, 0, 2, false, list);
	list[0].data[3] = NAN;
	assert_int_equal(ckpt_store_take(s, 0, &at, GENERATION, list, n, &e), 0);
	assert_int_equal(ckpt_store_seal(s, 0, &e), -1);
	assert_int_equal(e.code, ERR_NUMERIC);
	assert_non_null(strstr(e.text, list[0].name));
	fix_free(list, n);
	assert_true(has(s, 0, 1));
	assert_false(has(s, 0, 2));
	assert_int_equal(ckpt_store_seal(s, 0, &e), -1); /* nothing is left to complete */
	assert_int_equal(e.code, ERR_INTERNAL);
	keep(s, 0, 3);
	assert_true(has(s, 0, 1) && has(s, 0, 3));
	ckpt_store_close(s);
}

static void a_received_copy_is_complete_once_it_is_verified(void **state)
{
	(void)state;
	struct ckpt_store *owner = open_store(), *peer = open_store();
	struct err e = ERR_INIT;
	struct store_copy a, b;
	char *image;
	size_t bytes;
	keep(owner, 2, 5);
	receive(peer, owner, 2, 5, &image, &bytes);
	assert_false(has(peer, 2, 5));
	assert_int_equal(ckpt_store_check(peer, 2, &e), 0);
	assert_true(ckpt_store_find(owner, 2, 5, GENERATION, &a));
	assert_true(ckpt_store_find(peer, 2, 5, GENERATION, &b));
	assert_memory_equal(a.image, b.image, bytes);
	assert_int_equal(b.owner, 2);
	ckpt_store_close(owner);
	ckpt_store_close(peer);
}

/* Every byte of an image is in the header or in a slice. */
static void every_changed_byte_is_found(void **state)
{
	(void)state;
	struct ckpt_store *owner = open_store(), *peer = open_store();
	char *image;
	size_t bytes = 1;
	keep(owner, 1, 7);
	keep(owner, 1, 8);
	receive(peer, owner, 1, 7, &image, &bytes);
	assert_int_equal(ckpt_store_check(peer, 1, NULL), 0);
	for (size_t i = 0; i < bytes; i += 1 + i / 64) {
		struct err e = ERR_INIT;
		receive(peer, owner, 1, 8, &image, &bytes);
		image[i] ^= 0x10;
		assert_int_equal(ckpt_store_check(peer, 1, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_non_null(strstr(e.text, "shard-00001.safetensors"));
		assert_false(has(peer, 1, 8));
		assert_true(has(peer, 1, 7));
	}
	ckpt_store_close(owner);
	ckpt_store_close(peer);
}

static void a_manifest_of_another_shard_is_refused(void **state)
{
	(void)state;
	struct ckpt_store *owner = open_store(), *peer = open_store();
	char *image;
	size_t bytes;
	keep(owner, 1, 7);
	struct buf text = describe(owner, 1, 7);
	for (size_t i = 0; i < text.len; i += 37) {
		struct err e = ERR_INIT;
		text.data[i] ^= 1;
		assert_int_equal(
			ckpt_store_receive(peer, 1, text.data, text.len, &image, &bytes, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		text.data[i] ^= 1;
	}
	struct err e = ERR_INIT;
	assert_int_equal(ckpt_store_receive(peer, 2, text.data, text.len, &image, &bytes, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_int_equal(ckpt_store_receive(peer, OWNERS, text.data, text.len, &image, &bytes, &e),
			 -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_int_equal(ckpt_store_check(peer, 1, &e), -1);
	buf_fini(&text);
	ckpt_store_close(owner);
	ckpt_store_close(peer);
}

static void a_shard_without_slices_has_a_copy_too(void **state)
{
	(void)state;
	struct ckpt_store *owner = open_store(), *peer = open_store();
	struct ckpt_state at = fix_state(3);
	struct err e = ERR_INIT;
	char *image;
	size_t bytes;
	assert_int_equal(ckpt_store_take(owner, 0, &at, GENERATION, NULL, 0, &e), 0);
	assert_int_equal(ckpt_store_seal(owner, 0, &e), 0);
	receive(peer, owner, 0, 3, &image, &bytes);
	assert_int_equal(bytes, 0);
	assert_int_equal(ckpt_store_check(peer, 0, &e), 0);
	assert_true(has(peer, 0, 3));
	ckpt_store_close(owner);
	ckpt_store_close(peer);
}

static bool is_of_step(const void *arg, int64_t step, uint32_t generation)
{
	return step == *(const int64_t *)arg && generation == GENERATION;
}

static size_t size_of(const struct ckpt_store *s, int owner, int64_t step)
{
	struct store_copy copy;
	assert_true(ckpt_store_find(s, owner, step, GENERATION, &copy));
	return (size_t)copy.part->files[0].size;
}

static size_t in_use(const struct mallinfo2 *m)
{
	return m->uordblks + m->hblkhd;
}

static void a_state_is_kept_and_all_others_are_dropped(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	const int64_t kept = 5;
	keep(s, 0, 5);
	keep(s, 0, 6);
	keep(s, 1, 6);
	size_t size = size_of(s, 0, 6) + size_of(s, 1, 6);
	ckpt_store_drop(s, 6, GENERATION); /* this keeps the memory */
	struct mallinfo2 before = mallinfo2();
	ckpt_store_retain(s, is_of_step, &kept);
	struct mallinfo2 after = mallinfo2();
	assert_true(has(s, 0, 5) && !has(s, 0, 6) && !has(s, 1, 6));
	if (in_use(&before)) /* a sanitizer's allocator does not count */
		assert_true(in_use(&before) >= in_use(&after) + size);
	/* The next copy does not replace the only complete one. */
	struct err e = ERR_INIT;
	assert_int_equal(take(s, 0, 7, &e), 0);
	assert_true(has(s, 0, 5));
	ckpt_store_close(s);
}

static void a_dropped_state_leaves_the_one_before_it(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	struct err e = ERR_INIT;
	keep(s, 2, 5);
	keep(s, 2, 6);
	ckpt_store_drop(s, 6, GENERATION);
	assert_true(has(s, 2, 5) && !has(s, 2, 6));
	assert_int_equal(take(s, 2, 7, &e), 0);
	assert_true(has(s, 2, 5));
	assert_int_equal(ckpt_store_seal(s, 2, &e), 0);
	assert_true(has(s, 2, 5) && has(s, 2, 7));
	ckpt_store_close(s);
}

static void copies_outlive_a_change_of_the_ranks(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	struct err e = ERR_INIT;
	struct store_copy copy;
	keep(s, 5, 9);
	const struct ckpt_store_options fewer = { .owners = 2, .model = model, .layout = degrees };
	assert_int_equal(ckpt_store_begin(s, &fewer, &e), 0);
	assert_true(ckpt_store_find(s, 5, 9, GENERATION, &copy));
	assert_int_equal(copy.owners, OWNERS);
	assert_int_equal(take(s, 5, 10, &e), -1);
	keep(s, 1, 10);
	assert_true(ckpt_store_find(s, 1, 10, GENERATION, &copy));
	assert_int_equal(copy.owners, 2);
	const struct ckpt_store_options more = { .owners = 9, .model = model, .layout = degrees };
	assert_int_equal(ckpt_store_begin(s, &more, &e), 0);
	assert_true(has(s, 5, 9) && has(s, 1, 10));
	assert_int_equal(ckpt_store_owners(s), 9);
	ckpt_store_close(s);
}

static void a_cancelled_seal_leaves_the_copy_before_it(void **state)
{
	(void)state;
	struct ckpt_store *s = open_store();
	struct err e = ERR_INIT;
	atomic_bool cancel = false;
	const struct ckpt_store_options opt = {
		.owners = OWNERS, .model = model, .layout = degrees, .cancel = &cancel
	};
	assert_int_equal(ckpt_store_begin(s, &opt, &e), 0);
	keep(s, 3, 1);
	assert_int_equal(take(s, 3, 2, &e), 0);
	atomic_store(&cancel, true);
	assert_int_equal(ckpt_store_seal(s, 3, &e), -1);
	assert_int_equal(e.code, ERR_ABORTED);
	assert_true(has(s, 3, 1) && !has(s, 3, 2));
	ckpt_store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(copies_are_what_a_checkpoint_would_have_written,
						fix_setup, fix_teardown),
		cmocka_unit_test(a_complete_copy_exists_at_every_moment),
		cmocka_unit_test(memory_does_not_grow_with_the_steps),
		cmocka_unit_test(a_copy_with_bad_numbers_is_dropped),
		cmocka_unit_test(a_received_copy_is_complete_once_it_is_verified),
		cmocka_unit_test(every_changed_byte_is_found),
		cmocka_unit_test(a_manifest_of_another_shard_is_refused),
		cmocka_unit_test(a_shard_without_slices_has_a_copy_too),
		cmocka_unit_test(a_state_is_kept_and_all_others_are_dropped),
		cmocka_unit_test(a_dropped_state_leaves_the_one_before_it),
		cmocka_unit_test(copies_outlive_a_change_of_the_ranks),
		cmocka_unit_test(a_cancelled_seal_leaves_the_copy_before_it),
	};
	model = fix_model();
	degrees = json_object();
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	json_decref(model);
	json_decref(degrees);
	return rc;
}
