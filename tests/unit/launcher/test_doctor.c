/* Checks that behave and checks that do not, what nodes and programs receive, and the page. */
#include "launcher/doctor/doctor.h"

#include "base/clock.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"
#include "plan/spec/optimizers.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void check_ok(const struct needs *n, struct findings *f)
{
	doctor_found_ok(f, "it", "is well, with %d ranks", n->ranks);
}

static void check_bad(const struct needs *n, struct findings *f)
{
	(void)n;
	doctor_found_bad(f, FINDING_WARN, "that", "mend it", "is \033[2Jill");
	doctor_found_bad(f, FINDING_FAIL, "that too", "mend it", "is worse");
}

static void check_hangs(const struct needs *n, struct findings *f)
{
	(void)n;
	doctor_found_ok(f, "before", "it hangs");
	signal(SIGTERM, SIG_IGN);
	for (;;)
		pause();
}

static void check_crashes(const struct needs *n, struct findings *f)
{
	(void)n, (void)f;
	raise(SIGKILL);
}

static void check_exits(const struct needs *n, struct findings *f)
{
	(void)n, (void)f;
	_exit(0);
}

/* Answers, but its process does not end: the exit of a program that used a driver may hang. */
static void check_answers_and_stays(const struct needs *n, struct findings *f)
{
	struct stat st;
	doctor_found_ok(f, "it", "took its time, with %d ranks", n->ranks);
	json_t *doc = doctor_findings_json(f);
	char *text = json_dumps(doc, JSON_COMPACT);
	for (int fd = 3; fd < 256; fd++)
		if (!fstat(fd, &st) && S_ISFIFO(st.st_mode) &&
		    (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
			if (write(fd, text, strlen(text)) < 0)
				abort();
			close(fd);
		}
	for (;;)
		pause();
}

/* Answers, but a process that it started keeps the pipe open. */
static void check_leaves_a_child(const struct needs *n, struct findings *f)
{
	if (!fork())
		for (;;)
			pause();
	doctor_found_ok(f, "it", "has a child, with %d ranks", n->ranks);
}

static void check_prints(const struct needs *n, struct findings *f)
{
	(void)n;
	printf("a library's own words\n");
	fflush(stdout);
	char text[900] = "ä long täxt thät is cut: ";
	while (strlen(text) < sizeof text - 3)
		strcat(text, "ä");
	doctor_found_ok(f, "it", "%s", text);
}

static void every_end_of_a_check_is_a_finding(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct check checks[] = {
		{ "well", 60, false, "", check_ok }, { "hangs", 0.3, false, "", check_hangs }, { "ill", 60, true, "", check_bad },
			{ "crashes", 60, false, "", check_crashes },
		{ "leaves", 60, false, "", check_exits }, { "chatters", 60, false, "", check_prints }, { NULL, 0, false, NULL, NULL },
	};
	/* clang-format on */
	/* clang-format off */
	static const struct {
		const char *check, *found;
		enum finding_level level;
	} rows[] = {
		{ "well", "is well, with 7 ranks", FINDING_OK }, { "hangs", "did not answer within 0.3 s", FINDING_FAIL },
			{ "ill", "is  [2Jill", FINDING_WARN }, { "ill", "is worse", FINDING_FAIL },
		{ "crashes", "ended by signal 9 (Killed)", FINDING_FAIL }, { "leaves", "answer cannot be read", FINDING_FAIL },
		{ "chatters", "ä long", FINDING_OK },
	};
	/* clang-format on */
	struct findings f = { .rows = NULL };
	const struct needs n = { .ranks = 7 };
	double before = clock_s();
	doctor_run(checks, &n, DOCTOR_ALL, &f);
	assert_true(clock_s() - before < 30);
	assert_int_equal(f.n, (int)(sizeof rows / sizeof *rows));
	for (int i = 0; i < f.n; i++) {
		assert_string_equal(f.rows[i].check, rows[i].check);
		assert_int_equal(f.rows[i].level, rows[i].level);
		if (!strstr(f.rows[i].found, rows[i].found))
			fail_msg("%s: \"%s\"", rows[i].check, f.rows[i].found);
		assert_true(f.rows[i].level == FINDING_OK || strlen(f.rows[i].remedy) > 5);
	}
	assert_int_equal(doctor_findings_worst(&f), FINDING_FAIL);
	doctor_findings_fini(&f);
	doctor_run(checks + 2, &n, DOCTOR_ONCE, &f);
	assert_int_equal(f.n, 2);
	doctor_findings_fini(&f);
}

static void an_answer_counts_although_its_process_has_to_be_killed(void **state)
{
	(void)state;
	static const struct check checks[] = { { "stays", 60, false, "", check_answers_and_stays },
					       { "child", 3, false, "", check_leaves_a_child },
					       { NULL, 0, false, NULL, NULL } };
	struct findings f = { .rows = NULL };
	const struct needs n = { .ranks = 7 };
	doctor_run(checks, &n, DOCTOR_ALL, &f);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.rows[0].found, "took its time, with 7 ranks");
	assert_string_equal(f.rows[1].found, "has a child, with 7 ranks");
	assert_int_equal(doctor_findings_worst(&f), FINDING_OK);
	doctor_findings_fini(&f);
}

