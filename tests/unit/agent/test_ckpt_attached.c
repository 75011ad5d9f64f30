/* Tests what a checkpoint contains besides the bytes of its tensors: the headers of its shards,
 * and the files that are carried along. */
#include "agent/engine/ckpt/format/attached.h"
#include "tests/unit/agent/ckpt_saver.h"

#include <sys/wait.h>

/* --- headers --- */

static void rewrite(const char *file, const char *from, const char *to)
{
	struct buf text = BUF_INIT;
	assert_int_equal(strlen(from), strlen(to));
	assert_int_equal(file_slurp(fix_path(9, file), 1 << 20, &text, NULL), 0);
	char *at = memmem(text.data, text.len, from, strlen(from));
	assert_non_null(at);
	memcpy(at, to, strlen(to));
	assert_int_equal(file_replace(fix_path(9, file), text.data, text.len, NULL), 0);
	buf_fini(&text);
}

/* Corrects the manifest's digest of the header and the manifest's own digest. Somebody who knows
 * the format could do the same. */
static void mend_digests(const char *file)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct buf text = BUF_INIT, shard = BUF_INIT;
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	for (int64_t i = 0; i < m.n_files; i++)
		if (!strcmp(m.files[i].name, file)) {
			assert_int_equal(file_slurp(fix_path(9, file), 1 << 20, &shard, NULL), 0);
			m.files[i].digest = ckpt_digest_of(shard.data, (size_t)m.files[i].header);
		}
	ckpt_manifest_write(&m, &text);
	assert_int_equal(file_replace(fix_path(9, MANIFEST_NAME), text.data, text.len, NULL), 0);
	buf_fini(&shard);
	buf_fini(&text);
	ckpt_manifest_fini(&m);
}

/* The loader and verify must both refuse step 9 with these words. */
static void expect_damage(const char *says)
{
	struct err e = ERR_INIT;
	struct ckpt_tensor t = fix_box(1, 0, 24, 0, 16);
	assert_int_equal(ckpt_load(fix_path(9, NULL), NULL, NULL, &t, 1, NULL, &e), -1);
	if (e.code != ERR_CORRUPT || !strstr(e.text, says))
		fail_msg("load: %s", e.text);
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), -1);
	if (e.code != ERR_CORRUPT || !strstr(e.text, says))
		fail_msg("verify: %s", e.text);
	free(t.data);
}

static void a_renamed_tensor_in_a_header_is_found_by_who_loads_it(void **state)
{
	(void)state;
	fix_write(&whole, 9);
	rewrite("shard-00000.safetensors", "layers.0.attn.q.weight", "layers.7.attn.q.weight");
	expect_damage("shard-00000.safetensors: the digest of its header differs");
	mend_digests("shard-00000.safetensors");
	expect_damage("shard-00000.safetensors: its header has the tensor layers.7.attn.q.weight "
		      "where the manifest has layers.0.attn.q.weight");
}

static void headers_that_changed_places_are_found(void **state)
{
	static const struct fix_layout halves = { 2, 1, 0 };
	struct buf text[2] = { BUF_INIT, BUF_INIT };
	struct err e = ERR_INIT;
	struct manifest m;
	(void)state;
	fix_write(&halves, 9);
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(file_slurp(fix_path(9, m.files[i].name), 1 << 20, &text[i], NULL),
				 0);
	for (int i = 0; i < 2; i++) {
		struct buf mixed = BUF_INIT;
		buf_add(&mixed, text[!i].data, (size_t)m.files[!i].header);
		buf_add(&mixed, text[i].data + m.files[i].header,
			text[i].len - (size_t)m.files[i].header);
		assert_int_equal(
			file_replace(fix_path(9, m.files[i].name), mixed.data, mixed.len, NULL), 0);
		if (m.files[i].size != (int64_t)mixed.len) /* the size is tested elsewhere */
			assert_int_equal(truncate(fix_path(9, m.files[i].name), m.files[i].size),
					 0);
		buf_fini(&mixed);
	}
	ckpt_manifest_fini(&m);
	expect_damage("shard-00000.safetensors: the digest of its header differs");
	buf_fini(&text[0]);
	buf_fini(&text[1]);
}

/* --- files that are carried --- */

