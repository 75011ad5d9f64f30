/* muster ls: the runs of a folder. */
#include "base/clock.h"
#include "base/file.h"
#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_view.h"
#include "launcher/console/looks.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"muster ls — list the runs of a folder\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ls [DIR] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Shows each run of the folder: its state (muster status --help explains them), the\n"
	"  finished steps, the last loss, for how long it has been in this state, and what\n"
	"  keeps its state from being known. DIR is a folder of runs, or one run: its folder, or\n"
	"  its name; without it $MUSTER_RUNS, otherwise runs/. The runs that changed last come\n"
	"  first.\n"
	"\n"
	"OPTIONS\n"
	"  --json  print a list of the objects that muster status --json prints\n"
	"\n"
	"EXAMPLES\n"
	"  muster ls\n"
	"  muster ls /scratch/runs --json | jq -r '.[] | select(.state == \"failed\").run'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done; also if there are no runs\n"
	"  1  the output cannot be printed\n"
	"  2  usage\n"
	"  3  the folder cannot be read\n";

struct row {
	char *name, *plain; /* plain: for people */
	char *run;
	struct console_looks at; /* what is known about the run */
	double since;            /* in seconds since 1970; 0: unknown */
};

struct rows {
	struct row *of;
	int n, room;
};

static int look_at_all(struct rows *all, struct err *e)
{
	struct console_looks *looks = calloc((size_t)all->n + 1, sizeof *looks);
	if (!looks)
		return err_set(e, ERR_NOMEM, "no memory for the list of runs");
	for (int i = 0; i < all->n; i++)
		looks[i].run = all->of[i].run;
	console_looks(looks, (size_t)all->n);
	for (int i = 0; i < all->n; i++) {
		struct row *r = &all->of[i];
		r->at = looks[i];
		if (!r->at.failed)
			r->since = r->at.look.object ? r->at.look.state.since
						     : console_queue_submitted(r->run);
	}
	free(looks);
	return 0;
}

static int add(struct rows *all, const char *name, const char *run, struct err *e)
{
	if (all->n == all->room) {
		int room = all->room ? 2 * all->room : 64;
		struct row *of = realloc(all->of, (size_t)room * sizeof *of);
		if (!of)
			return err_set(e, ERR_NOMEM, "no memory for the list of runs");
		all->of = of;
		all->room = room;
	}
	struct row *r = &all->of[all->n];
	*r = (struct row){ .name = strdup(name), .plain = strdup(name), .run = strdup(run) };
	all->n++;
	if (!r->name || !r->plain || !r->run)
		return err_set(e, ERR_NOMEM, "no memory for the list of runs");
	human_plain(r->plain);
	return 0;
}

/* The runs of the folder; a run folder stands for itself. */
static int add_all(struct rows *all, const char *folder, struct err *e)
{
	struct dirent *at;
	char run[RUN_PATH];
	int rc = 0, next;
	if (rundir_is_run(folder)) {
		const char *slash = strrchr(folder, '/');
		return add(all, slash && slash[1] ? slash + 1 : folder, folder, e);
	}
	DIR *d = file_list_open(folder);
	if (!d)
		return err_set(e, ERR_NOTFOUND,
			       "%.300s: cannot read the folder of runs: %s; name another folder, "
			       "or set MUSTER_RUNS to it",
			       folder, strerror(errno));
	while (!rc && (next = file_list_next(d, &at)) > 0) {
		int n = snprintf(run, sizeof run, "%s/%s", folder, at->d_name);
		if (n < PATH_MAX && rundir_is_run(run))
			rc = add(all, at->d_name, run, e);
	}
	if (!rc && next < 0)
		rc = err_errno(e, ERR_IO, "%.300s: cannot list the folder", folder);
	closedir(d);
	return rc;
}

static int compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	if (x->since != y->since)
		return x->since < y->since ? 1 : -1;
	return strcmp(x->name, y->name);
}