/* The elements of a model's parameters and of their optimizer states, one tensor at a time. */
static double saved_elements(const struct job *job)
{
	const struct stage all = { .layer_hi = (int)job->model.layers,
				   .first = true,
				   .last = true };
	const struct share whole = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	struct model_shape m;
	struct catalogue c;
	double sum = 0;
	shape_of_job(job, &m);
	assert_int_equal(catalogue_build(&m, &whole, &c, NULL), 0);
	for (int i = 0; i < c.n; i++) {
		const struct param *p = &c.params[i];
		int64_t shape[2];
		int dims;
		sum += p->tied_copy ? 0 : (double)p->count;
		for (int k = 0; k < OPTIMIZER_STATES_MAX && !p->tied_copy; k++)
			if (optimizer_state_shape(job->optimizer.kind, k, p, shape, &dims))
				sum += (double)(shape[0] * shape[1]);
	}
	catalogue_free(&c);
	return sum;
}

static void a_checkpoint_has_every_state_of_the_optimizer(void **state)
{
	(void)state;
	for (int kind = 0; kind < OPTIMIZER_KINDS; kind++) {
		char word[64];
		snprintf(word, sizeof word, "optimizer.kind=%s", optimizer_words[kind]);
		const char *const words[] = { "model.layers=2",    "model.hidden=64",
					      "model.heads=2",     "model.vocab=256",
					      "model.seq=32",      "batch.global=4",
					      "checkpoint.keep=2", word };
		struct needs n = { .slurm = false };
		struct job job;
		struct err e = ERR_INIT;
		if (job_load(NULL, words, sizeof words / sizeof *words, &job, &e))
			fail_msg("%s: %s", word, e.text);
		doctor_needs_of_job(&job, "job.ini", &n);
		assert_int_equal((long)n.checkpoint, (long)(3 * 4 * saved_elements(&job)));
	}
}

static void with_few_descriptors_some_checks_run_and_none_is_waited_for(void **state)
{
	(void)state;
	enum { CHECKS = 30 };
	struct check checks[CHECKS + 1] = { { .name = NULL } };
	struct findings f = { .rows = NULL };
	const struct needs n = { .ranks = 7 };
	struct rlimit was, few;
	int next = dup(STDIN_FILENO);
	for (int i = 0; i < CHECKS; i++)
		checks[i] = (struct check){ "well", 60, false, "", check_ok };
	close(next);
	getrlimit(RLIMIT_NOFILE, &was);
	few = (struct rlimit){ (rlim_t)next + 3, was.rlim_max };
	setrlimit(RLIMIT_NOFILE, &few);
	double before = clock_s();
	doctor_run(checks, &n, DOCTOR_ALL, &f);
	setrlimit(RLIMIT_NOFILE, &was);
	assert_true(clock_s() - before < 30);
	assert_int_equal(f.n, CHECKS);
	int ran = 0;
	for (int i = 0; i < f.n; i++)
		if (f.rows[i].level == FINDING_OK)
			ran++;
		else
			assert_string_equal(f.rows[i].remedy, "raise ulimit -n");
	assert_int_equal(ran, 2);
	doctor_findings_fini(&f);
}

static void findings_pass_unchanged_to_another_process(void **state)
{
	(void)state;
	struct findings f = { .check = "one" }, back = { .rows = NULL };
	doctor_found_ok(&f, "GPU0", "79 GiB, \"free\", in /a\xff/b\xc3");
	assert_string_equal(f.rows[0].found, "79 GiB, \"free\", in /a?/b?");
	doctor_found_bad(&f, FINDING_WARN, "GPU1", "mend it", "89 °C");
	doctor_found_facts(&f, json_pack("{s:i}", "GPUs", 8));
	json_t *list = doctor_findings_json(&f);
	assert_int_equal(doctor_findings_read(&back, list), 0);
	assert_int_equal(back.n, 2);
	assert_string_equal(back.rows[0].found, f.rows[0].found);
	assert_string_equal(back.rows[1].remedy, "mend it");
	assert_string_equal(back.rows[1].check, "one");
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(back.facts, "one"), "GPUs")), 8);
	json_decref(list);
	static const char *const bad[] = { "{}",
					   "null",
					   "[]",
					   "{\"findings\":[1]}",
					   "{\"findings\":[{}]}",
					   "{\"findings\":[{\"level\":\"bad\"}]}",
					   "{\"findings\":[{\"level\":\"ok\"},{\"level\":7}]}" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		list = json_loads(bad[i], JSON_DECODE_ANY, NULL);
		assert_int_equal(doctor_findings_read(&back, list), -1);
		assert_int_equal(back.n, 2);
		json_decref(list);
	}
	/* The node omits values, or writes text that misleads a terminal. */
	list = json_loads("{\"facts\":7,\"findings\":[{\"level\":\"fail\",\"found\":\"\\u001b["
			  "2J\\u009b\",\"object\":7}]}",
			  0, NULL);
	assert_int_equal(doctor_findings_read(&back, list), 0);
	assert_string_equal(back.rows[2].object, "");
	assert_null(strchr(back.rows[2].found, '\033'));
	json_decref(list);
	doctor_findings_fini(&f);
	doctor_findings_fini(&back);
}