static const struct {
	const char *name, *text;
} brought[] = {
	{ "config.json", "{\"eos_token_id\": 5}" },
	{ "tokenizer.json", "{}" },
	{ "merges.txt", "" },
};
enum { BROUGHT = sizeof brought / sizeof *brought };

static char source[sizeof fix_dir + 32];

static void lay_source(void)
{
	snprintf(source, sizeof source, "%s/source", fix_dir);
	assert_int_equal(mkdir(source, 0700), 0);
	for (int i = 0; i < BROUGHT; i++) {
		char path[PATH_MAX];
		snprintf(path, sizeof path, "%s/%s", source, brought[i].name);
		assert_int_equal(file_replace(path, brought[i].text, strlen(brought[i].text), NULL),
				 0);
	}
}

static void take_all(struct attached *c)
{
	struct err e = ERR_INIT;
	for (int i = 0; i < BROUGHT; i++)
		assert_int_equal(ckpt_attached_add(c, source, brought[i].name, 1000, &e), 1);
	strcpy(c->from, "an-org/a_model.v1");
}

static int open_carrying(struct saver *s, const struct attached *c,
			 const struct ckpt_storage *storage, struct err *e)
{
	*s = (struct saver){ .world = world_alone(),
			     .model = fix_model(),
			     .layout = json_object() };
	struct ckpt_options opt = { .dir = fix_dir,
				    .keep = 1,
				    .generation = 3,
				    .model = s->model,
				    .layout = s->layout,
				    .storage = storage,
				    .attached = c };
	return ckpt_writer_open(s->world, &opt, &s->writer, e);
}

static void expect_attached(const char *path)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct attached c;
	assert_int_equal(ckpt_manifest_load(path, &m, &e), 0);
	if (ckpt_attached_load(path, &m, &c, &e))
		fail_msg("%s", e.text);
	assert_int_equal(c.n, BROUGHT);
	assert_string_equal(c.from, "an-org/a_model.v1");
	for (int i = 0; i < BROUGHT; i++) {
		assert_string_equal(c.files[i].name, brought[i].name);
		assert_string_equal(c.files[i].data, brought[i].text);
	}
	assert_ptr_equal(ckpt_attached_find(&c, "merges.txt"), &c.files[2]);
	assert_null(ckpt_attached_find(&c, "vocab.json"));
	ckpt_attached_fini(&c);
	ckpt_manifest_fini(&m);
}

