#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_diff.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"muster diff — compare two runs: their jobs, plans and losses\n"
	"\n"
	"SYNOPSIS\n"
	"  muster diff RUN RUN [--tolerance X] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/. The runs may have\n"
	"  ended or go on.\n"
	"\n"
	"  Prints the keys of the resolved jobs that differ, without job.name and job.run_dir;\n"
	"  what differs between the plans of the last generations; and the first step at which\n"
	"  the losses part, and the gradient norms, with the values and their difference relative\n"
	"  to the larger one. Of a step that was repeated after a restart, the last line counts.\n"
	"  Steps that only one of the runs has are counted and not compared. Jobs or plans are\n"
	"  not compared if a run has none; the rest is.\n"
	"\n"
	"OPTIONS\n"
	"  --tolerance X  losses and gradient norms may differ by this share, such as 1e-5;\n"
	"                 the default is 0: they must have the same bits\n"
	"  --json         print JSON; a step of -1 is none, null a value that is not finite;\n"
	"                 without_job and without_plan list the runs that have none: a, b\n"
	"\n"
	"EXAMPLES\n"
	"  muster diff runs/mine runs/mine-tp2 --tolerance 1e-5\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the losses and norms of all steps that both runs have agree\n"
	"  1  they part, the runs have no step in common, or the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, or it cannot be read\n";

static const char *const names[DIFF_COLUMNS] = {
	[DIFF_LOSS] = "losses", [DIFF_NORM] = "gradient norms"
};
static const char *const keys[DIFF_COLUMNS] = { [DIFF_LOSS] = "loss", [DIFF_NORM] = "grad_norm" };

struct comparison {
	char a[RUN_PATH], b[RUN_PATH];
	double tolerance;
	struct run_diff_keys job, plan;
	struct run_diff_losses losses;
};

static bool agrees(const struct comparison *c)
{
	return c->losses.common > 0 && c->losses.of[DIFF_LOSS].first.step < 0 &&
	       c->losses.of[DIFF_NORM].first.step < 0;
}

/* --- JSON --- */

static json_t *step_json(const struct run_diff_step *s)
{
	json_t *o = json_pack("{s:I}", "step", (json_int_t)s->step);
	const double values[] = { s->a, s->b, s->relative };
	static const char *const of[] = { "a", "b", "relative" };
	for (int i = 0; i < 3 && s->step >= 0; i++)
		json_object_set_new(o, of[i],
				    isfinite(values[i]) ? json_real(values[i]) : json_null());
	return o;
}

static json_t *without(const struct run_diff_keys *k)
{
	json_t *list = json_array();
	if (!k->has_a)
		json_array_append_new(list, json_string("a"));
	if (!k->has_b)
		json_array_append_new(list, json_string("b"));
	return list;
}

static int print_json(const struct comparison *c)
{
	const struct run_diff_losses *l = &c->losses;
	json_t *o = json_pack("{s:[s,s], s:O, s:O, s:f, s:{s:I, s:I, s:I, s:I, s:I}, s:I}", "runs",
			      c->a, c->b, "job", c->job.list, "plan", c->plan.list, "tolerance",
			      c->tolerance, "steps", "common", (json_int_t)l->common, "first",
			      (json_int_t)l->first, "last", (json_int_t)l->last, "only_a",
			      (json_int_t)l->only_a, "only_b", (json_int_t)l->only_b, "damaged",
			      (json_int_t)l->damaged);
	json_object_set_new(o, "without_job", without(&c->job));
	json_object_set_new(o, "without_plan", without(&c->plan));
	for (int i = 0; o && i < DIFF_COLUMNS; i++)
		json_object_set_new(o, keys[i],
				    json_pack("{s:o, s:o}", "first", step_json(&l->of[i].first),
					      "largest", step_json(&l->of[i].largest)));
	return command_print_json(o);
}

/* --- Text --- */

/* In full: values such as paths may differ at the end only. */
static void print_value(const json_t *v)
{
	char number[64];
	char *text = json_is_string(v) ? strdup(json_string_value(v)) : NULL;
	if (json_is_integer(v))
		snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
	else if (json_is_real(v))
		snprintf(number, sizeof number, "%.9g", json_real_value(v));
	else
		snprintf(number, sizeof number, "%s",
			 json_is_true(v)    ? "yes"
			 : json_is_false(v) ? "no"
					    : "-");
	if (text)
		human_plain(text);
	printf("  %-*s", human_padded(text ? text : number, 24), text ? text : number);
	free(text);
}

