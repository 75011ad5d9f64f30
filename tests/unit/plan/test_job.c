/* Job files: which are accepted, which are refused, and with which words. */
#include "base/buf.h"
#include "base/file.h"
#include "base/philox.h"
#include "plan/spec/job/job.h"
#include "plan/spec/job/keys.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BAD "tests/cli/jobs/bad"

static void the_defaults_are_a_whole_job(void **state)
{
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load(NULL, NULL, 0, &job, &e), 0);
	assert_string_equal(job.job.name, "muster");
	assert_int_equal(job.model.vocab, 256);
	assert_int_equal(job.parallel.tp, 1);
	assert_int_equal(job.parallel.dp, 0);
	assert_true(job.slurm.requeue);
	assert_string_equal(job.data.path, "");
}

static void each_default_in_the_table_is_right(void **state)
{
	(void)state;
	for (int i = 0; i < job_n_keys; i++) {
		struct job job = { 0 };
		struct buf why = BUF_INIT, back = BUF_INIT;
		assert_int_equal(job_value_read(&job_keys[i], job_keys[i].def, &job, &why), 0);
		job_value_write(&job_keys[i], &job, &back);
		assert_string_equal(buf_str(&back), job_keys[i].def);
		buf_fini(&back);
		buf_fini(&why);
		assert_int_equal(job_key_find(job_keys[i].section, job_keys[i].name), i);
		assert_int_equal(job_key_at(job_keys[i].offset), i);
	}
}

static void a_file_needs_only_the_data_path(void **state)
{
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_parse("[data]\npath = corpus\n", "tiny.ini", &job, &e), 0);
	assert_int_equal(job_check_run(&job, "tiny.ini", &e), 0);
	assert_int_equal(job_parse("", "tiny.ini", &job, &e), 0);
	assert_int_equal(job_check_run(&job, "tiny.ini", &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_string_equal(
		e.text,
		"tiny.ini: [data] path: is not given, and there is nothing to train on; "
		"set it to the PREFIX that `muster data pack FILES -o PREFIX` wrote, or set "
		"job.program to run a program of your own");
}

static void the_syntax_is_forgiving_where_it_is_clear(void **state)
{
	static const char text[] =
		"\xef\xbb\xbf; a mark of UTF-8 in front, comments of any bytes \xff\r\n"
		"[model]\r\n"
		"   layers=3\n"
		"\thidden :  96   ; the width\n"
		"\n"
		"# another comment\n"
		"[ data ] ; where it is\n"
		"path = /data/gr\xc3\xb6\xc3\x9f"
		"e;1/a=b:c\n"
		"[model]\n"
		"heads = 6";
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	if (job_parse(text, "odd.ini", &job, &e))
		fail_msg("%s", e.text);
	assert_int_equal(job.model.layers, 3);
	assert_int_equal(job.model.hidden, 96);
	assert_int_equal(job.model.heads, 6);
	assert_string_equal(job.data.path, "/data/gr\xc3\xb6\xc3\x9f"
					   "e;1/a=b:c");
}

static void a_job_is_named_after_its_file(void **state)
{
	char dir[64], path[96];
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(path, sizeof path, "%s/tiny-2.ini", dir);
	assert_int_equal(file_replace(path, "[model]\nlayers = 2\n", 19, &e), 0);
	assert_int_equal(job_load(path, NULL, 0, &job, &e), 0);
	assert_string_equal(job.job.name, "tiny-2");
	const char *const words[] = { "job.name=other" };
	assert_int_equal(job_load(path, words, 1, &job, &e), 0);
	assert_string_equal(job.job.name, "other");
	unlink(path);
	rmdir(dir);
}

static void words_override_the_file(void **state)
{
	const char *const words[] = { "model.layers=7", " data.path = a=b ", "slurm.requeue=no" };
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load("templates/jobs/demo.ini", words, 3, &job, &e), 0);
	assert_int_equal(job.model.layers, 7);
	assert_string_equal(job.data.path, "a=b");
	assert_false(job.slurm.requeue);
}

struct refused {
	const char *word, *text;
};

