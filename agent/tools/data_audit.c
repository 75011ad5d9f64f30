#include "agent/engine/data/audit.h"
#include "agent/engine/data/ledger_parts.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/file.h"
#include "base/human.h"
#include "base/run_paths.h"
#include "base/segments.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"muster data audit — prove which samples a run was trained on\n"
	"\n"
	"SYNOPSIS\n"
	"  muster data audit RUN [--json] [--no-data | --data PATH]\n"
	"\n"
	"DESCRIPTION\n"
	"  Reads RUN/ledger.jsonl and its earlier parts, in which every rank records the samples\n"
	"  that it read. It proves that the samples that count are exactly 0 to N-1 of the data\n"
	"  order, none twice and none missing, across restarts and changes of the layout, except\n"
	"  for those that the run skipped (data.skip, health.bad_numbers), which are listed with\n"
	"  the reason. Steps that a restart from an earlier checkpoint undid do not count. The\n"
	"  last checkpoint must agree with the ledger.\n"
	"  If the data can be read, its tokens are read again and compared with the digests that\n"
	"  the ranks computed.\n"
	"\n"
	"OPTIONS\n"
	"  RUN           the folder of a run\n"
	"  --no-data     use the ledger only\n"
	"  --data PATH   the data, in the form of data.path, if it was moved since the run\n"
	"  --json        print as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster data audit runs/mine\n"
	"\n"
	"EXIT STATUS\n"
	"  0  proven; the last line says whether the data was read, too\n"
	"  1  not proven; each finding is printed\n"
	"  2  usage\n";

enum { LEDGER_MAX = 1 << 30 };

struct audit_job {
	const char *run, *words;
	bool json, no_data;
	struct audit *audit;
	struct dataset *data; /* NULL: not read */
	struct err why;       /* why the data was not read */
	/* of the last checkpoint; step -1: none */
	int64_t ckpt_step, ckpt_samples, ckpt_skipped;
};

static int read_ledger(struct audit_job *j, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = data_ledger_slurp(j->run, LEDGER_MAX, &text, e);
	if (rc && e->code == ERR_NOTFOUND)
		err_set(e, ERR_NOTFOUND,
			"%s/" LEDGER_NAME
			": no such file; name the folder of a run that has trained",
			j->run);
	if (!rc && data_audit_open(buf_str(&text), text.len, &j->audit, e))
		rc = err_prefix(e, "%s/" LEDGER_NAME, j->run);
	buf_clear(&text);
	if (!rc && !segments_read_end(j->run, RUN_METRICS, LEDGER_MAX, &text, NULL))
		data_audit_metrics(j->audit, buf_str(&text), text.len);
	buf_fini(&text);
	return rc;
}

static void hold_against_checkpoint(struct audit_job *j)
{
	struct ckpt_dir dir;
	struct manifest m;
	j->ckpt_step = -1;
	if (tool_ckpt_dir_open(j->run, &dir, NULL))
		return;
	for (int64_t i = 0; i < dir.n && j->ckpt_step < 0; i++) {
		if (ckpt_folder_check(ckpt_storage_of(dir.dir), dir.dir, &dir.list[i], &m, NULL))
			continue;
		j->ckpt_step = m.state.step;
		j->ckpt_samples = m.state.samples;
		j->ckpt_skipped = ckpt_count(&m.state, "skipped");
		ckpt_manifest_fini(&m);
	}
	tool_ckpt_dir_close(&dir);
	int64_t position = j->ckpt_step < 0 ? 0 : data_audit_position(j->audit, j->ckpt_step);
	int64_t held = j->ckpt_samples + j->ckpt_skipped;
	if (j->ckpt_step >= 0 && position < 0)
		data_audit_find(j->audit,
				"the newest checkpoint is of step %lld and holds %lld samples, the "
				"ledger ends with step %lld and %lld",
				(long long)j->ckpt_step, (long long)held, (long long)j->audit->step,
				(long long)j->audit->samples);
	else if (j->ckpt_step >= 0 && position != held)
		data_audit_find(j->audit,
				"the newest checkpoint, of step %lld, holds %lld samples, the "
				"ledger has %lld after that step",
				(long long)j->ckpt_step, (long long)held, (long long)position);
}

