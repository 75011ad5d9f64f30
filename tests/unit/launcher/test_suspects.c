/* The list of suspect nodes: what is written, what counts, how sure it is, and whom it trusts. */
#include "launcher/suspects/suspects.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/jsonl.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define NOW 1.8e9
#define DAY 86400.0

static char dir[256], file[700];
static struct suspects_place place;
static struct suspects list;
static struct suspect_node *nodes;
static int n;

static int setup(void **state)
{
	(void)state;
	unsetenv("MUSTER_NODES_DIR");
	if (!tmpdir_make(dir, sizeof dir) || setenv("XDG_CACHE_HOME", dir, 1) ||
	    suspects_place("", &place, NULL))
		return -1;
	snprintf(file, sizeof file, "%s/muster/nodes/%u.jsonl", dir, (unsigned)geteuid());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	suspects_free(&list);
	free(nodes);
	nodes = NULL;
	file_remove_tree(dir);
	return 0;
}

static void note(const char *node, enum suspect_kind kind, double time, const char *run)
{
	const struct suspect_line line = { .time = time,
					   .cluster = "alpha",
					   .node = node,
					   .kind = suspects_kind_word(kind),
					   .evidence = "something was seen",
					   .did = "",
					   .run = run };
	assert_int_equal(suspects_append(&place, &line, NULL), 0);
}

static void rate(const char *cluster)
{
	suspects_free(&list);
	free(nodes);
	assert_int_equal(suspects_read(&place, &list, NULL), 0);
	n = suspects_rate(&list, cluster, NOW, &nodes);
}

static void a_list_that_does_not_exist_is_empty(void **state)
{
	(void)state;
	rate("alpha");
	assert_int_equal(n, 0);
}

static void evidence_adds_up_and_the_most_suspect_node_is_first(void **state)
{
	(void)state;
	note("n1", SUSPECT_HANG, NOW - 60, "/runs/a");
	note("n2", SUSPECT_DEVICE, NOW - 60, "/runs/a");
	note("n1", SUSPECT_HANG, NOW - 30, "/runs/b");
	rate("alpha");
	assert_int_equal(n, 2);
	assert_string_equal(nodes[0].name, "n2");
	assert_true(nodes[0].sure > 0.79 && nodes[0].sure < 0.81);
	assert_true(nodes[1].sure > 0.505 && nodes[1].sure < 0.515);
	assert_int_equal(nodes[1].lines, 2);
	assert_true(nodes[1].latest->line.time == NOW - 30);
}

static void lines_of_one_kind_from_one_run_count_once(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		note("n1", SUSPECT_HANG, NOW - 60 + i, "/runs/a");
	rate("alpha");
	assert_int_equal(n, 1);
	assert_int_equal(nodes[0].lines, 5);
	assert_true(nodes[0].sure > 0.29 && nodes[0].sure < 0.31);
}

static void evidence_weighs_half_after_a_week(void **state)
{
	(void)state;
	note("n1", SUSPECT_DEVICE, NOW - 7 * DAY, "/runs/a");
	rate("alpha");
	assert_true(nodes[0].sure > 0.39 && nodes[0].sure < 0.41);
}

static void a_node_that_was_cleared_is_no_suspect_until_something_else_is_seen(void **state)
{
	(void)state;
	note("n1", SUSPECT_DEVICE, NOW - 60, "/runs/a");
	note("n1", SUSPECT_CLEARED, NOW - 50, "");
	rate("alpha");
	assert_int_equal(n, 0);
	note("n1", SUSPECT_HANG, NOW - 40, "/runs/a");
	rate("alpha");
	assert_int_equal(n, 1);
	assert_int_equal(nodes[0].lines, 1);
}

static void nodes_of_another_cluster_and_of_runs_without_slurm_do_not_count(void **state)
{
	(void)state;
	note("n1", SUSPECT_DEVICE, NOW - 60, "/runs/a");
	rate("beta");
	assert_int_equal(n, 0);
	rate(SUSPECTS_LOCAL);
	assert_int_equal(n, 0);
	rate("");
	assert_int_equal(n, 1);
}

