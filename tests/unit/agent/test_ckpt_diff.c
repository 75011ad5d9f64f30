/* Tests the comparison of checkpoints and the repair of one from another, over any layouts. */
#include "agent/engine/ckpt/places/diff.h"
#include "agent/engine/ckpt/places/hold.h"
#include "agent/engine/ckpt/places/repair.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "tests/unit/agent/ckpt_memory_storage.h"
#include "tests/unit/agent/ckpt_storages.h"
#include "tests/unit/agent/ckpt_saver.h"

#include <math.h>
#include <sys/wait.h>

static const struct fix_layout two_by_two = { 2, 2, 0 }, uneven = { 3, 2, 11 };

/* The second folder of checkpoints. */
static char other_dir[sizeof fix_dir + 8];

static const char *other_path(int64_t step)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/step-%08lld", other_dir, (long long)step);
	return path;
}

/* Writes a checkpoint into the other folder. */
static void write_other(const struct fix_layout *l, int64_t step)
{
	char first[sizeof fix_dir];
	strcpy(first, fix_dir);
	snprintf(other_dir, sizeof other_dir, "%s/b", fix_dir);
	mkdir(other_dir, 0700);
	strcat(fix_dir, "/b");
	fix_write(l, step);
	strcpy(fix_dir, first);
}

/* Sets an element of a tensor in a checkpoint of one shard, and everything that depends on it. */
static void set_element(const char *path, const char *name, int64_t row, int64_t column, float to)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT;
	char file[PATH_MAX + 80], manifest[PATH_MAX + 20];
	if (ckpt_manifest_load(path, &m, &e))
		fail_msg("%s", e.text);
	struct manifest_tensor *t = &m.tensors[ckpt_manifest_find(&m, name) - m.tensors];
	assert_int_equal(t->n, 1);
	struct manifest_slice *s = &t->slices[0];
	size_t bytes = (size_t)ckpt_slice_bytes(s);
	struct ckpt_tensor box = { .dims = t->dims,
				   .shape = { t->shape[0], t->shape[1] },
				   .hi = { t->shape[0], t->shape[1] },
				   .data = malloc(bytes) };
	snprintf(file, sizeof file, "%s/%s", path, m.files[s->file].name);
	int fd = open(file, O_RDWR);
	off_t at = m.files[s->file].header + s->offset;
	assert_int_equal(pread(fd, box.data, bytes, at), bytes);
	box.data[row * t->shape[1] + column] = to;
	assert_int_equal(pwrite(fd, box.data, bytes, at), bytes);
	close(fd);
	s->digest = ckpt_digest_of(box.data, bytes);
	ckpt_sums_fini(&t->sums);
	assert_int_equal(ckpt_sums_add_box(&t->sums, &box, NULL, &e), 0);
	ckpt_manifest_write(&m, &text);
	snprintf(manifest, sizeof manifest, "%s/" MANIFEST_NAME, path);
	assert_int_equal(file_replace(manifest, text.data, text.len, &e), 0);
	free(box.data);
	buf_fini(&text);
	ckpt_manifest_fini(&m);
}

/* --- diff --- */

struct found {
	struct ckpt_diff_tensor list[16];
	char names[16][96];
	int n;
};

static int collect(void *arg, const struct ckpt_diff_tensor *t, struct err *e)
{
	struct found *f = arg;
	(void)e;
	assert_true(f->n < 16);
	strcpy(f->names[f->n], t->name);
	f->list[f->n++] = *t;
	return 0;
}

static void diff(const char *a, const char *b, struct found *f, struct ckpt_diff *d)
{
	struct err e = ERR_INIT;
	struct manifest ma, mb;
	*f = (struct found){ .n = 0 };
	if (ckpt_manifest_load(a, &ma, &e) || ckpt_manifest_load(b, &mb, &e) ||
	    ckpt_diff(a, &ma, b, &mb, collect, f, d, &e))
		fail_msg("%s", e.text);
	ckpt_manifest_fini(&ma);
	ckpt_manifest_fini(&mb);
}

static void equal_states_of_any_layouts_are_equal_unread(void **state)
{
	(void)state;
	struct found f;
	struct ckpt_diff d;
	fix_write(&two_by_two, 9);
	write_other(&uneven, 9);
	diff(fix_path(9, NULL), other_path(9), &f, &d);
	assert_int_equal(f.n, 0);
	assert_int_equal(d.tensors, FIX_TENSORS);
	assert_int_equal(d.read, 0);
	assert_true(d.skipped > 0);
}

