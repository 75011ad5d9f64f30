/* Which checkpoints are copied to a remote place, and which a DIR must keep for it. */
#include "agent/engine/ckpt/places/upload.h"
#include "tests/unit/agent/ckpt_saver.h"
#include "tests/unit/agent/s3_double.h"

#include <errno.h>

static char remote[sizeof fix_dir + 16];

static int setup(void **state)
{
	int rc = fix_setup(state);
	snprintf(remote, sizeof remote, "%s/remote", fix_dir);
	return rc;
}

static struct upload_options options_of(struct upload_rules rules)
{
	return (struct upload_options){
		.dir = fix_dir, .remote = remote, .owner = "/runs/a", .rules = rules
	};
}

static void write_steps(const int64_t *steps, int n)
{
	for (int i = 0; i < n; i++)
		fix_write(&whole, steps[i]);
}

/* Returns the steps that are copied, in order, each followed by a space. */
static const char *upload_all(struct upload_rules rules)
{
	static char text[256];
	struct upload_options o = options_of(rules);
	struct upload_result r;
	struct err e = ERR_INIT;
	int rc;
	text[0] = '\0';
	while ((rc = ckpt_upload_one(&o, &r, &e)) == 1)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%lld ",
			 (long long)r.copy.step);
	if (rc)
		fail_msg("%s", e.text);
	assert_int_equal(r.left, 0);
	return text;
}

static const char *needs(struct upload_rules rules)
{
	static char text[256];
	int64_t *steps, n;
	struct err e = ERR_INIT;
	text[0] = '\0';
	if (ckpt_upload_needs(&ckpt_storage_posix, fix_dir, &rules, &steps, &n, &e))
		fail_msg("%s", e.text);
	for (int64_t i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%lld ",
			 (long long)steps[i]);
	free(steps);
	return text;
}

static const int64_t five[] = { 10, 20, 30, 40, 45 };

static void those_that_are_due_are_copied_the_newest_first(void **state)
{
	static const struct {
		struct upload_rules rules;
		const char *copied;
	} cases[] = {
		{ { 0, 45, 0, 0 }, "45 40 30 20 10 " }, { { 20, 45, 0, 0 }, "45 40 20 " },
		{ { 20, 100, 0, 0 }, "40 20 " },        { { 0, 45, 2, 0 }, "45 40 " },
		{ { 0, 45, 1, 20 }, "45 40 20 " },      { { 10, 100, 2, 10 }, "40 30 20 10 " },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		write_steps(five, 5);
		assert_string_equal(needs(cases[i].rules), cases[i].copied);
		assert_string_equal(upload_all(cases[i].rules), cases[i].copied);
		assert_string_equal(needs(cases[i].rules), "");
		assert_string_equal(upload_all(cases[i].rules), "");
		fix_teardown(NULL);
		setup(NULL);
	}
}

static void a_copy_that_was_removed_is_made_again(void **state)
{
	const struct upload_rules all = { 0, 45, 0, 0 };
	char path[PATH_MAX];
	(void)state;
	write_steps(five, 2);
	assert_string_equal(upload_all(all), "20 10 ");
	snprintf(path, sizeof path, "%s/step-00000010", remote);
	fix_remove(path);
	assert_string_equal(upload_all(all), "10 ");
}

static void without_the_log_nothing_is_sent_again(void **state)
{
	const struct upload_rules all = { 0, 45, 0, 0 };
	struct upload_options o = options_of(all);
	struct upload_result r;
	struct err e = ERR_INIT;
	char path[PATH_MAX];
	(void)state;
	write_steps(five, 1);
	assert_string_equal(upload_all(all), "10 ");
	snprintf(path, sizeof path, "%s/" UPLOADS_NAME, fix_dir);
	assert_int_equal(unlink(path), 0);
	assert_string_equal(needs(all), "10 "); /* rather too long than too short */
	assert_int_equal(ckpt_upload_one(&o, &r, &e), 1);
	assert_true(r.copy.there_already);
	assert_int_equal(r.copy.sent, 0);
}