static void bad_words_are_refused_by_name(void **state)
{
	/* clang-format off */
	static const struct refused cases[] = {
		{ "tp", "command line: tp: is not section.key=value; write such as parallel.tp=2" },
		{ "tp=2", "command line: tp: lacks its section; write section.key=value, such as parallel.tp=2" },
		{ "=2", "command line: : lacks its section; write section.key=value, such as parallel.tp=2" },
		{ "paralel.tp=2", "command line: paralel.tp: unknown section; did you mean [parallel]?" },
		{ "parallel.pt=2", "command line: parallel.pt: unknown key; did you mean tp?" },
		{ "model.tp=2", "command line: model.tp: unknown key; it belongs to [parallel]" },
		{ "parallel.tp=two", "command line: parallel.tp: \"two\" is not a whole number; use a whole number from 1 to 1024 or auto" },
		{ "parallel.tp=", "command line: parallel.tp: has no value; give one, or delete the line for the default (1)" },
		{ "data.path=a\nb", "command line: data.path: byte 0x0a is not printable UTF-8 text; delete it" },
		{ "data.path=\xc0\xaf", "command line: data.path: byte 0xc0 is not printable UTF-8 text; delete it" },
		{ "data.path=\xc2\x85", "command line: data.path: byte 0xc2 is not printable UTF-8 text; delete it" },
		{ "data.path=\xed\xa0\x80", "command line: data.path: byte 0xed is not printable UTF-8 text; delete it" },
		{ "data.path=a ;b", "command line: data.path: \"a ;b\" contains the start of a comment; write comments on lines of their own, and values without \" #\" and \" ;\"" },
		{ "parallel.pp=5", "command line: parallel.pp: pp = 5 needs a layer for each stage of muster's engine and layers = 4; use pp of at most 4" },
		{ "checkpoint.local=s3://b/p", "command line: checkpoint.local: local = s3://b/p is not a folder of a node; name one on a disk of its own, such as /local/%N, and use remote for an object store" },
		{ "checkpoint.local=/l/%H", "command line: checkpoint.local: local = /l/%H has a % that is not %N, the name of the node; remove it" },
		{ "checkpoint.local=/l/%", "command line: checkpoint.local: local = /l/% has a % that is not %N, the name of the node; remove it" },
		{ "checkpoint.local=runs/demo/ckpt/", "command line: checkpoint.local: local and dir are both = runs/demo/ckpt/; local needs a folder of its own on each node" },
		{ "checkpoint.remote=gs://b/p", "command line: checkpoint.remote: remote = gs://b/p is in a storage that muster does not know; use s3://…, or a folder" },
		{ "checkpoint.remote=runs/demo/ckpt", "command line: checkpoint.remote: remote and dir are both = runs/demo/ckpt; remote needs a place of its own" },
		{ "checkpoint.local_every=5", "command line: checkpoint.local_every: local_every = 5 has no effect with [checkpoint] local = ; use local = a folder, or local_every = 10" },
		{ "checkpoint.remote_wait=5", "command line: checkpoint.remote_wait: remote_wait = 5 has no effect with [checkpoint] remote = ; use remote = s3://bucket/prefix, or remote_wait = 600" },
		{ "plan.engine=fsdp", "command line: plan.engine: \"fsdp\" is not muster, megatron-core, megatron-core-graphs, megatron-core-2026, megatron-core-2024, megatron-2021, megatron-2022, fsdp-eager, fsdp-compiled, fsdp-async-tp or deepspeed; use one of these" },
		{ "plan.loss=fused", "command line: plan.loss: loss = fused has no effect with [plan] engine = muster; use engine = megatron-core, megatron-core-graphs, megatron-core-2026, megatron-core-2024, megatron-2021, megatron-2022, fsdp-eager, fsdp-compiled, fsdp-async-tp or deepspeed, or loss = whole" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct job job;
		struct err e = ERR_INIT;
		assert_int_equal(job_load("templates/jobs/demo.ini", &cases[i].word, 1, &job, &e),
				 -1);
		assert_string_equal(e.text, cases[i].text);
		assert_int_equal(e.code, ERR_USAGE);
	}
}

/* demo.ini has 4 layers. Only muster's engine needs one in each stage. */
static void other_programs_have_stages_without_layers(void **state)
{
	static const char *const few[] = { "plan.engine=megatron-core", "parallel.pp=6" };
	static const char *const many[] = { "plan.engine=megatron-core", "parallel.pp=7" };
	static const char *const chunks[] = { "plan.engine=megatron-core", "parallel.pp=4",
					      "parallel.schedule=zb-v" };
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load("templates/jobs/demo.ini", few, 2, &job, &e), 0);
	assert_int_equal(job_load("templates/jobs/demo.ini", few + 1, 1, &job, &e), -1);
	assert_int_equal(job_load("templates/jobs/demo.ini", many, 2, &job, &e), -1);
	assert_string_equal(e.text,
			    "command line: parallel.pp: pp = 7 needs a layer for each stage "
			    "but the first and the last and layers = 4; use pp of at most 6");
	assert_int_equal(job_load("templates/jobs/demo.ini", chunks, 3, &job, &e), -1);
	assert_string_equal(e.text,
			    "command line: parallel.pp: pp = 4 with 2 chunks per rank needs a "
			    "layer for each of 8 stages but the first and the last and layers = 4; "
			    "use pp of at most 3");
}

