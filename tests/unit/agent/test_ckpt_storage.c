/* Every checkpoint storage behaves the same. Each test runs on each row of `storages`. */
#include "tests/unit/agent/ckpt_memory_storage.h"
#include "tests/unit/agent/ckpt_storages.h"
#include "tests/unit/agent/ckpt_saver.h"
#include "tests/unit/agent/s3_double.h"

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/save/stream.h"

static const struct {
	const struct ckpt_storage *storage;
	const char *dir; /* NULL: a temporary folder */
} storages[] = {
	{ &ckpt_storage_posix, NULL },
	{ &ckpt_memory_storage, MEMORY_SCHEME "bucket/ckpt" },
	{ &ckpt_storage_s3, "s3://bucket/runs/a" }, /* if there is python3 for its store */
};

static int STORAGES = sizeof storages / sizeof *storages;

static const struct ckpt_storage *inner; /* of the row under test */
static char folder[sizeof fix_dir];

static void begin_row(int row)
{
	assert_int_equal(fix_setup(NULL), 0);
	strcpy(folder, fix_dir);
	if (storages[row].dir)
		strcpy(fix_dir, storages[row].dir);
	inner = storages[row].storage;
	assert_ptr_equal(ckpt_storage_of(fix_dir), inner);
}

static void remove_entries(const char *dir)
{
	struct ckpt_storage_names l;
	assert_int_equal(ckpt_storage_names_of(inner, dir, &l, NULL), 0);
	for (size_t i = 0; i < l.n; i++) {
		char path[PATH_MAX];
		snprintf(path, sizeof path, "%.2000s/%s", dir, l.names[i]);
		assert_int_equal(inner->ops->remove(inner, path, NULL), 0);
	}
	ckpt_storage_names_free(&l);
}

static void end_row(void)
{
	strcpy(fix_dir, folder);
	fix_teardown(NULL);
	ckpt_memory_storage_clear();
	if (inner == &ckpt_storage_s3)
		remove_entries(storages[2].dir);
}

/* --- a storage whose k-th operation fails ------------------------------------------ */

static struct {
	int at, count; /* the call that fails, from 1; 0: none */
	char name[32]; /* the operation that failed */
} failing;

static bool fail_now(const char *name, struct err *e)
{
	if (++failing.count != failing.at)
		return false;
	snprintf(failing.name, sizeof failing.name, "%s", name);
	err_set(e, ERR_IO, "the storage failed in %s", name);
	return true;
}

static const struct ckpt_storage failing_storage;

static int failing_list(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
			void *arg, struct err *e)
{
	(void)s;
	return fail_now("list", e) ? -1 : inner->ops->list(inner, path, visit, arg, e);
}

static int failing_size(const struct ckpt_storage *s, const char *path, int64_t *size,
			struct err *e)
{
	(void)s;
	return fail_now("size", e) ? -1 : inner->ops->size(inner, path, size, e);
}

/* The inner storage's functions must find the inner storage in the file, so files are wrapped and
 * unwrapped. */
static int wrap_file(int rc, struct ckpt_file **out)
{
	if (!rc)
		(*out)->storage = &failing_storage;
	return rc;
}

static struct ckpt_file *unwrap_file(struct ckpt_file *f)
{
	f->storage = inner;
	return f;
}

static int failing_open(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
			struct err *e)
{
	(void)s;
	return fail_now("open", e) ? -1 : wrap_file(inner->ops->open(inner, path, out, e), out);
}

static int failing_read(struct ckpt_file *f, int64_t at, void *data, size_t n, struct err *e)
{
	int rc = fail_now("read", e) ? -1 : inner->ops->read(unwrap_file(f), at, data, n, e);
	f->storage = &failing_storage;
	return rc;
}

static int failing_prepare(const struct ckpt_storage *s, const char *dir, struct err *e)
{
	(void)s;
	return fail_now("prepare", e) ? -1 : inner->ops->prepare(inner, dir, e);
}