static void one_element_is_found_in_any_layout(void **state)
{
	(void)state;
	static const struct fix_layout *const layouts[] = { &whole, &two_by_two, &uneven };
	struct found f;
	struct ckpt_diff d;
	float was = fix_value(2, 9, 7, 13);
	write_other(&whole, 9);
	set_element(other_path(9), "layers.0.attn.o.weight", 7, 13, was + 4);
	for (int i = 0; i < 3; i++) {
		fix_write(layouts[i], 9);
		for (int turned = 0; turned < 2; turned++) {
			const char *a = fix_path(9, NULL), *b = other_path(9);
			diff(turned ? b : a, turned ? a : b, &f, &d);
			assert_int_equal(f.n, 1);
			assert_string_equal(f.names[0], "layers.0.attn.o.weight");
			assert_int_equal(f.list[0].kind, CKPT_DIFF_VALUES);
			assert_int_equal(f.list[0].count, 1);
			assert_int_equal(f.list[0].first[0], 7);
			assert_int_equal(f.list[0].first[1], 13);
			assert_true(f.list[0].max_abs == 4);
			assert_true(f.list[0].relative > 0 && f.list[0].relative < 1);
			assert_int_equal(f.list[0].not_finite, 0);
			assert_true(d.read > 0 && d.read < d.skipped);
		}
		fix_remove(fix_path(9, NULL));
	}
}

static void the_figures_are_those_of_the_elements(void **state)
{
	(void)state;
	struct found f;
	struct ckpt_diff d;
	double norm = 0;
	fix_write(&whole, 9);
	write_other(&whole, 9);
	for (int64_t i = 0; i < 37; i++)
		norm += pow((double)fix_value(3, 9, i, 0), 2);
	/* -0 and 0 differ in a bit; NaN has no distance. */
	set_element(fix_path(9, NULL), "norm.weight", 3, 0, 0.0F);
	set_element(other_path(9), "norm.weight", 3, 0, -0.0F);
	set_element(other_path(9), "layers.1.mlp.up.bias", 5, 0, fix_value(3, 9, 5, 0) - 3);
	set_element(other_path(9), "layers.1.mlp.up.bias", 4, 0, fix_value(3, 9, 4, 0) + 4);
	set_element(other_path(9), "layers.1.mlp.up.bias", 6, 0, NAN);
	norm -= pow((double)fix_value(3, 9, 6, 0), 2);
	diff(fix_path(9, NULL), other_path(9), &f, &d);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.names[0], "layers.1.mlp.up.bias");
	assert_int_equal(f.list[0].count, 3);
	assert_int_equal(f.list[0].first[0], 4);
	assert_int_equal(f.list[0].not_finite, 1);
	assert_true(f.list[0].max_abs == 4);
	assert_true(fabs(f.list[0].relative - 5 / sqrt(norm)) < 1e-4 * f.list[0].relative);
	assert_int_equal(f.list[1].count, 1);
	assert_true(f.list[1].max_abs == 0 && f.list[1].relative == 0);
}

static void another_step_differs_everywhere(void **state)
{
	(void)state;
	struct found f;
	struct ckpt_diff d;
	fix_write(&two_by_two, 9);
	write_other(&uneven, 10);
	diff(fix_path(9, NULL), other_path(10), &f, &d);
	assert_int_equal(f.n, FIX_TENSORS);
	for (int i = 0; i < f.n; i++)
		assert_int_equal(f.list[i].count, f.list[i].elements);
}

/* --- repair --- */

static void damage(const char *file, int64_t at)
{
	unsigned char byte;
	int fd = open(fix_path(9, file), O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static off_t size_of(const char *file)
{
	struct stat st;
	assert_int_equal(stat(fix_path(9, file), &st), 0);
	return st.st_size;
}

/* Repairs step 9, which must then be whole and as it was; expects what was damaged. */
static void repaired(int64_t fetched, int64_t headers)
{
	struct err e = ERR_INIT;
	struct ckpt_repair r, look;
	if (ckpt_repair(fix_path(9, NULL), other_path(9), true, &look, &e))
		fail_msg("%s", e.text);
	assert_int_equal(look.fetched, fetched);
	assert_int_equal(look.headers, headers);
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), -1);
	if (ckpt_repair(fix_path(9, NULL), other_path(9), false, &r, &e))
		fail_msg("%s", e.text);
	assert_int_equal(r.fetched, fetched);
	assert_int_equal(r.headers, headers);
	assert_string_equal(r.path, fix_path(9, NULL));
	assert_non_null(strstr(r.kept, "/damaged-step-00000009."));
	assert_int_equal(access(r.kept, F_OK), 0);
	e = (struct err)ERR_INIT;
	if (ckpt_verify(r.path, &e))
		fail_msg("%s", e.text);
	fix_load(r.path, &uneven, 9);
	assert_int_equal(fix_count(".attempt-"), 0);
	if (ckpt_repair(fix_path(9, NULL), other_path(9), false, &r, &e))
		fail_msg("%s", e.text);
	assert_true(r.whole);
}

