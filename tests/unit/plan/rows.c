#include "tests/unit/plan/rows.h"

#include "base/file.h"
#include "plan/cost/devices.h"
#include "plan/cost/step.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_ROWS = 1024, MOST_NAMES = 256, MOST_TEXT = 1 << 20, MOST_LINE_WORDS = 64 };

/* A line of sources.txt: a machine or a model with its words, or a source. */
struct named {
	const char *kind, *name;
	const char *words[ROW_WORDS];
	int n;
};

struct row_files {
	struct buf texts[ROW_FILES];
	int n_texts;
	struct named names[MOST_NAMES];
	int n_names;
	struct row rows[MOST_ROWS];
	int n_rows;
};

static const char *const measures[ROW_MEASURES] = { "tokens",      "samples",     "mfu-full",
						    "tflops-full", "tflops-sc21", "seconds" };

static const struct named *find(const struct row_files *f, const char *kind, const char *name)
{
	for (int i = 0; i < f->n_names; i++)
		if (!strcmp(f->names[i].kind, kind) && !strcmp(f->names[i].name, name))
			return &f->names[i];
	return NULL;
}

static const struct named *must_find(const struct row_files *f, const char *kind, const char *name)
{
	const struct named *n = find(f, kind, name);
	if (!n)
		fail_msg("sources.txt has no %s %s", kind, name);
	return n;
}

/* --- Reading ---------------------------------------------------------------------- */

static bool set_value(struct row *r, const char *key, size_t length, double value)
{
	for (int m = 0; m < ROW_MEASURES; m++)
		if (strlen(measures[m]) == length && !strncmp(key, measures[m], length)) {
			r->measure = (enum row_measure)m;
			r->value = value;
			return true;
		}
	if (!strncmp(key, "peak-gib", length))
		r->peak = value * 1024 * 1024 * 1024;
	else if (!strncmp(key, "peak-gb", length))
		r->peak = value * 1e9;
	else
		return false;
	return true;
}

/* Words with a dot before the "=" are keys of the job file; the others are the row's values. */
static void read_row(struct row_files *f, const char *words[], int n)
{
	assert_true(n >= 8 && f->n_rows < MOST_ROWS);
	struct row *r = &f->rows[f->n_rows++];
	*r = (struct row){ .groups = words[1],
			   .fitted = !strcmp(words[2], "fitted"),
			   .engine = words[3],
			   .cluster = words[4],
			   .model = words[5],
			   .source = words[6] };
	assert_true(r->fitted || !strcmp(words[2], "held"));
	must_find(f, "model", r->model);
	must_find(f, "source", r->source);
	for (int i = 7; i < n; i++) {
		const char *equals = strchr(words[i], '=');
		if (!equals)
			fail_msg("%s: %s is no key with a value", r->source, words[i]);
		size_t length = (size_t)(equals - words[i]);
		if (memchr(words[i], '.', length))
			r->words[r->n++] = words[i];
		else if (!set_value(r, words[i], length, atof(equals + 1)))
			fail_msg("%s: %s is not known", r->source, words[i]);
	}
	if (!(r->value > 0) && !(r->peak > 0 && !strcmp(r->groups, "memory")))
		fail_msg("%s: a row has no speed", r->source);
}

static void read_name(struct row_files *f, const char *words[], int n)
{
	assert_true(n >= 3 && n - 2 <= ROW_WORDS && f->n_names < MOST_NAMES);
	struct named *name = &f->names[f->n_names++];
	*name = (struct named){ .kind = words[0], .name = words[1], .n = n - 2 };
	memcpy(name->words, words + 2, (size_t)name->n * sizeof *words);
}