static void show_progress(int64_t samples, void *arg)
{
	const struct audit_job *j = arg;
	int64_t all = j->audit->samples - j->audit->first;
	if (isatty(2) && all)
		fprintf(stderr, "\r%3d %% of the samples read again%s",
			(int)(100.0 * (double)samples / (double)all), samples == all ? "\n" : "");
}

static void hold_against_data(struct audit_job *j)
{
	if (j->no_data) {
		err_set(&j->why, ERR_NONE, "--no-data");
		return;
	}
	if (data_audit_dataset(j->audit, j->words, &j->data, &j->why))
		return;
	if (data_audit_data(j->audit, j->data, show_progress, j, &j->why)) {
		dataset_close(j->data);
		j->data = NULL;
	}
}

static int64_t of_source(const struct audit_job *j, int i)
{
	int64_t n = dataset_count(j->data, i, j->audit->samples) -
		    dataset_count(j->data, i, j->audit->first);
	for (int k = 0; k < j->audit->n_skips; k++) {
		const struct audit_skip *s = &j->audit->skips[k];
		n -= dataset_count(j->data, i, s->first + s->count) -
		     dataset_count(j->data, i, s->first);
	}
	return n;
}

static json_t *skips_json(const struct audit *a)
{
	json_t *list = json_array();
	for (int i = 0; i < a->n_skips; i++) {
		const struct audit_skip *s = &a->skips[i];
		json_array_append_new(
			list, json_pack("{s:I, s:I, s:I, s:s}", "first", (json_int_t)s->first,
					"count", (json_int_t)s->count, "generation",
					(json_int_t)s->generation, "reason", s->reason));
	}
	return list;
}

static void print_skips(const struct audit *a)
{
	if (a->n_skips)
		printf("  %" PRId64 " of them were skipped:\n", a->skipped);
	for (int i = 0; i < a->n_skips; i++) {
		const struct audit_skip *s = &a->skips[i];
		char reason[400];
		snprintf(reason, sizeof reason, "%s", s->reason);
		human_plain(reason);
		printf("    samples %" PRId64 " to %" PRId64 ", by generation %" PRId64 ": %s\n",
		       s->first, s->first + s->count - 1, s->generation, reason);
	}
}

static json_t *generations_json(const struct audit *a)
{
	json_t *list = json_array();
	for (int i = 0; i < a->n_generations; i++) {
		const struct audit_generation *g = &a->generations[i];
		json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:O}",
						      "generation", (json_int_t)g->generation,
						      "step", (json_int_t)g->step, "samples",
						      (json_int_t)g->samples, "reached",
						      (json_int_t)g->reached, "undone",
						      (json_int_t)g->undone, "layout", g->layout));
	}
	return list;
}

static json_t *data_json(const struct audit_job *j)
{
	if (!j->data)
		return json_pack("{s:b, s:s}", "read", 0, "why", j->why.text);
	json_t *sources = json_array();
	for (int i = 0; i < dataset_sources(j->data); i++)
		json_array_append_new(sources, json_pack("{s:s, s:I}", "path",
							 dataset_source(j->data, i).path, "samples",
							 (json_int_t)of_source(j, i)));
	return json_pack("{s:b, s:o}", "read", 1, "sources", sources);
}

static int print_json(const struct audit_job *j)
{
	const struct audit *a = j->audit;
	json_t *findings = json_array();
	for (int i = 0; i < AUDIT_FINDINGS_MAX && a->findings[i]; i++)
		json_array_append_new(findings, json_string(a->findings[i]));
	int rc = tool_print_json(
		&tool_data_audit,
		json_pack(
			"{s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:o?, s:o, s:o}", "run",
			j->run, "proven", a->n_findings == 0, "first", (json_int_t)a->first,
			"samples", (json_int_t)a->samples, "step", (json_int_t)a->step,
			"skipped_samples", (json_int_t)a->skipped, "skips", skips_json(a),
			"undone_samples", (json_int_t)a->undone, "unreadable_lines",
			(json_int_t)a->unreadable, "generations", generations_json(a), "checkpoint",
			j->ckpt_step < 0 ? NULL
					 : json_pack("{s:I, s:I}", "step", (json_int_t)j->ckpt_step,
						     "samples", (json_int_t)j->ckpt_samples),
			"data", data_json(j), "findings", findings));
	return rc ? rc : a->n_findings ? TOOL_FAILED : TOOL_OK;
}