static int failing_begin(const struct ckpt_storage *s, const char *attempt, bool create,
			 struct err *e)
{
	(void)s;
	return fail_now("begin", e) ? -1 : inner->ops->begin(inner, attempt, create, e);
}

static int failing_create(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
			  struct err *e)
{
	(void)s;
	return fail_now("create", e) ? -1 : wrap_file(inner->ops->create(inner, path, out, e), out);
}

static int failing_write(struct ckpt_file *f, const void *data, size_t n, struct err *e)
{
	int rc = fail_now("write", e) ? -1 : inner->ops->write(unwrap_file(f), data, n, e);
	f->storage = &failing_storage;
	return rc;
}

static int failing_finish(struct ckpt_file *f, struct err *e)
{
	if (!fail_now("finish", e))
		return inner->ops->finish(unwrap_file(f), e);
	inner->ops->close(unwrap_file(f));
	return -1;
}

static void failing_close(struct ckpt_file *f)
{
	inner->ops->close(unwrap_file(f));
}

static int failing_discard(const struct ckpt_storage *s, const char *path, struct err *e)
{
	(void)s;
	return fail_now("discard", e) ? -1 : inner->ops->discard(inner, path, e);
}

static int failing_settle(const struct ckpt_storage *s, const char *path, struct err *e)
{
	(void)s;
	if (fail_now("settle", e))
		return -1;
	return inner->ops->settle ? inner->ops->settle(inner, path, e) : 0;
}

static int failing_sync(const struct ckpt_storage *s, const char *attempt, struct err *e)
{
	(void)s;
	if (fail_now("sync", e))
		return -1;
	return inner->ops->sync ? inner->ops->sync(inner, attempt, e) : 0;
}

static int failing_commit(const struct ckpt_storage *s, const char *attempt, const char *path,
			  const char *aside, const void *manifest, size_t n, struct err *e)
{
	(void)s;
	return fail_now("commit", e)
		       ? -1
		       : inner->ops->commit(inner, attempt, path, aside, manifest, n, e);
}

static int failing_put(const struct ckpt_storage *s, const char *path, const void *data, size_t n,
		       struct err *e)
{
	(void)s;
	return fail_now("put", e) ? -1 : inner->ops->put(inner, path, data, n, e);
}

static int failing_remove(const struct ckpt_storage *s, const char *path, struct err *e)
{
	(void)s;
	return fail_now("remove", e) ? -1 : inner->ops->remove(inner, path, e);
}

static int failing_rename(const struct ckpt_storage *s, const char *path, const char *to,
			  struct err *e)
{
	(void)s;
	return fail_now("rename", e) ? -1 : inner->ops->rename(inner, path, to, e);
}

static const struct ckpt_storage_ops failing_ops = {
	.name = "failing",
	.scheme = "",
	.list = failing_list,
	.size = failing_size,
	.open = failing_open,
	.read = failing_read,
	.prepare = failing_prepare,
	.begin = failing_begin,
	.create = failing_create,
	.write = failing_write,
	.finish = failing_finish,
	.close = failing_close,
	.discard = failing_discard,
	.settle = failing_settle,
	.sync = failing_sync,
	.commit = failing_commit,
	.put = failing_put,
	.remove = failing_remove,
	.rename = failing_rename,
};

static const struct ckpt_storage failing_storage = { &failing_ops, NULL };

/* --- helpers ------------------------------------------------------------------------ */

struct counter {
	const char *prefix;
	int n;
};

static int count_prefix(void *arg, const char *name, struct err *e)
{
	struct counter *c = arg;
	(void)e;
	c->n += !strncmp(name, c->prefix, strlen(c->prefix));
	return 0;
}

