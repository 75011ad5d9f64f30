#include "launcher/cli/run_diff.h"

#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/rundir/rundir.h"
#include "launcher/rundir/scan.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_BYTES = 4 << 20, PLAN_BYTES = 256 << 20 };

/* --- Losses --- */

struct step {
	int64_t step;
	double v[DIFF_COLUMNS];
};

struct steps {
	struct step *of; /* ascending */
	size_t n, room;
	bool failed;
};

static void add_step(void *steps, const double *v)
{
	struct steps *s = steps;
	if (!(v[0] >= 0 && v[0] < 1e15))
		return;
	int64_t step = (int64_t)v[0];
	while (s->n && s->of[s->n - 1].step >= step)
		s->n--;
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 1024;
		struct step *of = reallocarray(s->of, room, sizeof *of);
		s->failed |= !of;
		if (!of)
			return;
		s->of = of;
		s->room = room;
	}
	s->of[s->n++] = (struct step){ step, { v[1], v[2] } };
}

static int read_steps(const char *run, struct steps *out, int64_t *damaged, struct err *e)
{
	static const char *const keys[] = { "step", "loss", "grad_norm" };
	int64_t found = 0;
	if (rundir_metrics_scan(run, keys, 3, add_step, out, &found, e))
		return -1;
	*damaged += found;
	return out->failed ? err_set(e, ERR_NOMEM, "%s: no memory for its steps", run) : 0;
}

static double relative_difference(double a, double b)
{
	if (a == b || (!isfinite(a) && !isfinite(b)))
		return 0;
	if (!isfinite(a) || !isfinite(b))
		return INFINITY;
	return fabs(a - b) / fmax(fabs(a), fabs(b));
}

static void compare_step(const struct step *a, const struct step *b, double tolerance,
			 struct run_diff_losses *out)
{
	for (int i = 0; i < DIFF_COLUMNS; i++) {
		const struct run_diff_step d = { a->step, a->v[i], b->v[i],
						 relative_difference(a->v[i], b->v[i]) };
		struct run_diff_series *s = &out->of[i];
		s->in_a |= !isnan(d.a);
		s->in_b |= !isnan(d.b);
		if (d.relative > tolerance && s->first.step < 0)
			s->first = d;
		if (s->largest.step < 0 || d.relative > s->largest.relative)
			s->largest = d;
	}
}

static void compare_steps(const struct steps *a, const struct steps *b, double tolerance,
			  struct run_diff_losses *out)
{
	for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
		if (k == b->n || (i < a->n && a->of[i].step < b->of[k].step)) {
			out->only_a++;
			i++;
		} else if (i == a->n || b->of[k].step < a->of[i].step) {
			out->only_b++;
			k++;
		} else {
			if (!out->common++)
				out->first = a->of[i].step;
			out->last = a->of[i].step;
			compare_step(&a->of[i++], &b->of[k++], tolerance, out);
		}
	}
}

int command_diff_losses(const char *a, const char *b, double tolerance, struct run_diff_losses *out,
			struct err *e)
{
	struct steps of_a = { 0 }, of_b = { 0 };
	*out = (struct run_diff_losses){ .first = -1, .last = -1 };
	for (int i = 0; i < DIFF_COLUMNS; i++)
		out->of[i].first.step = out->of[i].largest.step = -1;
	int rc = read_steps(a, &of_a, &out->damaged, e) || read_steps(b, &of_b, &out->damaged, e)
			 ? -1
			 : 0;
	if (!rc)
		compare_steps(&of_a, &of_b, tolerance, out);
	free(of_a.of);
	free(of_b.of);
	return rc;
}

/* --- Keys and values --- */

/* A list of what differs between two objects of texts and numbers. */
static json_t *list_differences(const json_t *a, const json_t *b)
{
	json_t *list = json_array(), *value;
	const char *key;
	json_object_foreach((json_t *)a, key, value)
	{
		json_t *other = json_object_get(b, key);
		if (!other || !json_equal(value, other))
			json_array_append_new(list, json_pack("{s:s, s:O, s:O?}", "key", key, "a",
							      value, "b", other));
	}
	json_object_foreach((json_t *)b, key, value) if (!json_object_get(a, key))
		json_array_append_new(list,
				      json_pack("{s:s, s:n, s:O}", "key", key, "a", "b", value));
	/* What a run lacks is null. */
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!json_object_get(json_array_get(list, i), "b"))
			json_object_set_new(json_array_get(list, i), "b", json_null());
	return list;
}