/* Keys of muster's own engine, and those that others have, too. */
static void other_programs_are_refused_what_they_lack(void **state)
{
	/* clang-format off */
	static const struct refused cases[] = {
		{ "launch.speeds=1,2", "command line: launch.speeds: speeds = 1,2 does not work with [plan] engine = fsdp-eager: only muster's own engine has it; leave it out, or use engine = muster" },
		{ "parallel.sync=server", "command line: parallel.sync: sync = server does not work with [plan] engine = fsdp-eager: only muster's own engine has it; leave it out, or use engine = muster" },
		{ "plan.loss=fused", NULL },
		{ "offload.optimizer=yes", NULL },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *const words[] = { "plan.engine=fsdp-eager", "parallel.dp=2",
					      cases[i].word };
		struct job job;
		struct err e = ERR_INIT;
		assert_int_equal(job_load(NULL, words, 3, &job, &e), cases[i].text ? -1 : 0);
		if (cases[i].text)
			assert_string_equal(e.text, cases[i].text);
	}
}

static void the_later_of_two_words_for_a_key_counts(void **state)
{
	const char *const words[] = { "job.steps=5", "job.steps=6" };
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load(NULL, words, 2, &job, &e), 0);
	assert_int_equal(job.job.steps, 6);
}

static void a_missing_file_is_a_usage_error(void **state)
{
	struct job job;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load("no/such.ini", NULL, 0, &job, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_string_equal(
		e.text,
		"no/such.ini: cannot open: No such file or directory; give the path of a job file");
}

/* Every NAME.ini in the folder is refused with exactly the line in NAME.expect. */
static void broken_files_are_refused_with_one_line(void **state)
{
	DIR *dir = opendir(BAD);
	struct dirent *d;
	int n = 0;
	(void)state;
	assert_non_null(dir);
	while ((d = readdir(dir))) {
		char *dot = strrchr(d->d_name, '.');
		if (!dot || strcmp(dot, ".ini"))
			continue;
		char path[512], expect[512];
		struct buf line = BUF_INIT;
		struct job job;
		struct err e = ERR_INIT;
		snprintf(path, sizeof path, "%s/%s", BAD, d->d_name);
		snprintf(expect, sizeof expect, "%s/%.*s.expect", BAD, (int)(dot - d->d_name),
			 d->d_name);
		if (file_slurp(expect, 1 << 16, &line, &e))
			fail_msg("%s", e.text);
		if (!job_load(path, NULL, 0, &job, &e))
			fail_msg("%s is accepted", path);
		assert_int_equal(e.code, ERR_USAGE);
		assert_null(strchr(e.text, '\n'));
		char *end = strchr(line.data, '\n');
		assert_non_null(end);
		*end = '\0';
		assert_string_equal(e.text, buf_str(&line));
		buf_fini(&line);
		n++;
	}
	closedir(dir);
	assert_true(n >= 45);
}

static void the_templates_are_right(void **state)
{
	static const char *const files[] = {
		"demo",         "llama-7b",        "175b",   "llama-70b", "mixtral-8x7b",
		"long-context", "llama-13b-zero3", "elastic"
	};
	(void)state;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char path[64];
		struct job job;
		struct err e = ERR_INIT;
		snprintf(path, sizeof path, "templates/jobs/%s.ini", files[i]);
		if (job_load(path, NULL, 0, &job, &e))
			fail_msg("%s", e.text);
		assert_string_equal(job.job.name, files[i]);
		job.job.device = DEVICE_CPU;
		assert_int_equal(job_check_run(&job, path, &e), 0);
		job.job.device = DEVICE_CUDA;
		assert_int_equal(job_check_run(&job, path, &e), 0);
	}
}

