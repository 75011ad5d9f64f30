/* Which checkpoint of which tier a run resumes from. */
#include "agent/engine/train/choose.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_saver.h"
#include "tests/unit/agent/crash.h"

#include <sys/wait.h>

static char places[TRAIN_NAMED][sizeof fix_dir]; /* a folder for each tier */
static char base[sizeof fix_dir / 2];

static int setup(void **state)
{
	int rc = fix_setup(state);
	strcpy(base, fix_dir);
	for (enum train_tier t = TRAIN_LOCAL; t < TRAIN_NAMED; t++) {
		snprintf(places[t], sizeof places[t], "%s/%s", base, train_tier_word(t));
		rc |= mkdir(places[t], 0700);
	}
	return rc;
}

static int teardown(void **state)
{
	strcpy(fix_dir, base);
	return fix_teardown(state);
}

static void write_in(enum train_tier tier, int64_t step)
{
	strcpy(fix_dir, places[tier]);
	fix_write(&whole, step);
}

static void spoil(enum train_tier tier, int64_t step)
{
	char path[sizeof fix_dir + 40];
	snprintf(path, sizeof path, "%s/step-%08lld/MANIFEST.json", places[tier], (long long)step);
	assert_int_equal(truncate(path, 50), 0);
}

/* One rank chooses. Returns 0, or the code of the error, which is in *e. */
static enum err_code choose(const char *requested, const struct train_refused *refused,
			    const json_t *rollbacks, bool copied, struct train_choice *out,
			    struct err *e)
{
	struct comm *world = world_alone();
	struct ckpt_local local = { .keep = 1 };
	json_t *model = fix_model();
	snprintf(local.dir, sizeof local.dir, "%s", places[TRAIN_LOCAL]);
	const struct train_tiers tiers = { .dir = places[TRAIN_DIR],
					   .local = &local,
					   .remote = places[TRAIN_REMOTE],
					   .copied = copied,
					   .owner = "/runs/a",
					   .rollbacks = rollbacks };
	int rc = train_choose(world, requested, &tiers, refused, model, out, e);
	json_decref(model);
	comm_close(world);
	return rc ? e->code : ERR_NONE;
}

static void expect(enum train_tier tier, int64_t step)
{
	struct train_choice c;
	struct err e = ERR_INIT;
	if (choose("auto", NULL, NULL, true, &c, &e))
		fail_msg("%s", e.text);
	assert_int_equal(c.step, step);
	assert_int_equal(c.tier, tier);
	assert_true((c.local != NULL) == (tier == TRAIN_LOCAL));
	assert_int_equal(strncmp(c.path, places[tier], strlen(places[tier])), 0);
	train_choice_fini(&c);
}

static void the_newest_step_counts_whichever_tier_has_it(void **state)
{
	(void)state;
	write_in(TRAIN_REMOTE, 5);
	expect(TRAIN_REMOTE, 5);
	write_in(TRAIN_DIR, 6);
	expect(TRAIN_DIR, 6);
	write_in(TRAIN_LOCAL, 7);
	expect(TRAIN_LOCAL, 7);
	write_in(TRAIN_REMOTE, 8);
	expect(TRAIN_REMOTE, 8);
}

static void of_one_step_local_comes_before_dir_and_dir_before_remote(void **state)
{
	(void)state;
	write_in(TRAIN_REMOTE, 5);
	write_in(TRAIN_DIR, 5);
	expect(TRAIN_DIR, 5);
	write_in(TRAIN_LOCAL, 5);
	expect(TRAIN_LOCAL, 5);
}

static void a_damaged_one_gives_way_to_the_same_step_of_another_tier(void **state)
{
	(void)state;
	for (enum train_tier t = TRAIN_LOCAL; t < TRAIN_NAMED; t++) {
		write_in(t, 4);
		write_in(t, 5);
	}
	spoil(TRAIN_LOCAL, 5);
	expect(TRAIN_DIR, 5);
	spoil(TRAIN_DIR, 5);
	expect(TRAIN_REMOTE, 5);
	spoil(TRAIN_REMOTE, 5);
	expect(TRAIN_LOCAL, 4);
}

static void a_copy_that_was_refused_is_left_out(void **state)
{
	const struct train_refused refused = { .steps = { 9 }, .n = 1 };
	struct train_choice c;
	struct err e = ERR_INIT;
	(void)state;
	write_in(TRAIN_REMOTE, 9);
	write_in(TRAIN_DIR, 4);
	assert_int_equal(choose("auto", &refused, NULL, true, &c, &e), ERR_NONE);
	assert_int_equal(c.tier, TRAIN_DIR);
	assert_int_equal(c.step, 4);
}