/* Compares what read() makes of both runs; it sets NULL if a run has nothing of the kind. */
static int compare_runs(const char *a, const char *b,
			int (*read)(const char *run, json_t **out, struct err *e),
			struct run_diff_keys *out, struct err *e)
{
	json_t *of_a = NULL, *of_b = NULL;
	int rc = read(a, &of_a, e) || read(b, &of_b, e) ? -1 : 0;
	json_t *list = rc ? NULL : of_a && of_b ? list_differences(of_a, of_b) : json_array();
	if (list)
		*out = (struct run_diff_keys){ list, of_a != NULL, of_b != NULL };
	else if (!rc)
		rc = err_set(e, ERR_NOMEM, "no memory to compare the runs");
	json_decref(of_a);
	json_decref(of_b);
	return rc;
}

/* --- Jobs --- */

/* One line of a job file: a section, a key, a comment or nothing. */
static void read_job_line(char *line, char section[64], json_t *out)
{
	char key[160], *equals = strchr(line, '=');
	size_t n = strlen(line);
	while (n && strchr(" \t\r", line[n - 1]))
		line[--n] = '\0';
	if (*line == '[') {
		snprintf(section, 64, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
	} else if (equals && *line != ';' && *line != '#') {
		snprintf(key, sizeof key, "%s.%.*s", section, (int)strcspn(line, " \t="), line);
		if (strcmp(key, "job.name") && strcmp(key, "job.run_dir"))
			json_object_set_new(out, key,
					    json_string(equals + 1 + strspn(equals + 1, " \t")));
	}
}

/* The job of a queued run is that of its last submission. */
static int read_job(const char *run, json_t **out, struct err *e)
{
	char path[RUN_PATH], section[64] = "";
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	run_path(path, run, RUN_JOB);
	int rc = file_slurp_own(path, JOB_BYTES, &text, &why);
	uint32_t next = rc && why.code == ERR_NOTFOUND ? rundir_next_submission(run) : 0;
	if (next > 1) {
		why = (struct err)ERR_INIT;
		run_path_submission(path, run, next - 1);
		rc = file_slurp_own(path, JOB_BYTES, &text, &why);
	}
	if (rc && why.code != ERR_NOTFOUND) {
		buf_fini(&text);
		return err_set(e, why.code, "%s", why.text);
	}
	*out = rc ? NULL : json_object();
	char *save = NULL, *content = buf_take(&text);
	for (char *line = content ? strtok_r(content, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save))
		read_job_line(line, section, *out);
	free(content);
	return 0;
}

int command_diff_jobs(const char *a, const char *b, struct run_diff_keys *out, struct err *e)
{
	return compare_runs(a, b, read_job, out, e);
}

/* --- Plans --- */

/* Adds texts and numbers under their keys, those of inner objects as "layout.tp", and the lengths of
 * lists. */
static void add_values(const json_t *from, const char *before, json_t *out)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)from, key, value)
	{
		char name[160];
		snprintf(name, sizeof name, "%.64s%s%.80s", before, *before ? "." : "", key);
		if (!*before && (!strcmp(key, "name") || !strcmp(key, "version")))
			continue;
		if (json_is_object(value) && !*before)
			add_values(value, name, out);
		else if (json_is_array(value))
			json_object_set_new(out, name,
					    json_sprintf("%zu entries", json_array_size(value)));
		else if (!json_is_object(value))
			json_object_set(out, name, value);
	}
}

static long last_plan(const char *run)
{
	long last = -1;
	struct dirent *at;
	DIR *d = file_list_open(run);
	while (d && file_list_next(d, &at) > 0) {
		long number = run_plan_generation(at->d_name);
		last = number > last ? number : last;
	}
	if (d)
		closedir(d);
	return last;
}

static int read_plan(const char *run, json_t **out, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	long number = last_plan(run);
	*out = NULL;
	if (number < 0)
		return 0;
	*out = json_object();
	run_path_plan(path, run, (uint32_t)number);
	int rc = file_slurp_own(path, PLAN_BYTES, &text, e);
	json_t *plan = rc ? NULL : json_loadb(buf_str(&text), text.len, 0, NULL);
	if (!rc && !json_is_object(plan))
		rc = err_set(e, ERR_CORRUPT, "%s: the plan is damaged", path);
	if (!rc)
		add_values(plan, "", *out);
	json_decref(plan);
	buf_fini(&text);
	return rc;
}

int command_diff_plans(const char *a, const char *b, struct run_diff_keys *out, struct err *e)
{
	return compare_runs(a, b, read_plan, out, e);
}