static void read_line(struct row_files *f, char *line)
{
	const char *words[MOST_LINE_WORDS];
	int n = 0;
	for (char *rest, *w = strtok_r(line, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
		assert_true(n < MOST_LINE_WORDS);
		words[n++] = w;
	}
	if (!n || *words[0] == '#')
		return;
	if (!strcmp(words[0], "row"))
		read_row(f, words, n);
	else if (!strcmp(words[0], "machine") || !strcmp(words[0], "model") ||
		 !strcmp(words[0], "source"))
		read_name(f, words, n);
	else
		fail_msg("a line begins with %s", words[0]);
}

static void read_file(struct row_files *f, const char *folder, const char *name)
{
	char path[256];
	struct err e = ERR_INIT;
	assert_true(f->n_texts < ROW_FILES);
	struct buf *text = &f->texts[f->n_texts++];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	if (file_slurp(path, MOST_TEXT, text, &e))
		fail_msg("%s", e.text);
	for (char *rest, *line = strtok_r(text->data, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		read_line(f, line);
}

struct row_files *rows_open(const char *folder)
{
	static const char *const files[] = { "sources.txt", "fsdp.txt",  "fp8.txt",
					     "long.txt",    "moe.txt",   "schedules.txt",
					     "dense.txt",   "memory.txt" };
	struct row_files *f = calloc(1, sizeof *f);
	assert_non_null(f);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		read_file(f, folder, files[i]);
	return f;
}

void rows_close(struct row_files *f)
{
	for (int i = 0; i < f->n_texts; i++)
		buf_fini(&f->texts[i]);
	free(f);
}

int rows_count(const struct row_files *f)
{
	return f->n_rows;
}

const struct row *rows_at(const struct row_files *f, int i)
{
	return &f->rows[i];
}

bool rows_is_in(const struct row *r, const char *group)
{
	size_t length = strlen(group);
	for (const char *g = r->groups; g; g = strchr(g, ',')) {
		g += *g == ',';
		if (!strncmp(g, group, length) && (!g[length] || g[length] == ','))
			return true;
	}
	return false;
}

/* --- Predicting --------------------------------------------------------------------- */

static void set_figure(struct cluster *c, const char *word)
{
	struct node_kind *k = &c->kinds[0];
	double value = atof(strchr(word, '=') + 1);
	if (!strncmp(word, "device=", 7)) {
		snprintf(k->device, sizeof k->device, "%s", word + 7);
	} else if (!strncmp(word, "memory=", 7)) {
		k->device_memory = value;
	} else if (!strncmp(word, "bandwidth=", 10)) {
		k->device_bandwidth = value;
	} else if (!strncmp(word, "flops=", 6)) {
		k->device_flops = value;
	} else if (!strncmp(word, "nic=", 4)) {
		k->net_bandwidth = value;
		for (int i = 0; i < k->n_nics; i++)
			k->nics[i].bandwidth = value;
	} else if (!strncmp(word, "rack=", 5)) {
		for (int i = 0; i < c->n_nodes; i++)
			c->nodes[i].domain = i / (int)value;
	} else {
		fail_msg("a machine has no %s", word);
	}
}

static void open_cluster(const struct row_files *f, const char *spec, struct cluster *c)
{
	char name[TOPO_NAME], whole[2 * TOPO_NAME];
	const char *nodes = strchr(spec, ':');
	struct err e = ERR_INIT;
	assert_non_null(nodes);
	snprintf(name, sizeof name, "%.*s", (int)(nodes - spec), spec);
	const struct named *m = find(f, "machine", name);
	snprintf(whole, sizeof whole, "%s%s", m ? m->words[0] : name, nodes);
	if (topo_cluster_open(whole, 0, c, &e))
		fail_msg("%s", e.text);
	for (int i = 1; m && i < m->n; i++)
		set_figure(c, m->words[i]);
}

static bool open_job(const struct row_files *f, const struct row *r, struct job *job,
		     struct row_prediction *out)
{
	const char *words[2 * ROW_WORDS + 1];
	char engine[64];
	const struct named *m = must_find(f, "model", r->model);
	struct err e = ERR_INIT;
	snprintf(engine, sizeof engine, "plan.engine=%s", r->engine);
	words[0] = engine;
	memcpy(words + 1, m->words, (size_t)m->n * sizeof *words);
	memcpy(words + 1 + m->n, r->words, (size_t)r->n * sizeof *words);
	if (!job_load(NULL, words, 1 + m->n + r->n, job, &e))
		return true;
	snprintf(out->refusal, sizeof out->refusal, "%s", e.text);
	return false;
}

/* The FLOPs of a token if attention counts over the whole square, as Megatron-LM counted until
 * 2025: 12 × layers × heads' width × sequence instead of half of it. */
static double full_flops(const struct model_shape *m)
{
	return shape_flops_token(m) + 6.0 * (double)(m->layers * m->heads * m->head_dim * m->seq);
}

/* Narayanan et al., arXiv 2104.04473, formula (3): four passes over the layers, three over the
 * head. */
static double sc21_flops(const struct model_shape *m)
{
	double h = (double)m->hidden, l = (double)m->layers;
	return 96 * l * h * h * (1 + (double)m->seq / (6 * h) + (double)m->vocab / (16 * l * h));
}

static double published_seconds(const struct row *r, const struct job *job,
				const struct model_shape *m, double peak_flops, int devices)
{
	double samples = (double)job->batch.global / devices, tokens = samples * (double)m->seq;
	switch (r->measure) {
	case ROW_TOKENS:
		return tokens / r->value;
	case ROW_SAMPLES:
		return samples / r->value;
	case ROW_MFU_FULL:
		return tokens * full_flops(m) / (r->value / 100 * peak_flops);
	case ROW_TFLOPS_FULL:
		return tokens * full_flops(m) / (r->value * 1e12);
	case ROW_SECONDS:
		return r->value;
	default:
		return tokens * sc21_flops(m) / (r->value * 1e12);
	}
}

static void set_prediction(const struct row *r, const struct job *job, const struct cluster *c,
			   const struct plan *p, struct row_prediction *out)
{
	out->devices = p->world;
	out->seq = p->shape.seq;
	for (int i = 0; i < p->world; i++)
		if (p->ranks[i].total > out->memory)
			out->memory = p->ranks[i].total;
	out->seconds = p->time.total;
	out->published = published_seconds(r, job, &p->shape, c->kinds[0].device_flops, p->world);
}

void rows_predict(const struct row_files *f, const struct row *r, struct row_prediction *out)
{
	struct job *job = calloc(1, sizeof *job);
	struct cluster c;
	struct plan p;
	struct err e = ERR_INIT;
	assert_non_null(job);
	*out = (struct row_prediction){ .fits = true };
	open_cluster(f, r->cluster, &c);
	if (open_job(f, r, job, out)) {
		int rc = plan_build(job, &c, &p, &e);
		if (rc && e.code == ERR_NOFIT) {
			out->fits = false;
			snprintf(out->lack, sizeof out->lack, "%.*s", (int)strcspn(e.text, ";"),
				 e.text);
			c.kinds[0].device_memory *= 1000;
			rc = plan_build(job, &c, &p, &e);
		}
		if (rc)
			snprintf(out->refusal, sizeof out->refusal, "%s", e.text);
		else
			set_prediction(r, job, &c, &p, out);
		if (!rc)
			plan_free(&p);
	}
	topo_cluster_free(&c);
	free(job);
}