static void flipped_slices_come_from_another_layout(void **state)
{
	(void)state;
	fix_write(&two_by_two, 9);
	write_other(&uneven, 9);
	damage("shard-00001.safetensors", size_of("shard-00001.safetensors") - 1);
	damage("shard-00002.safetensors", size_of("shard-00002.safetensors") - 5);
	repaired(2, 0);
}

static void missing_and_cut_shards_and_headers_come_back(void **state)
{
	(void)state;
	struct fix_layout pipeline = { 1, 4, 0 };
	fix_write(&two_by_two, 9);
	write_other(&pipeline, 9);
	assert_int_equal(unlink(fix_path(9, "shard-00000.safetensors")), 0);
	damage("shard-00001.safetensors", 20);
	assert_int_equal(truncate(fix_path(9, "shard-00003.safetensors"), 90), 0);
	struct manifest m;
	struct err e = ERR_INIT;
	int64_t lost = 0;
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	for (int64_t i = 0; i < m.n_tensors; i++)
		for (int64_t j = 0; j < m.tensors[i].n; j++) {
			const char *file = m.files[m.tensors[i].slices[j].file].name;
			lost += strstr(file, "00000") != NULL || strstr(file, "00003") != NULL;
		}
	ckpt_manifest_fini(&m);
	repaired(lost, 3);
}

static void a_file_too_many_is_left_out(void **state)
{
	(void)state;
	fix_write(&two_by_two, 9);
	write_other(&whole, 9);
	close(open(fix_path(9, "note"), O_CREAT | O_WRONLY, 0600));
	repaired(0, 0);
}

static void a_checkpoint_that_was_set_aside_is_published_again(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct ckpt_repair r;
	char aside[PATH_MAX];
	fix_write(&two_by_two, 9);
	write_other(&whole, 9);
	damage("shard-00001.safetensors", size_of("shard-00001.safetensors") - 1);
	snprintf(aside, sizeof aside, "%s/damaged-step-00000009", fix_dir);
	assert_int_equal(rename(fix_path(9, NULL), aside), 0);
	if (ckpt_repair(aside, other_path(9), false, &r, &e))
		fail_msg("%s", e.text);
	assert_string_equal(r.path, fix_path(9, NULL));
	assert_string_equal(r.kept, aside);
	assert_int_equal(ckpt_verify(r.path, &e), 0);
	assert_int_equal(ckpt_repair(aside, other_path(9), false, &r, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "already exists and is valid"));
}

/* Both are damaged, in different places: what one lacks, the other has. */
static void two_halves_make_a_whole(void **state)
{
	(void)state;
	char file[PATH_MAX + 80];
	fix_write(&two_by_two, 9);
	write_other(&two_by_two, 9);
	damage("shard-00001.safetensors", size_of("shard-00001.safetensors") - 1);
	snprintf(file, sizeof file, "%s/shard-00002.safetensors", other_path(9));
	assert_int_equal(truncate(file, 100), 0);
	repaired(1, 0);
}

static void refused(const char *good, enum err_code code, const char *why)
{
	struct err e = ERR_INIT;
	struct ckpt_repair r;
	assert_int_equal(ckpt_repair(fix_path(9, NULL), good, false, &r, &e), -1);
	if (e.code != code || !strstr(e.text, why))
		fail_msg("%s", e.text);
	assert_int_equal(fix_count(".attempt-"), 0);
	assert_int_equal(fix_count("step-"), 1);
}

static void what_cannot_be_repaired_stays_as_it_is(void **state)
{
	(void)state;
	char file[PATH_MAX + 80];
	fix_write(&two_by_two, 9);
	write_other(&two_by_two, 9);
	write_other(&whole, 10);
	damage("shard-00001.safetensors", size_of("shard-00001.safetensors") - 1);
	refused(other_path(10), ERR_USAGE, "of step 10");
	snprintf(file, sizeof file, "%s/shard-00001.safetensors", other_path(9));
	assert_int_equal(truncate(file, 100), 0);
	refused(other_path(9), ERR_CORRUPT, "shard-00001.safetensors");
	fix_remove(other_path(9));
	write_other(&whole, 9);
	set_element(other_path(9), "norm.weight", 3, 0, 1);
	refused(other_path(9), ERR_USAGE, "its state digest is not that of");
	damage(MANIFEST_NAME, 300);
	refused(other_path(9), ERR_CORRUPT, "muster ckpt copy");
}