static int count_entries(const char *prefix)
{
	struct counter c = { prefix, 0 };
	struct err e = ERR_INIT;
	if (inner->ops->list(inner, fix_dir, count_prefix, &c, &e))
		assert_int_equal(e.code, ERR_NOTFOUND);
	return c.n;
}

static struct attached licence(void)
{
	struct attached a = { .n = 1 };
	strcpy(a.files[0].name, "LICENSE");
	a.files[0].data = strdup("free");
	a.files[0].size = 4;
	return a;
}

static void open_saver(struct saver *s, const struct ckpt_storage *storage,
		       const struct attached *attached, int64_t keep)
{
	struct err e = ERR_INIT;
	*s = (struct saver){ .world = world_alone(),
			     .model = fix_model(),
			     .layout = json_object() };
	struct ckpt_options opt = { .dir = fix_dir,
				    .owner = "/runs/a",
				    .keep = keep,
				    .generation = 3,
				    .model = s->model,
				    .layout = s->layout,
				    .attached = attached,
				    .storage = storage };
	if (ckpt_writer_open(s->world, &opt, &s->writer, &e))
		fail_msg("%s", e.text);
}

static void close_saver(struct saver *s)
{
	struct comm *world = s->world;
	saver_close(s);
	comm_close(world);
}

static void save_step(struct saver *s, int64_t step)
{
	struct err e = ERR_INIT;
	if (save(s, step, &e))
		fail_msg("%s", e.text);
}

/* --- the tests ---------------------------------------------------------------------- */

static void saved_checkpoints_are_found_loaded_verified_and_pruned(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		struct saver s;
		struct err e = ERR_INIT;
		struct manifest m;
		struct attached sent = licence(), got;
		begin_row(row);
		assert_int_equal(fix_latest(NULL), 0);
		open_saver(&s, NULL, &sent, 2);
		for (int64_t step = 9; step <= 12; step++) {
			save_step(&s, step);
			assert_int_equal(fix_latest(NULL), step);
			assert_int_equal(count_entries("step-"), step < 10 ? 1 : 2);
			assert_int_equal(count_entries(ATTEMPT_PREFIX), 0);
			verify(step);
			fix_load(fix_path(step, NULL), &(struct fix_layout){ 3, 2, 5 }, step);
		}
		save_step(&s, 12); /* the step exists and is replaced */
		verify(12);
		assert_int_equal(count_entries("step-"), 2);
		assert_int_equal(count_entries(ATTEMPT_PREFIX), 0);
		close_saver(&s);
		assert_int_equal(ckpt_manifest_load(fix_path(12, NULL), &m, &e), 0);
		assert_int_equal(ckpt_attached_load(fix_path(12, NULL), &m, &got, &e), 0);
		assert_string_equal(ckpt_attached_find(&got, "LICENSE")->data, "free");
		ckpt_attached_fini(&got);
		ckpt_attached_fini(&sent);
		ckpt_manifest_fini(&m);
		end_row();
	}
}

static void save_again(int64_t step)
{
	struct saver s;
	open_saver(&s, NULL, NULL, 0);
	save_step(&s, step);
	close_saver(&s);
}