static void needs_pass_unchanged_through_a_command_line(void **state)
{
	(void)state;
	struct needs n = { .job = true,
			   .cuda = true,
			   .fp32 = true,
			   .slurm = true,
			   .ranks = 8,
			   .memory = 24e9,
			   .host_memory = 1,
			   .checkpoint = 3e11 },
		     back;
	strcpy(n.run_dir, "/a b/\"c\"");
	strcpy(n.data, "0.7 A 0.3 B");
	strcpy(n.trouble, "too little");
	json_t *doc = doctor_needs_json(&n);
	char *text = json_dumps(doc, JSON_COMPACT);
	json_decref(doc);
	assert_int_equal(doctor_needs_read(text, &back, NULL), 0);
	assert_string_equal(back.run_dir, n.run_dir);
	assert_string_equal(back.data, n.data);
	assert_string_equal(back.trouble, n.trouble);
	assert_true(back.job && back.cuda && back.fp32 && back.slurm && back.ranks == 8 &&
		    back.memory == 24e9 && back.checkpoint == 3e11);
	free(text);
	static const char *const bad[] = { "", "{", "[]", "{\"job\":true}", "7" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(doctor_needs_read(bad[i], &back, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
	}
}

static void equal_findings_of_several_nodes_are_one_line(void **state)
{
	(void)state;
	struct doctor_node nodes[5];
	memset(nodes, 0, sizeof nodes);
	for (int i = 0; i < 5; i++) {
		struct findings *f = &nodes[i].found;
		snprintf(nodes[i].name, sizeof nodes[i].name, "n%d", i + 1);
		f->check = "memory";
		doctor_found_ok(f, "memory", "%d GiB", i);
		f->check = "gpus";
		doctor_found_bad(f, FINDING_WARN, "PCI devices", "install it", "not shown");
		if (i)
			doctor_found_bad(f, FINDING_FAIL, "GPU3", "exchange it", "broken");
	}
	struct buf page = BUF_INIT;
	doctor_print(nodes, 5, false, false, 100, &page);
	assert_string_equal(buf_str(&page),
			    "muster doctor: n1 and 4 other nodes\n\n"
			    "ok    memory                  0 GiB\n"
			    "warn  PCI devices             every node: not shown\n"
			    "                            → install it\n"
			    "fail  GPU3                    n2, n3, n4 and 1 more: broken\n"
			    "                            → exchange it\n"
			    "\n5 ok, 5 warnings, 4 failures; 1 of 5 nodes can be used\n");
	buf_clear(&page);
	doctor_print(nodes, 1, true, true, 40, &page);
	assert_non_null(
		strstr(buf_str(&page), "\033[33mwarn\033[0m  PCI devices             not shown\n"));
	assert_null(strstr(buf_str(&page), "memory"));
	buf_fini(&page);
	json_t *doc = doctor_json(nodes, 5);
	assert_string_equal(json_string_value(json_object_get(doc, "level")), "fail");
	assert_int_equal(json_array_size(json_object_get(doc, "nodes")), 5);
	json_decref(doc);
	for (int i = 0; i < 5; i++)
		doctor_findings_fini(&nodes[i].found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_end_of_a_check_is_a_finding),
		cmocka_unit_test(an_answer_counts_although_its_process_has_to_be_killed),
		cmocka_unit_test(with_few_descriptors_some_checks_run_and_none_is_waited_for),
		cmocka_unit_test(a_checkpoint_has_every_state_of_the_optimizer),
		cmocka_unit_test(findings_pass_unchanged_to_another_process),
		cmocka_unit_test(needs_pass_unchanged_through_a_command_line),
		cmocka_unit_test(equal_findings_of_several_nodes_are_one_line),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
