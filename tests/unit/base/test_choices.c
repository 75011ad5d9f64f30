/* Tests the table of measured choices, its text and its file. */
#include "base/choices.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "%s", "/tmp/test_choices.XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	file_remove_tree(folder);
	return 0;
}

static const char *in_folder(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

static struct choices *open_table(const char *machine, enum choices_mode mode)
{
	struct choices *c = choices_open();
	assert_non_null(c);
	choices_set_machine(c, machine);
	choices_set_mode(c, mode);
	return c;
}

static void put_number(struct choices *c, const char *key, int value)
{
	choices_put(c, key, &value, sizeof value);
}

/* The value of a key, or -1. */
static int number_of(const struct choices *c, const char *key)
{
	int value = -1;
	size_t length = sizeof value;
	if (choices_find(c, key, &value, sizeof value, &length))
		assert_int_equal(length, sizeof value);
	return value;
}

static void a_choice_is_found_by_its_machine_and_key(void **state)
{
	(void)state;
	struct choices *c = open_table("H200", CHOICES_MEASURED);
	char value[2];
	size_t length;
	for (int i = 0; i < 1000; i++) {
		char key[32];
		snprintf(key, sizeof key, "matmul m=%d", i);
		put_number(c, key, i);
	}
	put_number(c, "matmul m=7", 70);
	assert_int_equal(number_of(c, "matmul m=7"), 70);
	assert_int_equal(number_of(c, "matmul m=999"), 999);
	assert_int_equal(number_of(c, "matmul m=1000"), -1);
	assert_false(choices_find(c, "matmul m=7", value, sizeof value, &length));
	choices_set_machine(c, "H100");
	assert_int_equal(number_of(c, "matmul m=7"), -1);
	choices_close(c);
	choices_close(NULL);
}

static void choices_are_dropped_by_the_begin_of_their_keys(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	struct buf text = BUF_INIT;
	put_number(c, "run tp=1", 1);
	put_number(c, "matmul m=1", 2);
	choices_set_mode(c, CHOICES_PROPOSED);
	put_number(c, "run tp=2", 3);
	choices_set_machine(c, "other chip");
	put_number(c, "run tp=1", 4);
	choices_drop(c, "run ");
	choices_note(c, "of a choice that was dropped");
	choices_write(c, &text);
	assert_null(strstr(buf_str(&text), "run "));
	assert_null(strstr(buf_str(&text), "dropped"));
	choices_set_machine(c, "chip");
	assert_int_equal(number_of(c, "matmul m=1"), 2);
	buf_fini(&text);
	choices_close(c);
}

static void choices_of_other_machines_are_dropped(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	put_number(c, "a", 1);
	choices_set_machine(c, "other chip");
	put_number(c, "a", 2);
	choices_drop_others(c);
	assert_int_equal(number_of(c, "a"), 2);
	choices_set_machine(c, "chip");
	assert_int_equal(number_of(c, "a"), -1);
	choices_close(c);
}

/* Who keeps what was found must look again. */
static void a_choice_that_is_replaced_changes_the_version(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	put_number(c, "a", 1);
	unsigned version = choices_version(c);
	put_number(c, "a", 1);
	put_number(c, "b", 1);
	assert_int_equal(choices_version(c), version);
	put_number(c, "a", 2);
	assert_int_not_equal(choices_version(c), version);
	version = choices_version(c);
	choices_set_mode(c, CHOICES_PROPOSED);
	put_number(c, "a", 3); /* nobody finds it */
	assert_int_equal(choices_version(c), version);
	choices_close(c);
}

static void what_cannot_be_written_is_not_kept(void **state)
{
	(void)state;
	struct choices *c = open_table("a\tb\n", CHOICES_MEASURED);
	char longest[CHOICES_TEXT + 1], value[CHOICES_VALUE + 1] = { 0 };
	struct buf text = BUF_INIT;
	memset(longest, 'k', sizeof longest);
	longest[CHOICES_TEXT] = '\0';
	put_number(c, longest, 1);
	put_number(c, "", 1);
	put_number(c, "a\tb", 1);
	choices_put(c, "long", value, sizeof value);
	choices_put(c, "empty", value, 0);
	choices_write(c, &text);
	assert_string_equal(buf_str(&text), "muster-choices 1\n");
	assert_string_equal(choices_machine(c), "a b ");
	buf_fini(&text);
	choices_close(c);
}

static void a_choice_has_a_note_for_people(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED),
		       *back = open_table("chip", CHOICES_FIXED);
	struct buf text = BUF_INIT;
	const char *key, *note;
	choices_note(c, "of nothing");
	put_number(c, "a", 1);
	choices_note(c, "%d us\tfirst %d us", 3, 4);
	put_number(c, "b\n", 2);
	choices_note(c, "of a choice that is not kept");
	choices_write(c, &text);
	assert_int_equal(choices_read(back, text.data, text.len, true), 0);
	assert_true(choices_at(back, 0, &key, &note));
	assert_string_equal(key, "a");
	assert_string_equal(note, "3 us first 4 us");
	assert_false(choices_at(back, 1, &key, &note));
	buf_fini(&text);
	choices_close(c);
	choices_close(back);
}