static void carried_files_go_into_every_checkpoint_and_out_with_it(void **state)
{
	struct err e = ERR_INIT;
	struct saver s;
	struct attached c = { 0 };
	struct stat st;
	(void)state;
	lay_source();
	take_all(&c);
	fix_remove(source); /* nothing is read twice */
	assert_int_equal(open_carrying(&s, &c, NULL, &e), 0);
	for (int64_t step = 9; step < 12; step++) {
		assert_int_equal(save(&s, step, &e), 0);
		verify(step);
		expect_attached(fix_path(step, NULL));
		assert_int_equal(stat(fix_path(step, "tokenizer.json"), &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
	/* The two earlier checkpoints are retired, together with the files that they carried. */
	assert_int_equal(fix_count("step-"), 1);
	fix_load(fix_path(11, NULL), &whole, 11);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
	ckpt_attached_fini(&c);
}

/* Writes a carried checkpoint of step 9. The tests then damage it. */
static void write_carrying(struct attached *c)
{
	struct err e = ERR_INIT;
	struct saver s;
	lay_source();
	take_all(c);
	assert_int_equal(open_carrying(&s, c, NULL, &e), 0);
	assert_int_equal(save(&s, 9, &e), 0);
	struct comm *world = s.world;
	saver_close(&s);
	comm_close(world);
}

static void expect_refused(const char *says)
{
	struct err e = ERR_INIT;
	assert_int_equal(ckpt_verify(fix_path(9, NULL), &e), -1);
	if (e.code != ERR_CORRUPT || !strstr(e.text, says))
		fail_msg("%s", e.text);
}

static void a_carried_file_that_changed_or_is_gone_is_named(void **state)
{
	struct attached c = { 0 };
	(void)state;
	write_carrying(&c);
	verify(9);
	rewrite("config.json", "5", "6");
	expect_refused("config.json: the digest differs");
	/* As for a shard, only the size is checked here. */
	assert_int_equal(fix_latest(NULL), 9);
	rewrite("config.json", "6", "5");
	verify(9);
	assert_int_equal(truncate(fix_path(9, "config.json"), 3), 0);
	expect_refused("config.json: has 3 bytes, but the manifest says 19");
	assert_int_equal(rename(fix_path(9, "config.json"), fix_path(9, "../config.json")), 0);
	assert_int_equal(file_replace(fix_path(9, "../config.json"), brought[0].text,
				      strlen(brought[0].text), NULL),
			 0);
	assert_int_equal(symlink("../config.json", fix_path(9, "config.json")), 0);
	expect_refused("config.json: is a symbolic link");
	assert_int_equal(unlink(fix_path(9, "config.json")), 0);
	expect_refused("config.json: a file of the checkpoint cannot be found");
	assert_int_equal(mkdir(fix_path(9, "config.json"), 0700), 0);
	expect_refused("config.json");
	ckpt_attached_fini(&c);
}

static void a_folder_may_hold_links_but_no_pipes(void **state)
{
	struct err e = ERR_INIT;
	struct attached c = { 0 };
	char path[PATH_MAX], outside[PATH_MAX];
	(void)state;
	lay_source();
	snprintf(path, sizeof path, "%s/blob", source);
	assert_int_equal(symlink("tokenizer.json", path), 0);
	assert_int_equal(ckpt_attached_add(&c, source, "blob", 1000, &e), 1);
	assert_string_equal(c.files[0].data, "{}");
	assert_int_equal(ckpt_attached_add(&c, source, "nothing", 1000, &e), 0);
	assert_int_equal(ckpt_attached_add(&c, source, "config.json", 3, &e), -1);
	assert_non_null(strstr(e.text, "config.json: has 19 bytes, but such a file has at most 3"));
	snprintf(path, sizeof path, "%s/LICENSE", source);
	snprintf(outside, sizeof outside, "%s/mine", fix_dir);
	assert_int_equal(symlink(outside, path), 0);
	assert_int_equal(file_replace(outside, "mine", 4, NULL), 0);
	assert_true(ckpt_attached_leads_out(source, "LICENSE"));
	assert_false(ckpt_attached_leads_out(source, "blob"));
	assert_false(ckpt_attached_leads_out(source, "tokenizer.json"));
	assert_false(ckpt_attached_leads_out(source, "nothing"));
	unlink(path);
	unlink(outside);
	snprintf(path, sizeof path, "%s/pipe", source);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(ckpt_attached_add(&c, source, "pipe", 1000, &e), -1);
	assert_non_null(strstr(e.text, "is not a regular file"));
	snprintf(path, sizeof path, "%s/astray", source);
	assert_int_equal(symlink("../nowhere", path), 0);
	assert_int_equal(ckpt_attached_add(&c, source, "astray", 1000, &e), -1);
	assert_non_null(strstr(e.text, "is a link whose target does not exist"));
	assert_int_equal(c.n, 1);
	ckpt_attached_fini(&c);
}

/* Whichever call fails, the previous checkpoint remains, and nothing incomplete does. */
static void one_failing_call_leaves_the_checkpoint_before(void **state)
{
	(void)state;
	int k = 0;
	for (bool was_hit = true; was_hit;) {
		struct err e = ERR_INIT;
		struct saver s;
		struct attached c = { 0 };
		fix_write(&whole, 5);
		lay_source();
		take_all(&c);
		set_fault(NOTHING, 0, 0);
		assert_int_equal(open_carrying(&s, &c, FAULTY, &e), 0);
		set_fault(FAIL, ++k, ENOSPC);
		int rc = save(&s, 9, &e);
		was_hit = fault.count >= k;
		set_fault(NOTHING, 0, 0);
		if (rc && !strstr(e.text, strerror(ENOSPC)))
			fail_msg("call %d: %s", k, e.text);
		if (!rc)
			expect_attached(fix_path(9, NULL));
		assert_true(rc ? fix_latest(NULL) == 5 || fix_latest(NULL) == 9
			       : fix_latest(NULL) == 9);
		verify(fix_latest(NULL));
		assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
		struct comm *world = s.world;
		saver_close(&s);
		comm_close(world);
		ckpt_attached_fini(&c);
		fix_teardown(NULL);
		fix_setup(NULL);
	}
	assert_true(k > 30);
}

static int child_carrying(const struct attached *c, int64_t step)
{
	int ws;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err e = ERR_INIT;
		struct saver s;
		_exit(open_carrying(&s, c, FAULTY, &e) || save(&s, step, &e));
	}
	assert_int_equal(waitpid(pid, &ws, 0), pid);
	assert_true(WIFEXITED(ws));
	return WEXITSTATUS(ws);
}

/* The latest checkpoint is the previous one, or the new one with all of its files. The next writer
 * cleans up. */
static void a_writer_that_dies_at_any_call_leaves_no_half_of_it(void **state)
{
	(void)state;
	int rc = 42;
	for (int k = 1; rc; k++) {
		struct attached c = { 0 };
		lay_source();
		take_all(&c);
		fix_write(&whole, 5);
		set_fault(k % 2 ? DIE_BEFORE : DIE_AFTER, (k + 1) / 2, 0);
		rc = child_carrying(&c, 9);
		if (rc != 0 && rc != 42)
			fail_msg("call %d: exit %d", k, rc);
		int64_t latest = fix_latest(NULL);
		assert_true(latest == 9 || (rc && latest == 5));
		verify(latest);
		if (latest == 9)
			expect_attached(fix_path(9, NULL));
		set_fault(NOTHING, 0, 0);
		assert_int_equal(child_carrying(&c, 10), 0);
		expect_attached(fix_path(10, NULL));
		assert_int_equal(fix_count(ATTEMPT_PREFIX), 0);
		assert_int_equal(fix_count("step-"), 1);
		ckpt_attached_fini(&c);
		fix_teardown(NULL);
		fix_setup(NULL);
	}
}

/* --- manifests --- */

static void a_manifest_holds_no_file_twice_and_no_path(void **state)
{
	static const struct {
		const char *name, *says;
	} wrong[] = {
		{ "../x", "has a name that is" },
		{ ".hidden", "has a name that is" },
		{ "", "has a name that is" },
		{ "a/b", "has a name that is" },
		{ "shard-00000.safetensors", "listed twice" },
		{ MANIFEST_NAME, "listed twice" },
		{ MANIFEST_NAME ".tmp", "listed twice" },
	};
	struct err e = ERR_INIT;
	struct manifest m;
	(void)state;
	fix_write(&whole, 9);
	assert_int_equal(ckpt_manifest_load(fix_path(9, NULL), &m, &e), 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct manifest_attached f = { .size = 3 };
		strcpy(f.name, wrong[i].name);
		assert_int_equal(ckpt_manifest_add_attached(&m, &f, &e), -1);
		if (!strstr(e.text, wrong[i].says))
			fail_msg("%s: %s", wrong[i].name, e.text);
	}
	struct manifest_attached huge = { .name = "huge",
					  .size = (int64_t)MANIFEST_ATTACHED_BYTES + 1 };
	assert_int_equal(ckpt_manifest_add_attached(&m, &huge, &e), -1);
	ckpt_manifest_fini(&m);
}

static void names_of_models_are_words_with_a_slash_at_most(void **state)
{
	static const char *const right[] = { "gpt2", "openai-community/gpt2", "a_b/c.d-1" };
	static const char *const wrong[] = { "",     "/gpt2", "a/b/c", "../gpt2",
					     "a/..", "a/",    "a b",   "a\"b" };
	(void)state;
	for (size_t i = 0; i < sizeof right / sizeof *right; i++)
		assert_true(ckpt_manifest_is_model_name(right[i]));
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (ckpt_manifest_is_model_name(wrong[i]))
			fail_msg("%s", wrong[i]);
	assert_false(ckpt_manifest_is_model_name(NULL));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_renamed_tensor_in_a_header_is_found_by_who_loads_it),
		TEST(headers_that_changed_places_are_found),
		TEST(carried_files_go_into_every_checkpoint_and_out_with_it),
		TEST(a_carried_file_that_changed_or_is_gone_is_named),
		TEST(a_folder_may_hold_links_but_no_pipes),
		TEST(one_failing_call_leaves_the_checkpoint_before),
		TEST(a_writer_that_dies_at_any_call_leaves_no_half_of_it),
		TEST(a_manifest_holds_no_file_twice_and_no_path),
		TEST(names_of_models_are_words_with_a_slash_at_most),
	};
	return cmocka_run_group_tests_name("headers and carried files", tests, NULL, NULL);
}