static void copies_beyond_a_rollback_are_left_out(void **state)
{
	struct train_choice c;
	struct err e = ERR_INIT;
	json_t *rollbacks = json_pack("[{s:i, s:i, s:s, s:i, s:i}]", "first", 0, "count", 1,
				      "reason", "spike", "generation", 1, "resume", 6);
	(void)state;
	write_in(TRAIN_REMOTE, 9); /* by generation 1 */
	write_in(TRAIN_LOCAL, 8);
	write_in(TRAIN_REMOTE, 5);
	assert_int_equal(choose("auto", NULL, rollbacks, true, &c, &e), ERR_NONE);
	assert_int_equal(c.tier, TRAIN_REMOTE);
	assert_int_equal(c.step, 5);
	train_choice_fini(&c);
	json_decref(rollbacks);
}

static void a_remote_place_that_is_down_matters_only_if_it_has_copies(void **state)
{
	struct train_choice c;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(rmdir(places[TRAIN_REMOTE]), 0);
	close(open(places[TRAIN_REMOTE], O_CREAT | O_WRONLY, 0600));
	assert_int_equal(choose("auto", NULL, NULL, false, &c, &e), ERR_NONE);
	assert_string_equal(c.path, "");
	assert_int_not_equal(choose("auto", NULL, NULL, true, &c, &e), ERR_NONE);
	write_in(TRAIN_DIR, 4);
	expect(TRAIN_DIR, 4);
}

static void the_copies_of_another_run_are_refused(void **state)
{
	struct train_choice c;
	struct err e = ERR_INIT;
	char path[sizeof fix_dir + 8];
	(void)state;
	write_in(TRAIN_REMOTE, 9);
	write_in(TRAIN_DIR, 4);
	snprintf(path, sizeof path, "%s/RUN", places[TRAIN_REMOTE]);
	assert_int_equal(file_replace(path, "/runs/b", 7, &e), 0);
	assert_int_equal(choose("auto", NULL, NULL, true, &c, &e), ERR_USAGE);
	assert_non_null(strstr(e.text, "checkpoint.remote"));
}

static void none_is_refused_if_any_tier_has_one(void **state)
{
	(void)state;
	for (enum train_tier t = TRAIN_LOCAL; t < TRAIN_NAMED; t++) {
		struct train_choice c;
		struct err e = ERR_INIT;
		write_in(t, 3);
		assert_int_equal(choose("none", NULL, NULL, true, &c, &e), ERR_USAGE);
		fix_remove(fix_path(3, NULL));
	}
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

enum { CHOSE_LAST = 10, CHOSE_OTHER = 11 };

static int choose_in_a_process(void *arg)
{
	struct train_choice c;
	struct err e = ERR_INIT;
	(void)arg;
	crash_mark(0);
	if (choose("auto", NULL, NULL, true, &c, &e))
		return strstr(e.text, strerror(EIO)) && strstr(e.text, "move ") ? 0 : 1;
	return c.step == 9 ? CHOSE_LAST : CHOSE_OTHER;
}

static void what_cannot_be_read_now_is_not_replaced_by_an_older_one(void **state)
{
	(void)state;
	if (!crash_possible())
		skip();
	for (enum train_tier t = TRAIN_DIR; t < TRAIN_NAMED; t++) {
		char file[sizeof fix_dir + 64];
		struct crash_plan plan = { .under = file, .what = CRASH_FAIL, .error = EIO };
		struct crash_seen seen = { .hit = true };
		int failed = 0;
		for (enum train_tier all = TRAIN_LOCAL; all < TRAIN_NAMED; all++)
			write_in(all, 5 + 2 * (all == t));
		write_in(t, 9);
		snprintf(file, sizeof file, "%s/step-00000009/MANIFEST.json", places[t]);
		for (plan.at = 1; seen.hit; plan.at++) {
			assert_int_equal(crash_run(choose_in_a_process, NULL, &plan, &seen), 0);
			if (!WIFEXITED(seen.status) || WEXITSTATUS(seen.status) % CHOSE_LAST)
				fail_msg("%s: %s: it ends with %x", file, seen.call, seen.status);
			failed += WEXITSTATUS(seen.status) == 0;
		}
		assert_true(failed > 1);
		teardown(state);
		setup(state);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_newest_step_counts_whichever_tier_has_it),
		CASE(of_one_step_local_comes_before_dir_and_dir_before_remote),
		CASE(a_damaged_one_gives_way_to_the_same_step_of_another_tier),
		CASE(a_copy_that_was_refused_is_left_out),
		CASE(copies_beyond_a_rollback_are_left_out),
		CASE(a_remote_place_that_is_down_matters_only_if_it_has_copies),
		CASE(the_copies_of_another_run_are_refused),
		CASE(none_is_refused_if_any_tier_has_one),
		CASE(what_cannot_be_read_now_is_not_replaced_by_an_older_one),
	};
	log_setup(open("/dev/null", O_WRONLY), LOG_ERROR, "test");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