static void a_full_table_keeps_what_it_has(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	char key[32];
	for (int i = 0; i < CHOICES_MOST + 10; i++) {
		snprintf(key, sizeof key, "%d", i);
		put_number(c, key, i);
	}
	assert_int_equal(number_of(c, "0"), 0);
	assert_int_equal(number_of(c, key), -1);
	choices_close(c);
}

/* Proposals are used only after all ranks agreed on one rank's. */
static void ranks_agree_on_the_choices_of_one(void **state)
{
	(void)state;
	struct choices *first = open_table("chip", CHOICES_PROPOSED),
		       *other = open_table("chip", CHOICES_PROPOSED);
	struct buf text = BUF_INIT;
	put_number(first, "a", 1);
	put_number(first, "b", 2);
	put_number(other, "a", 3);
	put_number(other, "only here", 4);
	assert_int_equal(number_of(first, "a"), -1);
	assert_true(choices_proposed(first, "a"));
	assert_true(choices_wanted(first));
	choices_write(first, &text);
	unsigned before = choices_version(other);
	choices_agree(first, text.data, text.len);
	choices_agree(other, text.data, text.len);
	assert_int_not_equal(choices_version(other), before);
	assert_int_equal(number_of(first, "a"), 1);
	assert_int_equal(number_of(other, "a"), 1);
	assert_int_equal(number_of(other, "b"), 2);
	assert_int_equal(number_of(other, "only here"), -1);
	assert_false(choices_proposed(other, "only here"));
	assert_false(choices_wanted(other));
	buf_fini(&text);
	choices_close(first);
	choices_close(other);
}

/* A chip takes no other chip's choices, but keeps them for the file. */
static void choices_of_other_machines_are_kept_and_not_used(void **state)
{
	(void)state;
	struct choices *a = open_table("H200", CHOICES_MEASURED),
		       *b = open_table("A100", CHOICES_FIXED);
	struct buf text = BUF_INIT, again = BUF_INIT;
	put_number(a, "a", 1);
	choices_write(a, &text);
	assert_int_equal(choices_read(b, text.data, text.len, true), 0);
	assert_int_equal(number_of(b, "a"), -1);
	choices_write(b, &again);
	assert_string_equal(buf_str(&again), buf_str(&text));
	buf_fini(&text);
	buf_fini(&again);
	choices_close(a);
	choices_close(b);
}

/* Whatever byte is changed, and wherever the text ends: no choice gets another value. */
static void a_damaged_line_is_skipped(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	struct buf text = BUF_INIT;
	put_number(c, "a", 1);
	put_number(c, "b", 2);
	choices_write(c, &text);
	for (size_t at = 0; at < 2 * text.len; at++) {
		struct choices *back = open_table("chip", CHOICES_FIXED);
		const bool cut = at >= text.len;
		const size_t n = cut ? at - text.len : text.len;
		if (!cut)
			text.data[at] ^= 1;
		int skipped = choices_read(back, text.data, n, true);
		if (!cut)
			text.data[at] ^= 1;
		int a = number_of(back, "a"), b = number_of(back, "b");
		assert_true((a == 1 || a == -1) && (b == 2 || b == -1));
		assert_true(cut || skipped || (a == 1 && b == 2));
		assert_true(cut || (a == 1) + (b == 2) < 2);
		choices_close(back);
	}
	buf_fini(&text);
	choices_close(c);
}