/* As another user would write, who may have written anything. */
static void add_file(const char *name, const char *text)
{
	char path[600];
	snprintf(path, sizeof path, "%s/muster/nodes/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

#define LINE \
	"{\"time\":1800000000,\"cluster\":\"alpha\",\"node\":\"n9\",\"kind\":\"device\"," \
	"\"evidence\":\"x\",\"did\":\"\",\"run\":\"/r\"}\n"

static void a_file_counts_only_if_it_belongs_to_the_user_of_its_name(void **state)
{
	(void)state;
	char other[64];
	note("n1", SUSPECT_HANG, NOW, "/runs/a");
	snprintf(other, sizeof other, "%u.jsonl", (unsigned)geteuid() + 1);
	add_file(other, LINE);
	add_file("notes.jsonl", LINE);
	snprintf(other, sizeof other, "0%u.jsonl", (unsigned)geteuid());
	add_file(other, LINE);
	rate("alpha");
	assert_int_equal(n, 1);
	assert_string_equal(nodes[0].name, "n1");
}

static void only_root_clears_for_others(void **state)
{
	(void)state;
	static const char cleared[] = "{\"time\":1800000001,\"cluster\":\"alpha\",\"node\":\"n9\","
				      "\"kind\":\"cleared\",\"evidence\":\"x\",\"did\":\"\","
				      "\"run\":\"\"}\n";
	struct suspects both = { .n = 0 };
	assert_int_equal(suspects_parse(LINE, strlen(LINE), 7, &both, NULL), 0);
	assert_int_equal(suspects_parse(cleared, strlen(cleared), 8, &both, NULL), 0);
	assert_int_equal(suspects_rate(&both, "alpha", NOW, &nodes), 1);
	free(nodes);
	assert_int_equal(suspects_parse(cleared, strlen(cleared), 0, &both, NULL), 0);
	assert_int_equal(suspects_rate(&both, "alpha", NOW, &nodes), 0);
	suspects_free(&both);
}

static void damaged_lines_are_skipped(void **state)
{
	(void)state;
	note("n1", SUSPECT_HANG, NOW, "/runs/a");
	FILE *f = fopen(file, "a");
	assert_non_null(f);
	fputs("{\"time\":1800000000,\"clu", f);
	assert_int_equal(fclose(f), 0);
	note("n1", SUSPECT_DEVICE, NOW, "/runs/a");
	rate("alpha");
	assert_int_equal(n, 1);
	assert_int_equal(nodes[0].lines, 2);
}

static void its_file_is_private_unless_a_folder_is_named(void **state)
{
	(void)state;
	struct stat st;
	char shared[600];
	note("n1", SUSPECT_HANG, NOW, "/runs/a");
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	snprintf(shared, sizeof shared, "%s/site", dir);
	assert_int_equal(suspects_place(shared, &place, NULL), 0);
	note("n1", SUSPECT_HANG, NOW, "/runs/a");
	snprintf(file, sizeof file, "%s/%u.jsonl", shared, (unsigned)geteuid());
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
}

static bool has_even_number(json_t *line, void *arg)
{
	(void)arg;
	return json_integer_value(json_object_get(line, "n")) % 2 == 0;
}

static int count_line(json_t *line, void *arg)
{
	(void)line;
	++*(int *)arg;
	return 0;
}

/* Whoever waits for the lock of a file gives up after some seconds, which a slow disk can take;
 * that is no lost line. */
static bool out_of_time(int rc, const struct err *e)
{
	return rc < 0 && e->code == ERR_TIMEOUT;
}

static int append_number(const char *path, int number)
{
	json_t *line = json_pack("{s:i}", "n", number);
	struct err e = ERR_INIT;
	int rc;
	while (out_of_time(rc = jsonl_append(path, line, 0600, &e), &e))
		e = (struct err)ERR_INIT;
	json_decref(line);
	return rc;
}

static void shorten_to_even(const char *path)
{
	struct err e = ERR_INIT;
	int rc;
	while (out_of_time(rc = jsonl_shorten(path, 0, has_even_number, NULL, &e), &e))
		e = (struct err)ERR_INIT;
	assert_int_equal(rc, 0);
}

/* While several processes append, another one shortens the file again and again. */
static void no_line_is_lost_while_a_file_is_shortened(void **state)
{
	(void)state;
	enum { WRITERS = 3, LINES = 60 };
	struct buf text = BUF_INIT;
	char path[400];
	int status, lines = 0;
	snprintf(path, sizeof path, "%s/lines", dir);
	for (int w = 0; w < WRITERS; w++)
		if (!fork()) {
			for (int i = 0; i < 2 * LINES; i++)
				if (append_number(path, i))
					_exit(1);
			_exit(0);
		}
	for (int i = 0; i < LINES; i++)
		shorten_to_even(path);
	for (int w = 0; w < WRITERS; w++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	shorten_to_even(path);
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	jsonl_parse(buf_str(&text), text.len, count_line, &lines);
	buf_fini(&text);
	assert_int_equal(lines, WRITERS * LINES);
}

/* Another user may lock a file that all can read. A run must not wait for that user. */
static void a_file_that_stays_locked_is_an_error(void **state)
{
	(void)state;
	const struct suspect_line line = { .time = NOW,
					   .cluster = "alpha",
					   .node = "n1",
					   .kind = "slow",
					   .evidence = "",
					   .did = "",
					   .run = "" };
	struct err e = ERR_INIT;
	note("n1", SUSPECT_SLOW, NOW, "/runs/a");
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && !flock(fd, LOCK_EX));
	assert_int_equal(suspects_append(&place, &line, &e), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	close(fd);
	assert_int_equal(suspects_append(&place, &line, &e), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_list_that_does_not_exist_is_empty),
		CASE(evidence_adds_up_and_the_most_suspect_node_is_first),
		CASE(lines_of_one_kind_from_one_run_count_once),
		CASE(evidence_weighs_half_after_a_week),
		CASE(a_node_that_was_cleared_is_no_suspect_until_something_else_is_seen),
		CASE(nodes_of_another_cluster_and_of_runs_without_slurm_do_not_count),
		CASE(a_file_counts_only_if_it_belongs_to_the_user_of_its_name),
		CASE(only_root_clears_for_others),
		CASE(damaged_lines_are_skipped),
		CASE(its_file_is_private_unless_a_folder_is_named),
		CASE(no_line_is_lost_while_a_file_is_shortened),
		CASE(a_file_that_stays_locked_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