static json_t *row_json(const struct row *r, const char *folder)
{
	char run[RUN_PATH];
	if (!r->at.failed)
		return command_run_json(&r->at.look);
	snprintf(run, sizeof run, "%.*s/%s", PATH_MAX, folder, r->name);
	return json_pack("{s:s?, s:n, s:s?}", "run", run, "state", "note", r->at.why.text);
}

static int print_json(const struct rows *all, const char *folder)
{
	json_t *list = json_array();
	int rc = list ? 0 : -1;
	for (int i = 0; i < all->n && !rc; i++)
		rc = json_array_append_new(list, row_json(&all->of[i], folder));
	if (!rc)
		return command_print_json(list);
	json_decref(list);
	return rc;
}

static void print_row(const struct row *r, int wide, double now)
{
	const struct rundir_state *s = &r->at.look.state;
	bool known = !r->at.failed && r->at.look.object;
	char steps[64] = "-", loss[32] = "-", age[RUN_VIEW_AGE] = "-", text[1100];
	if (known && s->has_step && !s->steps)
		snprintf(steps, sizeof steps, "%lld", (long long)s->step);
	else if (known && s->has_step)
		snprintf(steps, sizeof steps, "%lld/%lld", (long long)s->step, (long long)s->steps);
	if (known && s->has_loss)
		snprintf(loss, sizeof loss, "%.4f", s->loss);
	if (r->since > 0)
		command_run_age(now - r->since, age);
	snprintf(text, sizeof text, "%s", r->at.failed ? r->at.why.text : r->at.look.note);
	human_plain(text);
	printf("%-*s  %-10s  %15s  %9s  %7s%s%s\n", human_padded(r->plain, wide), r->plain,
	       r->at.failed ? "unknown" : rundir_state_word(r->at.look.id), steps, loss, age,
	       *text ? "  " : "", text);
}

static void print_table(const struct rows *all, const char *folder)
{
	int wide = 4;
	double now = clock_wall_s();
	for (int i = 0; i < all->n; i++)
		if (human_width(all->of[i].plain) > wide)
			wide = human_width(all->of[i].plain);
	if (!all->n) {
		fprintf(stderr, "muster: there are no runs in %s\n", folder);
		return;
	}
	printf("%-*s  %-10s  %15s  %9s  %7s\n", wide, "run", "state", "step", "loss", "for");
	for (int i = 0; i < all->n; i++)
		print_row(&all->of[i], wide, now);
}

static void free_rows(struct rows *all)
{
	for (int i = 0; i < all->n; i++) {
		console_look_fini(&all->of[i].at.look);
		free(all->of[i].name);
		free(all->of[i].plain);
		free(all->of[i].run);
	}
	free(all->of);
}

/* The folder, or the run of this name if there is no such folder. */
static void find_folder(const char *word, char out[RUN_PATH])
{
	if (!word)
		rundir_find_folder(out);
	else if (!access(word, F_OK) || rundir_find(word, out, NULL))
		snprintf(out, RUN_PATH, "%s", word);
}

int cmd_ls(int argc, char **argv)
{
	bool as_json = false;
	const struct command_option options[] = { { "--json", &as_json, NULL },
						  { NULL, NULL, NULL } };
	char folder[RUN_PATH];
	struct rows all = { .n = 0 };
	struct err e = ERR_INIT;
	const char *word = NULL;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_optional_word(argc, argv, options, &word);
	if (status)
		return status;
	find_folder(word, folder);
	int rc = add_all(&all, folder, &e) || look_at_all(&all, &e) ? -1 : 0;
	if (!rc && all.n)
		qsort(all.of, (size_t)all.n, sizeof *all.of, compare);
	if (!rc && as_json)
		status = print_json(&all, folder) ? STATUS_FAILED : STATUS_DONE;
	else if (!rc)
		print_table(&all, folder);
	free_rows(&all);
	if (rc)
		return command_fail(&e);
	return command_output_end(status);
}