static void print_generations(const struct audit *a)
{
	for (int i = 0; i < a->n_generations; i++) {
		const struct audit_generation *g = &a->generations[i];
		printf("  generation %" PRId64 ": ", g->generation);
		tool_print_layout(g->layout);
		printf(", steps %" PRId64 " to %" PRId64, g->step + (g->reached > g->step),
		       g->reached);
		if (g->undone)
			printf(", the last %" PRId64 " taken back", g->undone);
		printf("\n");
	}
	if (a->unreadable)
		printf("  lines of the ledger that were cut, and count for nothing: %" PRId64 "\n",
		       a->unreadable);
}

static int print_text(const struct audit_job *j)
{
	const struct audit *a = j->audit;
	for (int i = 0; i < AUDIT_FINDINGS_MAX && a->findings[i]; i++)
		fprintf(stderr, "muster data audit: %s: %s\n", j->run, a->findings[i]);
	if (a->n_findings > AUDIT_FINDINGS_MAX)
		fprintf(stderr, "muster data audit: %s: and %" PRId64 " more\n", j->run,
			a->n_findings - AUDIT_FINDINGS_MAX);
	if (a->n_findings)
		printf("%s: not proven: %" PRId64 " finding%s\n", j->run, a->n_findings,
		       a->n_findings == 1 ? "" : "s");
	else if (a->samples == a->first)
		printf("%s: no samples count yet\n", j->run);
	else
		printf("%s: the samples that count are %" PRId64 " to %" PRId64
		       " of the order, each once%s, after %" PRId64 " steps\n",
		       j->run, a->first, a->samples - 1, a->n_skips ? " or skipped" : "", a->step);
	if (a->first)
		printf("  samples 0 to %" PRId64
		       " are of the run whose checkpoint this one began with\n",
		       a->first - 1);
	print_skips(a);
	print_generations(a);
	if (j->ckpt_step >= 0)
		printf("  newest checkpoint: after step %" PRId64 ", %" PRId64 " samples\n",
		       j->ckpt_step, j->ckpt_samples);
	for (int i = 0; j->data && i < dataset_sources(j->data); i++)
		printf("  %" PRId64 " samples of %s\n", of_source(j, i),
		       dataset_source(j->data, i).path);
	if (!j->data)
		printf("  the data was not read: %s\n", j->why.text);
	else if (!a->n_findings)
		printf("  the data was read again: every rank read exactly these tokens\n");
	return a->n_findings ? TOOL_FAILED : TOOL_OK;
}

static int audit(struct audit_job *j)
{
	struct err e = ERR_INIT;
	if (read_ledger(j, &e))
		return tool_fail(&tool_data_audit, &e);
	hold_against_checkpoint(j);
	hold_against_data(j);
	int rc = j->json ? print_json(j) : print_text(j);
	dataset_close(j->data);
	data_audit_close(j->audit);
	return rc;
}

static int audit_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "data", required_argument, NULL, 'd' },
		{ "no-data", no_argument, NULL, 'n' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	struct audit_job j = { .why = ERR_INIT };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'd')
			j.words = optarg;
		else if (c == 'n')
			j.no_data = true;
		else if (c == 'j')
			j.json = true;
		else
			return tool_option(&tool_data_audit, c, argv);
	}
	if (j.words && j.no_data)
		return tool_usage(&tool_data_audit, "--data and --no-data exclude each other");
	if (argc - optind != 1)
		return tool_usage(&tool_data_audit, "one RUN is needed");
	j.run = argv[optind];
	return audit(&j);
}

const struct tool tool_data_audit = { "data", "audit", audit_main,
				      "prove which samples a run was trained on", page };