static void a_damaged_checkpoint_is_skipped_and_can_be_renamed(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		struct saver s;
		struct err e = ERR_INIT;
		char damaged[PATH_MAX], again[PATH_MAX];
		begin_row(row);
		open_saver(&s, NULL, NULL, 0);
		save_step(&s, 9);
		save_step(&s, 10);
		close_saver(&s);
		const char *shard = fix_path(10, "shard-00000.safetensors");
		assert_int_equal(inner->ops->put(inner, shard, "short", 5, &e), 0);
		assert_int_equal(fix_latest(NULL), 9);
		assert_int_equal(ckpt_verify(fix_path(10, NULL), &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		assert_int_equal(ckpt_storage_set_aside(inner, fix_path(10, NULL), "damaged-",
							damaged, &e),
				 0);
		assert_int_equal(count_entries("damaged-step-00000010"), 1);
		assert_int_equal(count_entries("step-"), 1);
		assert_int_equal(inner->ops->rename(inner, fix_path(9, NULL), damaged, &e), 1);
		save_again(10);
		assert_int_equal(ckpt_storage_set_aside(inner, fix_path(10, NULL), "damaged-",
							again, &e),
				 0);
		assert_int_equal(count_entries("damaged-step-00000010.1"), 1);
		assert_int_equal(inner->ops->remove(inner, again, &e), 0);
		assert_int_equal(inner->ops->remove(inner, damaged, &e), 0);
		assert_int_equal(inner->ops->remove(inner, damaged, &e), 0);
		assert_int_equal(count_entries("damaged-"), 0);
		assert_int_equal(fix_latest(NULL), 9);
		end_row();
	}
}

static void what_does_not_exist_is_reported_as_not_found(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		struct err e = ERR_INIT;
		struct ckpt_file *f;
		int64_t size;
		begin_row(row);
		const char *path = fix_path(9, MANIFEST_NAME);
		assert_int_equal(inner->ops->open(inner, path, &f, &e), -1);
		assert_int_equal(e.code, ERR_NOTFOUND);
		assert_int_equal(inner->ops->size(inner, path, &size, &e), -1);
		assert_int_equal(e.code, ERR_NOTFOUND);
		assert_int_equal(inner->ops->list(inner, fix_path(9, NULL), count_prefix, NULL, &e),
				 -1);
		assert_int_equal(e.code, ERR_NOTFOUND);
		assert_int_equal(ckpt_storage_has(inner, fix_path(9, NULL), "x", &e), 0);
		end_row();
	}
}

static void attempts_of_dead_writers_are_removed_and_later_ones_stay(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		struct saver s;
		struct err e = ERR_INIT;
		begin_row(row);
		assert_int_equal(inner->ops->prepare(inner, fix_dir, &e), 0);
		for (int generation = 2; generation <= 4; generation++) {
			char attempt[PATH_MAX], shard[PATH_MAX];
			snprintf(attempt, sizeof attempt, "%s/" ATTEMPT_PREFIX "00000007-%d-ab",
				 fix_dir, generation);
			snprintf(shard, sizeof shard, "%.4000s/shard-00000.safetensors", attempt);
			assert_int_equal(inner->ops->begin(inner, attempt, true, &e), 0);
			assert_int_equal(inner->ops->begin(inner, attempt, false, &e), 0);
			assert_int_equal(ckpt_storage_write_whole(inner, shard, "half", 4, &e), 0);
		}
		assert_int_equal(count_entries(ATTEMPT_PREFIX), 3);
		open_saver(&s, NULL, NULL, 0); /* generation 3 */
		assert_int_equal(count_entries(ATTEMPT_PREFIX), 1);
		close_saver(&s);
		end_row();
	}
}