static void a_range_is_one_number_or_two(void **state)
{
	static const struct {
		const char *word;
		int64_t min, max; /* 0: refused */
		const char *written;
	} rows[] = {
		{ "slurm.nodes=4", 4, 4, "nodes = 4\n" },
		{ "slurm.nodes=3-4", 3, 4, "nodes = 3-4\n" },
		{ "slurm.nodes=4-4", 4, 4, "nodes = 4\n" },
		{ "slurm.nodes= 1-100000 ", 1, 100000, "nodes = 1-100000\n" },
		{ "slurm.nodes=03-4", 3, 4, "nodes = 3-4\n" },
		{ "slurm.nodes=4-3", 0, 0, "begins with the larger number; use 3-4" },
		{ "slurm.nodes=3-", 0, 0, "neither a whole number nor a range" },
		{ "slurm.nodes=-3", 0, 0, "neither a whole number nor a range" },
		{ "slurm.nodes=3--4", 0, 0, "neither a whole number nor a range" },
		{ "slurm.nodes=3-4-5", 0, 0, "neither a whole number nor a range" },
		{ "slurm.nodes=3 -4", 0, 0, "neither a whole number nor a range" },
		{ "slurm.nodes=0-2", 0, 0, "is out of range; use a whole number from 1 to 100000" },
		{ "slurm.nodes=1-100001", 0, 0, "is out of range" },
		{ "slurm.nodes=99999999999999999999", 0, 0, "is out of range" },
		{ "slurm.nodes=auto", 0, 0, "neither a whole number nor a range" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct job job;
		struct err e = ERR_INIT;
		struct buf text = BUF_INIT;
		int rc = job_load(NULL, &rows[i].word, 1, &job, &e);
		assert_int_equal(rc, rows[i].max ? 0 : -1);
		if (rc) {
			buf_puts(&text, e.text);
		} else {
			assert_int_equal(job.slurm.nodes.min, rows[i].min);
			assert_int_equal(job.slurm.nodes.max, rows[i].max);
			job_write(&job, &text);
		}
		if (!strstr(buf_str(&text), rows[i].written))
			fail_msg("%s: no \"%s\" in %s", rows[i].word, rows[i].written,
				 buf_str(&text));
		buf_fini(&text);
	}
}

/* --- Random jobs come back from their own text --- */

struct dice {
	uint64_t at;
};

static uint32_t roll(struct dice *d)
{
	uint32_t w[4];
	philox4(philox_key(1, PHILOX_TEST, 0), d->at++, w);
	return w[0];
}

static void random_text(const struct job_key *k, struct dice *d, char *out, size_t size)
{
	static const char *const pieces[] = { "a", "Z",        "0", "_", "-", ".", "/", " x", "=",
					      ":", "\xc3\xa9", ",", "[", "]", "%", ";", "#" };
	size_t safe = k->type == JOB_NAME ? 6 : k->type == JOB_ATOM ? 7 : 15;
	size_t n = roll(d) % 20, len = 1;
	strcpy(out, "p");
	for (size_t i = 0; i < n; i++) {
		/* A comment sign is text only if it follows a character that is no blank. */
		const char *piece = pieces[roll(d) % (k->type == JOB_LINE ? 17 : safe)];
		if (len + strlen(piece) < size)
			len += (size_t)sprintf(out + len, "%s", piece);
	}
	if (!*k->def && roll(d) % 4 == 0)
		*out = '\0';
}

/* Keys whose text has a syntax. */
static const char *sample_of(const struct job_key *k)
{
	static const char *const samples[][3] = {
		{ "data", "skip", "320-335,640" },
		{ "slurm", "mem", "200G" },
		{ "slurm", "mail_type", "END,fail" },
		{ "slurm", "dependency", "afterok:1:2,singleton" },
		{ "slurm", "options", "--nice=5 --spread-job" },
		{ "notify", "on", "started,done, failed" },
		{ "notify", "url", "https://example.com/hook?a=1" },
		{ "notify", "command", "/usr/bin/tell --all me" },
		{ "job", "program", "python3 train.py --name 'a b'" },
		{ "restart", "retry_on", "any, !2, !SIGTERM" },
	};
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
		if (!strcmp(k->section, samples[i][0]) && !strcmp(k->name, samples[i][1]))
			return samples[i][2];
	return NULL;
}

/* A value in the key's range, as text. */
static void random_value(const struct job_key *k, struct dice *d, char *out, size_t size)
{
	double u = roll(d) / 4294967296.0;
	int words = 0;
	switch (k->type) {
	case JOB_INT:
		snprintf(out, size, "%.0f", k->lo + (double)(int64_t)(u * u * u * (k->hi - k->lo)));
		break;
	case JOB_RANGE:
		snprintf(out, size, "%.0f-%.0f", k->lo + (int)(u * 9),
			 k->lo + (int)(u * 9) + roll(d) % 3);
		break;
	case JOB_REAL:
		snprintf(out, size, "%.17g", k->lo + (u * 0.98 + 0.01) * (k->hi - k->lo));
		break;
	case JOB_SEED:
		snprintf(out, size, "%llu", (unsigned long long)roll(d) << 32 | roll(d));
		break;
	case JOB_BOOL:
	case JOB_ENUM:
	case JOB_WORD:
		while (k->words[words])
			words++;
		snprintf(out, size, "%s", k->words[roll(d) % (unsigned)words]);
		break;
	case JOB_TIME:
		snprintf(out, size, "%u-%u:%u", roll(d) % 100 + 10, roll(d) % 24, roll(d) % 60);
		break;
	default:
		if (sample_of(k))
			snprintf(out, size, "%s", sample_of(k));
		else
			random_text(k, d, out, size);
		break;
	}
}

static bool is_of_program(const struct job_key *k)
{
	return !strcmp(k->section, "program") || !strcmp(k->name, "program") ||
	       !strcmp(k->name, "retry_on");
}

/* Every eighth job runs a program. */
static void written_jobs_read_back_the_same(void **state)
{
	struct dice d = { 0 };
	int legal = 0, programs = 0;
	(void)state;
	for (int round = 0; round < 4000; round++) {
		struct job job, back;
		struct err e = ERR_INIT;
		struct buf text = BUF_INIT;
		const char *program = round % 8 < 7 ? "job.program=" : "job.program=sh -c 'exit 3'";
		assert_int_equal(job_load(NULL, &program, 1, &job, &e), 0);
		for (int k = 0; k < job_n_keys; k++) {
			char value[256];
			struct buf why = BUF_INIT;
			if (is_of_program(&job_keys[k]) && round % 8 < 7)
				continue;
			random_value(&job_keys[k], &d, value, sizeof value);
			/* Most rounds set few keys, so that most jobs are consistent. */
			if (roll(&d) % (unsigned)(1 + round % 40) == 0 &&
			    job_value_read(&job_keys[k], value, &job, &why))
				fail_msg("%s.%s: %s", job_keys[k].section, job_keys[k].name,
					 buf_str(&why));
			buf_fini(&why);
		}
		job_write(&job, &text);
		if (!job_parse(buf_str(&text), "random.ini", &back, &e)) {
			assert_memory_equal(&job, &back, sizeof job);
			legal++;
			programs += job_has_program(&job);
		} else if (!strstr(e.text, " = ") && !strstr(e.text, "head is") &&
			   !strstr(e.text, "tp × pp") && !strstr(e.text, "of your own")) {
			fail_msg("not a contradiction: %s", e.text); /* those name both values */
		}
		buf_fini(&text);
	}
	assert_true(legal > 300);
	assert_true(programs > 10);
}

static void a_bit_of_noise_never_crashes(void **state)
{
	struct job job;
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	struct dice d = { 1 << 20 };
	(void)state;
	assert_int_equal(job_load(NULL, NULL, 0, &job, &e), 0);
	job_write(&job, &text);
	for (int round = 0; round < 2000; round++) {
		char *copy = strdup(buf_str(&text));
		assert_non_null(copy);
		copy[roll(&d) % text.len] = (char)roll(&d);
		if (job_parse(copy, "noise.ini", &job, &e)) {
			assert_int_equal(e.code, ERR_USAGE);
			assert_null(strchr(e.text, '\n'));
			assert_int_equal(strncmp(e.text, "noise.ini", 9), 0);
		}
		free(copy);
	}
	buf_fini(&text);
}

static void the_help_names_every_key(void **state)
{
	struct buf text = BUF_INIT;
	char line[128];
	(void)state;
	job_help(&text);
	for (int i = 0; i < job_n_keys; i++) {
		snprintf(line, sizeof line, "        %s = %s\n", job_keys[i].name, job_keys[i].def);
		assert_non_null(strstr(buf_str(&text), line));
	}
	buf_fini(&text);
}

static void time_limits_are_read_as_slurm_reads_them(void **state)
{
	/* clang-format off */
	static const struct { const char *text; int64_t seconds; } cases[] = {
		{ "90", 5400 }, { "2:30", 150 }, { "1:00:00", 3600 }, { "2-12", 216000 }, { "1-0:30", 88200 },
		{ "1-01:01:01", 90061 }, { "UNLIMITED", 0 }, { "infinite", 0 },
		{ "", -1 }, { "x", -1 }, { "1:", -1 }, { ":1", -1 }, { "1-", -1 }, { "1:2:3:4", -1 }, { "1-2-3", -1 },
		{ "1:2-3", -1 }, { "1-1:1:1:1", -1 }, { "-5", -1 }, { "9999999999", -1 },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(job_time_seconds(cases[i].text), cases[i].seconds);
}

static void open_keys_are_kept_open(void **state)
{
	struct job job, back;
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT;
	(void)state;
	/* These are all the keys that are not given. One of them alone would contradict the
	 * others. */
	assert_int_equal(
		job_parse("[parallel]\nauto = yes\ntp = 4\nsp = yes\n[recompute]\nevery = 3\n",
			  "open.ini", &job, &e),
		0);
	assert_int_equal(job.open, OPEN_ALL & ~(OPEN_TP | OPEN_SP | OPEN_EVERY));
	job_write(&job, &text);
	assert_int_equal(job_parse(buf_str(&text), "back.ini", &back, &e), 0);
	assert_memory_equal(&job, &back, sizeof job);
	buf_fini(&text);
	/* Single keys are left open by their word; a later word closes one of them. */
	const char *words[] = { "parallel.pp=auto", "parallel.schedule=auto",
				"offload.optimizer=auto", "batch.micro=auto", "parallel.pp=2" };
	assert_int_equal(job_load(NULL, words, 5, &job, &e), 0);
	assert_int_equal(job.open, OPEN_SCHEDULE | OPEN_OPTIMIZER | OPEN_MICRO);
	assert_int_equal(job.parallel.pp, 2);
	/* Other keys cannot be left open. A parameter server leaves none open. */
	const char *others[][3] = {
		{ "parallel.tp=auto", "job.steps=10", "optimizer.warmup=11" },
		{ "parallel.auto=yes", "optimizer.lr=1e-4", "optimizer.min_lr=1e-3" },
		{ "parallel.tp=auto", "job.device=cuda", "optimizer.kind=muon" }
	};
	const char *layers[] = { "model.layers=auto" },
		   *server[] = { "parallel.sync=server", "parallel.dp=auto" };
	assert_int_equal(job_load(NULL, layers, 1, &job, &e), -1);
	assert_int_equal(job_load(NULL, server, 2, &job, &e), -1);
	assert_non_null(strstr(e.text, "leaves nothing to decide"));
	const char *all[JOB_AUTO_MAX];
	/* The other keys are checked nevertheless. */
	for (size_t k = 0; k < sizeof others / sizeof *others; k++)
		assert_int_equal(job_words(others[k], 3, &job, &e), -1);
	assert_int_equal(job_load(NULL, all, job_auto_words(all), &job, &e), 0);
	assert_int_equal(job.open, OPEN_ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_defaults_are_a_whole_job),
		cmocka_unit_test(each_default_in_the_table_is_right),
		cmocka_unit_test(a_file_needs_only_the_data_path),
		cmocka_unit_test(the_syntax_is_forgiving_where_it_is_clear),
		cmocka_unit_test(a_job_is_named_after_its_file),
		cmocka_unit_test(words_override_the_file),
		cmocka_unit_test(bad_words_are_refused_by_name),
		cmocka_unit_test(other_programs_have_stages_without_layers),
		cmocka_unit_test(other_programs_are_refused_what_they_lack),
		cmocka_unit_test(the_later_of_two_words_for_a_key_counts),
		cmocka_unit_test(a_missing_file_is_a_usage_error),
		cmocka_unit_test(broken_files_are_refused_with_one_line),
		cmocka_unit_test(the_templates_are_right),
		cmocka_unit_test(a_range_is_one_number_or_two),
		cmocka_unit_test(written_jobs_read_back_the_same),
		cmocka_unit_test(open_keys_are_kept_open),
		cmocka_unit_test(a_bit_of_noise_never_crashes),
		cmocka_unit_test(the_help_names_every_key),
		cmocka_unit_test(time_limits_are_read_as_slurm_reads_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