static void a_damaged_one_is_left_out_and_need_not_stay(void **state)
{
	const struct upload_rules all = { 0, 45, 0, 0 };
	struct upload_options o = options_of(all);
	struct upload_result r;
	struct err e = ERR_INIT;
	(void)state;
	write_steps(five, 2);
	assert_int_equal(truncate(fix_path(20, "shard-00000.safetensors"), 300), 0);
	assert_int_equal(ckpt_upload_one(&o, &r, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_string_equal(upload_all(all), "10 ");
	assert_string_equal(needs(all), "");
}

static void a_store_that_lies_makes_no_original_damaged(void **state)
{
	const struct upload_rules all = { 0, 45, 0, 0 };
	(void)state;
	if (!s3_double_start())
		skip();
	setenv("AWS_MAX_ATTEMPTS", "2", 1);
	write_steps(five, 2);
	/* From each request on, the store keeps other bytes, or none: a probe, the files, the
	 * manifest, the pointer. The second one is RUN, which a person must correct. */
	for (int first = 1, failed = 1; failed; first += 1 + (first == 1)) {
		static const char *const lies[] = { "flip", "drop" };
		failed = 0;
		for (int i = 0; i < 2; i++) {
			struct upload_options o = options_of(all);
			struct upload_result r;
			struct err e = ERR_INIT;
			char plan[PATH_MAX];
			snprintf(plan, sizeof plan, "PutObject %d-999 %s", first, lies[i]);
			s3_double_plan(plan);
			snprintf(remote, sizeof remote, "s3://bucket/lies-%d-%d", first, i);
			int rc = ckpt_upload_one(&o, &r, &e);
			if (rc == -1) {
				failed++;
				if (e.code == ERR_CORRUPT)
					fail_msg("%s: %s", plan, e.text);
				assert_string_equal(needs(all), "20 10 ");
			}
			s3_double_plan("");
			assert_string_equal(upload_all(all), rc < 0 ? "20 10 " : "10 ");
			snprintf(plan, sizeof plan, "%s/" UPLOADS_NAME, fix_dir);
			unlink(plan);
		}
		assert_true(failed || first > 5);
	}
	unsetenv("AWS_MAX_ATTEMPTS");
	s3_double_stop();
}

static void what_is_being_copied_stays_although_newer_ones_are_due(void **state)
{
	const struct upload_rules one = { 0, 100, 1, 0 };
	struct err e = ERR_INIT;
	char path[PATH_MAX];
	static const char text[] = "uploading 10\n";
	(void)state;
	write_steps(five, 3);
	snprintf(path, sizeof path, "%s/" UPLOADS_NAME, fix_dir);
	assert_int_equal(file_replace(path, text, strlen(text), &e), 0);
	assert_string_equal(needs(one), "30 10 ");
}

static void the_place_of_another_run_is_refused(void **state)
{
	const struct upload_rules all = { 0, 45, 0, 0 };
	struct upload_options o = options_of(all);
	struct upload_result r;
	struct err e = ERR_INIT;
	(void)state;
	write_steps(five, 1);
	assert_string_equal(upload_all(all), "10 ");
	o.owner = "/runs/b";
	assert_int_equal(ckpt_upload_one(&o, &r, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
}

#define DIGEST "0123456789abcdef0123456789abcdef"

static void lines_of_another_form_are_ignored(void **state)
{
	static const char text[] = "done 10 " DIGEST "\n"
				   "done 11\n"
				   "done x " DIGEST "\n"
				   "done 12 " DIGEST "0\n"
				   "done 99999999999999999999 " DIGEST "\n"
				   "damaged 13 " DIGEST "\n"
				   "uploading 14 \n"
				   "uploading 15\n"
				   "\n"
				   "nonsense";
	struct upload_log log;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(ckpt_upload_parse(text, sizeof text - 1, &log, &e), 0);
	assert_int_equal(log.n, 2);
	assert_int_equal(log.lines[0].step, 10);
	assert_false(log.lines[0].damaged);
	assert_int_equal(log.lines[1].step, 13);
	assert_true(log.lines[1].damaged);
	assert_int_equal(log.uploading, 15);
	ckpt_upload_log_fini(&log);
	assert_int_equal(ckpt_upload_parse("", 0, &log, &e), 0);
	assert_int_equal(log.uploading, -1);
}

/* Pruning keeps what is needed although it is older than those that are kept. */
static void a_commit_keeps_what_is_to_be_copied(void **state)
{
	struct err e = ERR_INIT;
	const struct upload_rules rules = { 0, 100, 2, 0 };
	struct comm *world = world_alone();
	struct saver s = { .world = world, .model = fix_model(), .layout = json_object() };
	struct ckpt_options opt = { .dir = fix_dir,
				    .keep = 1,
				    .keep_every = 20,
				    .generation = 3,
				    .model = s.model,
				    .layout = s.layout,
				    .uploads = &rules };
	(void)state;
	assert_int_equal(ckpt_writer_open(world, &opt, &s.writer, &e), 0);
	for (int64_t step = 10; step <= 50; step += 10)
		assert_int_equal(save(&s, step, &e), 0);
	assert_int_equal(fix_count("step-"), 3); /* 20 for good; 40 and 50 to be copied */
	verify(20);
	verify(40);
	assert_string_equal(upload_all(rules), "50 40 ");
	assert_int_equal(save(&s, 60, &e), 0);
	assert_int_equal(fix_count("step-"), 3); /* 20 and 40 for good, and 60 */
	saver_close(&s);
	comm_close(world);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(those_that_are_due_are_copied_the_newest_first),
		CASE(a_copy_that_was_removed_is_made_again),
		CASE(without_the_log_nothing_is_sent_again),
		CASE(a_damaged_one_is_left_out_and_need_not_stay),
		CASE(a_store_that_lies_makes_no_original_damaged),
		CASE(what_is_being_copied_stays_although_newer_ones_are_due),
		CASE(the_place_of_another_run_is_refused),
		CASE(lines_of_another_form_are_ignored),
		CASE(a_commit_keeps_what_is_to_be_copied),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