static void a_file_is_written_privately_and_read_by_the_next(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	struct stat st;
	put_number(c, "a", 1);
	assert_int_equal(choices_load(c, in_folder("missing"), NULL), 0);
	assert_int_equal(choices_save(c, in_folder("new/folder/choices"), NULL), 0);
	assert_int_equal(stat(in_folder("new/folder/choices"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	choices_close(c);
	c = open_table("chip", CHOICES_FIXED);
	assert_int_equal(choices_load(c, in_folder("new/folder/choices"), NULL), 0);
	assert_int_equal(number_of(c, "a"), 1);
	choices_close(c);
}

static void a_damaged_file_is_replaced(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	const char noise[] = "muster-choices 9\n\0\t\t\t\n", *path = in_folder("choices");
	assert_int_equal(file_replace(path, noise, sizeof noise, NULL), 0);
	assert_int_equal(choices_load(c, path, NULL), 0);
	put_number(c, "a", 1);
	assert_int_equal(choices_save(c, path, NULL), 0);
	choices_close(c);
	c = open_table("chip", CHOICES_FIXED);
	assert_int_equal(choices_load(c, path, NULL), 0);
	assert_int_equal(number_of(c, "a"), 1);
	choices_close(c);
}

static void a_file_that_cannot_be_written_is_an_error(void **state)
{
	(void)state;
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	struct err e = ERR_INIT;
	put_number(c, "a", 1);
	assert_int_equal(file_replace(in_folder("file"), "x", 1, NULL), 0);
	assert_int_equal(choices_save(c, in_folder("file/choices"), &e), -1);
	assert_int_not_equal(e.code, 0);
	choices_close(c);
}

enum { WRITERS = 8 };

static void save_from(int i)
{
	struct choices *c = open_table("chip", CHOICES_MEASURED);
	char key[16];
	for (int round = 0; round < 4; round++) {
		snprintf(key, sizeof key, "%d of %d", round, i);
		put_number(c, key, i);
		if (choices_save(c, in_folder("choices"), NULL))
			_exit(1);
	}
	choices_close(c);
	_exit(0);
}

static void several_processes_write_at_once(void **state)
{
	(void)state;
	int status;
	for (int i = 0; i < WRITERS; i++)
		if (!fork())
			save_from(i);
	for (int i = 0; i < WRITERS; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	struct choices *c = open_table("chip", CHOICES_FIXED);
	assert_int_equal(choices_load(c, in_folder("choices"), NULL), 0);
	for (int i = 0; i < WRITERS; i++)
		for (int round = 0; round < 4; round++) {
			char key[16];
			snprintf(key, sizeof key, "%d of %d", round, i);
			assert_int_equal(number_of(c, key), i);
		}
	choices_close(c);
}

static void the_cache_has_a_file_of_choices(void **state)
{
	(void)state;
	char path[64];
	setenv("XDG_CACHE_HOME", "/cache", 1);
	setenv("HOME", "/home/me", 1);
	assert_true(choices_cache_path(path, sizeof path));
	assert_string_equal(path, "/cache/muster/choices");
	setenv("XDG_CACHE_HOME", "relative", 1);
	assert_true(choices_cache_path(path, sizeof path));
	assert_string_equal(path, "/home/me/.cache/muster/choices");
	assert_false(choices_cache_path(path, 10));
	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	assert_false(choices_cache_path(path, sizeof path));
}

int main(void)
{
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_choice_is_found_by_its_machine_and_key),
		cmocka_unit_test(choices_are_dropped_by_the_begin_of_their_keys),
		cmocka_unit_test(choices_of_other_machines_are_dropped),
		cmocka_unit_test(a_choice_that_is_replaced_changes_the_version),
		cmocka_unit_test(what_cannot_be_written_is_not_kept),
		cmocka_unit_test(a_choice_has_a_note_for_people),
		cmocka_unit_test(a_full_table_keeps_what_it_has),
		cmocka_unit_test(ranks_agree_on_the_choices_of_one),
		cmocka_unit_test(choices_of_other_machines_are_kept_and_not_used),
		cmocka_unit_test(a_damaged_line_is_skipped),
		WITH_FOLDER(a_file_is_written_privately_and_read_by_the_next),
		WITH_FOLDER(a_damaged_file_is_replaced),
		WITH_FOLDER(a_file_that_cannot_be_written_is_an_error),
		WITH_FOLDER(several_processes_write_at_once),
		cmocka_unit_test(the_cache_has_a_file_of_choices),
	};
	return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