/* The damaged checkpoint if it has its other name, which a repair that died gave it. */
static const char *aside(void)
{
	static char path[PATH_MAX];
	struct ckpt_storage_names l;
	int n = 0;
	assert_int_equal(ckpt_storage_names_of(&ckpt_storage_posix, fix_dir, &l, NULL), 0);
	for (size_t i = 0; i < l.n; i++)
		if (!strncmp(l.names[i], "damaged-", 8)) {
			snprintf(path, sizeof path, "%s/%s", fix_dir, l.names[i]);
			n++;
		}
	ckpt_storage_names_free(&l);
	assert_int_equal(n, 1);
	return path;
}

/* Removes the damaged checkpoints that repairs have kept. */
static void remove_replaced(void)
{
	struct ckpt_storage_names l;
	assert_int_equal(ckpt_storage_names_of(&ckpt_storage_posix, fix_dir, &l, NULL), 0);
	for (size_t i = 0; i < l.n; i++) {
		char path[PATH_MAX];
		snprintf(path, sizeof path, "%s/%s", fix_dir, l.names[i]);
		if (!strncmp(l.names[i], "damaged-", 8))
			fix_remove(path);
	}
	ckpt_storage_names_free(&l);
}

/* A system call of the repair fails, or the process ends before it: the damaged checkpoint is as it
 * was, or the repaired one is there; and the next repair succeeds. */
static void no_failure_makes_it_worse(void **state)
{
	(void)state;
	static const enum what whats[] = { FAIL, DIE_BEFORE, DIE_AFTER };
	fix_write(&two_by_two, 9);
	write_other(&uneven, 9);
	ckpt_storages_add(FAULTY);
	for (int w = 0; w < 3; w++)
		for (int k = 1, calls = 1; k <= calls; k++) {
			struct err e = ERR_INIT;
			struct ckpt_repair r;
			int status;
			damage("shard-00001.safetensors", size_of("shard-00001.safetensors") - 1);
			pid_t pid = fork();
			if (pid == 0) {
				set_fault(whats[w], k, ENOSPC);
				_exit(ckpt_repair(fix_path(9, NULL), other_path(9), false, &r, &e)
					      ? 1
					      : 0);
			}
			assert_int_equal(waitpid(pid, &status, 0), pid);
			set_fault(NOTHING, 0, 0);
			bool valid = !ckpt_verify(fix_path(9, NULL), &e);
			if (WEXITSTATUS(status) == 0 && !valid)
				fail_msg("call %d: it succeeded, but %s", k, e.text);
			e = (struct err)ERR_INIT;
			const char *left = access(fix_path(9, NULL), F_OK) ? aside() : NULL;
			if (ckpt_repair(left ? left : fix_path(9, NULL), other_path(9), false, &r,
					&e) ||
			    ckpt_verify(fix_path(9, NULL), &e))
				fail_msg("call %d: %s", k, e.text);
			remove_replaced();
			if (k == calls && WEXITSTATUS(status) != 0)
				calls++; /* until nothing is left to fail */
			assert_true(calls < 200);
		}
	ckpt_storages_drop(FAULTY);
}

/* Writes the files of a checkpoint to another storage, one of them with a flipped bit. */
static void upload_damaged(const char *entry, const char *damaged)
{
	const struct ckpt_storage *s = &ckpt_memory_storage;
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT;
	char to[256];
	const char *attempt = MEMORY_SCHEME "bucket/bad/.attempt-1";
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	assert_int_equal(s->ops->prepare(s, MEMORY_SCHEME "bucket/bad", &e), 0);
	assert_int_equal(s->ops->begin(s, attempt, true, &e), 0);
	for (int64_t i = 0; i < m.n_files; i++) {
		struct buf data = BUF_INIT;
		assert_int_equal(ckpt_storage_read_whole(&ckpt_storage_posix,
							 fix_path(9, m.files[i].name), 1 << 20,
							 &data, &e),
				 0);
		if (!strcmp(m.files[i].name, damaged))
			data.data[data.len - 1] ^= 1;
		snprintf(to, sizeof to, "%s/%s", attempt, m.files[i].name);
		assert_int_equal(ckpt_storage_write_whole(s, to, data.data, data.len, &e), 0);
		buf_fini(&data);
	}
	ckpt_manifest_write(&m, &text);
	snprintf(to, sizeof to, "%s.1", entry);
	assert_int_equal(s->ops->commit(s, attempt, entry, to, text.data, text.len, &e), 0);
	buf_fini(&text);
	ckpt_manifest_fini(&m);
}