/* file: as it is called in a run folder */
static void print_keys(const char *title, const char *file, const struct run_diff_keys *k)
{
	const json_t *list = k->list;
	size_t n = json_array_size(list);
	if (!k->has_a || !k->has_b) {
		printf("%s: %s no %s, so it is not compared\n", title,
		       k->has_b   ? "a has"
		       : k->has_a ? "b has"
				  : "both runs have",
		       file);
		return;
	}
	printf("%s: %s\n", title, n ? "" : "no difference");
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(list, i);
		char key[160];
		snprintf(key, sizeof key, "%s", json_string_value(json_object_get(row, "key")));
		human_plain(key);
		printf("  %-32s", key);
		print_value(json_object_get(row, "a"));
		print_value(json_object_get(row, "b"));
		putchar('\n');
	}
}

static void print_series(const struct comparison *c, enum run_diff_column i)
{
	const struct run_diff_series *s = &c->losses.of[i];
	if (!s->in_a || !s->in_b) {
		printf("%s: %s reported none\n", names[i],
		       s->in_b   ? "a has"
		       : s->in_a ? "b has"
				 : "both runs have");
		return;
	}
	if (s->first.step < 0) {
		printf("%s: agree", names[i]);
		if (s->largest.relative > 0)
			printf("; they differ most at step %lld, by %.2g",
			       (long long)s->largest.step, s->largest.relative);
		putchar('\n');
		return;
	}
	printf("%s: part at step %lld: %.9g and %.9g, which differ by %.2g; they differ most at "
	       "step %lld, by %.2g\n",
	       names[i], (long long)s->first.step, s->first.a, s->first.b, s->first.relative,
	       (long long)s->largest.step, s->largest.relative);
}

static void print_text(const struct comparison *c)
{
	const struct run_diff_losses *l = &c->losses;
	printf("a: %s\nb: %s\n", c->a, c->b);
	print_keys("job", "job.ini", &c->job);
	print_keys("plan", "plan-N.json", &c->plan);
	if (!l->common) {
		printf("steps: the runs have none in common (a has %lld, b has %lld)\n",
		       (long long)l->only_a, (long long)l->only_b);
		return;
	}
	printf("steps: %lld in common, %lld to %lld", (long long)l->common, (long long)l->first,
	       (long long)l->last);
	if (l->only_a)
		printf("; %lld only in a", (long long)l->only_a);
	if (l->only_b)
		printf("; %lld only in b", (long long)l->only_b);
	putchar('\n');
	for (int i = 0; i < DIFF_COLUMNS; i++)
		print_series(c, (enum run_diff_column)i);
}

/* --- The command --- */

static int read_tolerance(const char *text, double *out, struct err *e)
{
	char *end;
	*out = text ? strtod(text, &end) : 0;
	if (text && (!*text || *end || !(*out >= 0) || isinf(*out)))
		return err_set(e, ERR_USAGE,
			       "--tolerance %.40s: not a share; give a number such as 1e-5", text);
	return 0;
}

static int compare(const char *const *runs, const char *tolerance, bool json, struct comparison *c,
		   struct err *e)
{
	if (read_tolerance(tolerance, &c->tolerance, e) || rundir_find(runs[0], c->a, e) ||
	    rundir_find(runs[1], c->b, e) || command_diff_jobs(c->a, c->b, &c->job, e) ||
	    command_diff_plans(c->a, c->b, &c->plan, e) ||
	    command_diff_losses(c->a, c->b, c->tolerance, &c->losses, e))
		return command_fail(e);
	int rc = 0;
	if (json)
		rc = print_json(c);
	else
		print_text(c);
	if (c->losses.damaged)
		fprintf(stderr, "muster: metrics.jsonl: %lld damaged line%s skipped\n",
			(long long)c->losses.damaged, c->losses.damaged == 1 ? " was" : "s were");
	return command_output_end(rc || !agrees(c) ? STATUS_FAILED : STATUS_DONE);
}

int cmd_diff(int argc, char **argv)
{
	const char *runs[2], *tolerance = NULL;
	bool json = false;
	struct err e = ERR_INIT;
	const struct command_option options[] = {
		{ "--tolerance", NULL, &tolerance },
		{ "--json", &json, NULL },
		{ NULL, NULL, NULL },
	};
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_runs(argc, argv, options, runs, 2);
	if (status)
		return status;
	static struct comparison c; /* too large for a small stack */
	status = compare(runs, tolerance, json, &c, &e);
	json_decref(c.job.list);
	json_decref(c.plan.list);
	return status;
}
