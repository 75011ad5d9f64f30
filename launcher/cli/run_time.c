#include "launcher/cli/run_time.h"

#include "launcher/supervise/terminal.h"
#include "plan/spec/job/job.h"

#include <stdlib.h>

enum { SHOWN = 3 }; /* generations that are printed */

void command_run_time_read(const struct look *l, struct rundir_goodput *out)
{
	struct rundir_time_line now;
	bool known = l->object && l->state.has_account && rundir_time_read(l->state.account, &now);
	struct err why = ERR_INIT;
	if (rundir_goodput_read(l->run, known ? &now : NULL, out, &why))
		*out = (struct rundir_goodput){ 0 };
}

/* --- JSON ------------------------------------------------------------------------------ */

static json_t *row_json(const struct rundir_goodput_row *row)
{
	double total = rundir_goodput_total_s(row);
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "wall_s", 1e-6 * (double)row->wall,
			 "effective_s", 1e-6 * (double)row->effective, "goodput",
			 rundir_goodput_share(row), "total_s", total, "device_hours", total / 3600,
			 "lost_s", 1e-6 * (double)row->us[TIME_LOST]);
}

static json_t *generation_json(const struct rundir_goodput_row *row)
{
	json_t *o = json_pack("{s:I, s:f, s:I, s:I}", "generation", (json_int_t)row->generation,
			      "since", row->since, "ranks", (json_int_t)row->ranks, "devices",
			      (json_int_t)row->devices);
	json_t *sums = row_json(row);
	int rc = !o || !sums || json_object_update(o, sums);
	json_decref(sums);
	if (!rc)
		return o;
	json_decref(o);
	return NULL;
}

json_t *command_run_time_json(const struct rundir_goodput *g)
{
	json_t *o = g->n ? row_json(&g->all) : json_null(), *list = json_array();
	int rc = !o || !list;
	for (size_t i = 0; i < g->n && !rc; i++)
		rc = json_array_append_new(list, generation_json(&g->rows[i]));
	if (g->n && !rc)
		rc = json_object_set(o, "generations", list);
	json_decref(list);
	if (!rc)
		return o;
	json_decref(o);
	return NULL;
}

/* --- text ------------------------------------------------------------------------------ */

/* "GPU", if the job is one for GPUs. */
static const char *device_word(const char *run)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	struct job *job = calloc(1, sizeof *job);
	const char *word = "device";
	run_path(path, run, RUN_JOB);
	if (job && !job_load(path, NULL, 0, job, &why))
		word = job->job.device == DEVICE_CUDA ? "GPU" : "rank";
	free(job);
	return word;
}

static void print_sums(const struct rundir_goodput_row *row, const char *ranks, const char *device,
		       FILE *out)
{
	char trained[32], all[32];
	double total = rundir_goodput_total_s(row), hours = total / 3600;
	double lost = 1e-6 * (double)row->us[TIME_LOST];
	fprintf(out, "%.1f %%: %s of effective training in %s%s, %.*f %s hours",
		100 * rundir_goodput_share(row),
		supervise_terminal_duration(1e-6 * (double)row->effective, trained, sizeof trained),
		supervise_terminal_duration(1e-6 * (double)row->wall, all, sizeof all), ranks,
		hours < 0.1   ? 4
		: hours < 100 ? 2
			      : 0,
		hours, device);
	if (lost > 0)
		fprintf(out, ", lost steps %.1f %%", 100 * lost / total);
	fputc('\n', out);
}

void command_run_time_print(const char *run, const struct rundir_goodput *g, FILE *out)
{
	const char *device = g->n ? device_word(run) : "";
	size_t first = g->n > SHOWN ? g->n - SHOWN : 0;
	char ranks[48];
	if (!g->n)
		return;
	fprintf(out, "  %-11s ", "goodput");
	print_sums(&g->all, "", device, out);
	if (first)
		fprintf(out, "  %-11s %zu; muster report shows all, and these are the last %d\n",
			"generations", g->n, SHOWN);
	for (size_t i = first; i < g->n && g->n > 1; i++) {
		snprintf(ranks, sizeof ranks, " on %lld ranks", (long long)g->rows[i].ranks);
		fprintf(out, "  %-11s %lld: ", "generation", (long long)g->rows[i].generation);
		print_sums(&g->rows[i], ranks, device, out);
	}
}