static void repair_and_diff_work_in_any_storage(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct ckpt_repair r;
	struct found f;
	struct ckpt_diff d;
	const char *bad = MEMORY_SCHEME "bucket/bad/step-00000009";
	ckpt_storages_add(&ckpt_memory_storage);
	fix_write(&two_by_two, 9);
	upload_damaged(bad, "shard-00002.safetensors");
	assert_int_equal(ckpt_verify(bad, &e), -1);
	if (ckpt_repair(bad, fix_path(9, NULL), false, &r, &e) || ckpt_verify(r.path, &e))
		fail_msg("%s", e.text);
	assert_int_equal(r.fetched, 1);
	assert_string_equal(r.path, bad);
	assert_non_null(strstr(r.kept, "bucket/bad/damaged-step-00000009."));
	assert_int_equal(ckpt_verify(r.kept, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	/* And from there to here. */
	damage("shard-00001.safetensors", size_of("shard-00001.safetensors") - 1);
	if (ckpt_repair(fix_path(9, NULL), bad, false, &r, &e) || ckpt_verify(r.path, &e))
		fail_msg("%s", e.text);
	diff(fix_path(9, NULL), bad, &f, &d);
	assert_int_equal(f.n, 0);
	ckpt_storages_drop(&ckpt_memory_storage);
	ckpt_memory_storage_clear();
}

/* --- hold --- */

static void a_reader_keeps_others_from_removing(void **state)
{
	(void)state;
	struct ckpt_hold a, b, c;
	fix_write(&whole, 9);
	assert_true(ckpt_hold_take(&a, fix_path(9, NULL), CKPT_HOLD_READ));
	assert_true(ckpt_hold_take(&b, fix_path(9, NULL), CKPT_HOLD_READ));
	assert_false(ckpt_hold_take(&c, fix_path(9, NULL), CKPT_HOLD_REMOVE));
	ckpt_hold_release(&a);
	assert_false(ckpt_hold_take(&c, fix_path(9, NULL), CKPT_HOLD_REMOVE));
	ckpt_hold_release(&b);
	assert_true(ckpt_hold_take(&c, fix_path(9, NULL), CKPT_HOLD_REMOVE));
	assert_false(ckpt_hold_take(&a, fix_path(9, NULL), CKPT_HOLD_READ));
	struct err e = ERR_INIT;
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), -1);
	assert_non_null(strstr(e.text, "is being removed"));
	ckpt_hold_release(&c);
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), 0);
}

static void a_run_keeps_what_is_being_read(void **state)
{
	(void)state;
	struct ckpt_hold hold;
	struct err e = ERR_INIT;
	for (int64_t step = 1; step <= 3; step++)
		fix_write(&whole, step);
	const struct folder_keep keep = { .last = 1, .committed = 3 };
	assert_true(ckpt_hold_take(&hold, fix_path(2, NULL), CKPT_HOLD_READ));
	assert_int_equal(ckpt_folder_prune(&ckpt_storage_posix, fix_dir, &keep, &e), 0);
	assert_int_equal(fix_count("step-"), 2);
	assert_int_equal(access(fix_path(2, MANIFEST_NAME), F_OK), 0);
	ckpt_hold_release(&hold);
	assert_int_equal(ckpt_folder_prune(&ckpt_storage_posix, fix_dir, &keep, &e), 0);
	assert_int_equal(fix_count("step-"), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(equal_states_of_any_layouts_are_equal_unread),
		TEST(one_element_is_found_in_any_layout),
		TEST(the_figures_are_those_of_the_elements),
		TEST(another_step_differs_everywhere),
		TEST(flipped_slices_come_from_another_layout),
		TEST(missing_and_cut_shards_and_headers_come_back),
		TEST(a_file_too_many_is_left_out),
		TEST(a_checkpoint_that_was_set_aside_is_published_again),
		TEST(two_halves_make_a_whole),
		TEST(what_cannot_be_repaired_stays_as_it_is),
		TEST(no_failure_makes_it_worse),
		TEST(repair_and_diff_work_in_any_storage),
		TEST(a_reader_keeps_others_from_removing),
		TEST(a_run_keeps_what_is_being_read),
	};
	return cmocka_run_group_tests_name("diff and repair", tests, NULL, NULL);
}