static void a_folder_of_another_run_is_refused(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		struct err e = ERR_INIT;
		begin_row(row);
		assert_int_equal(inner->ops->prepare(inner, fix_dir, &e), 0);
		assert_int_equal(
			ckpt_folder_set_owner(inner, fix_dir, "/runs/a", "checkpoint.dir", &e), 0);
		assert_int_equal(
			ckpt_folder_set_owner(inner, fix_dir, "/runs/a", "checkpoint.dir", &e), 0);
		assert_int_equal(
			ckpt_folder_set_owner(inner, fix_dir, "/runs/b", "checkpoint.dir", &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		end_row();
	}
}

static void one_process_writes_a_checkpoint_alone(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		struct err e = ERR_INIT;
		struct ckpt_tensor tensors[FIX_TENSORS];
		struct ckpt_stream *stream;
		char path[1024];
		begin_row(row);
		int n = fix_rank(&whole, 0, 9, false, tensors);
		json_t *model = fix_model(), *layout = json_object();
		struct ckpt_stream_options opt = { .dir = fix_dir,
						   .state = fix_state(9),
						   .model = model,
						   .layout = layout,
						   .tensors = tensors,
						   .n = n };
		assert_int_equal(ckpt_stream_open(&opt, &stream, &e), 0);
		for (int i = 0; i < n; i++)
			assert_int_equal(ckpt_stream_add_tensor(stream, tensors[i].data, &e), 0);
		assert_int_equal(ckpt_stream_commit(stream, path, &e), 0);
		ckpt_stream_close(stream);
		assert_string_equal(path, fix_path(9, NULL));
		verify(9);
		assert_int_equal(ckpt_stream_open(&opt, &stream, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		opt.state.step = 10; /* abandoned */
		assert_int_equal(ckpt_stream_open(&opt, &stream, &e), 0);
		ckpt_stream_close(stream);
		assert_int_equal(count_entries(ATTEMPT_PREFIX), 0);
		assert_int_equal(count_entries("step-"), 1);
		fix_free(tensors, n);
		json_decref(model);
		json_decref(layout);
		end_row();
	}
}

/* Makes each operation fail in turn. Returns false after the last one. */
static bool fail_operation(int row, int k)
{
	struct saver s;
	struct err e = ERR_INIT;
	struct ckpt_report r;
	begin_row(row);
	failing.at = 0;
	open_saver(&s, &failing_storage, NULL, 1);
	save_step(&s, 5);
	assert_int_equal(ckpt_committed(s.writer, &r), 1);
	failing.at = k;
	failing.count = 0;
	failing.name[0] = '\0';
	int rc = save(&s, 9, &e);
	failing.at = 0;
	if (rc && !strstr(e.text, "checkpoint of step 9: "))
		fail_msg("operation %d, %s: %s", k, failing.name, e.text);
	assert_int_equal(fix_latest(NULL), rc ? 5 : 9);
	verify(fix_latest(NULL));
	if (rc)
		assert_int_equal(count_entries(ATTEMPT_PREFIX), 0);
	/* A failure after the commit is noted, unless its only effect is that an older checkpoint
	 * remains. */
	if (!rc && failing.name[0] && strcmp(failing.name, "open") &&
	    strcmp(failing.name, "size") && strcmp(failing.name, "read")) {
		assert_int_equal(ckpt_committed(s.writer, &r), 1);
		assert_non_null(strstr(r.note, "the storage failed"));
	}
	save_step(&s, 10); /* the same writer continues */
	verify(10);
	assert_int_equal(count_entries("step-"), 1);
	assert_int_equal(count_entries(ATTEMPT_PREFIX), 0);
	close_saver(&s);
	end_row();
	return failing.name[0] != '\0';
}

static void one_failing_operation_keeps_the_checkpoint_before(void **state)
{
	(void)state;
	for (int row = 0; row < STORAGES; row++) {
		int k = 1;
		while (fail_operation(row, k))
			k++;
		assert_true(k > 15);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saved_checkpoints_are_found_loaded_verified_and_pruned),
		cmocka_unit_test(a_damaged_checkpoint_is_skipped_and_can_be_renamed),
		cmocka_unit_test(what_does_not_exist_is_reported_as_not_found),
		cmocka_unit_test(attempts_of_dead_writers_are_removed_and_later_ones_stay),
		cmocka_unit_test(a_folder_of_another_run_is_refused),
		cmocka_unit_test(one_process_writes_a_checkpoint_alone),
		cmocka_unit_test(one_failing_operation_keeps_the_checkpoint_before),
	};
	ckpt_storages_add(&ckpt_memory_storage);
	bool store = s3_double_start();
	if (!store) {
		STORAGES--;
		printf("the row of object stores is skipped: there is no python3\n");
	}
	int rc = cmocka_run_group_tests_name("checkpoint storages", tests, NULL, NULL);
	if (store)
		s3_double_stop();
	return rc;
}
