#include "agent/tools/bench_plan.h"

#include "agent/tools/tools.h"
#include "plan/forecast.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster bench plan — compare predictions with measurements\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench plan [OPTION …] [JOB.ini] [section.key=value …]\n"
	"\n"
	"DESCRIPTION\n"
	"  Predicts the time and memory of a step under several layouts from the results of\n"
	"  muster bench calibrate. Then it trains a few steps of each layout in turn, round by\n"
	"  round, and prints predictions and measurements side by side, with the mean and the\n"
	"  largest error. It also prints how much slower the layout with the fastest prediction\n"
	"  is than the layout that was the fastest. Matrix products are timed before each turn:\n"
	"  the second error is the error after scaling to the machine's speed during calibration,\n"
	"  because other processes on a shared host change that speed. Without a job, three small\n"
	"  models (gpt2, llama and mixtral) run under 26 layouts of 1 to 8 agents, which takes\n"
	"  about three minutes on two cores. Nothing else should run meanwhile.\n"
	"\n"
	"OPTIONS\n"
	"  JOB.ini, section.key=value\n"
	"                the job, as for muster run; launch.threads and parallel.dp are 1 if the\n"
	"                job does not set them\n"
	"  --layout WORDS\n"
	"                measure the job with these words, separated by blanks, added to the\n"
	"                job's words; may be given several times (default: the job alone)\n"
	"  --calibration FILE\n"
	"                the calibration (default: [launch] calibration's)\n"
	"  --rounds N    turns of each layout (default 3)\n"
	"  --steps N     timed steps of a turn (default: as many as fit in half a second, at\n"
	"                least 3)\n"
	"  --only TEXT   run only the built-in layouts whose model and words contain this text\n"
	"  --parts       also print every part of a step, as means over the ranks\n"
	"  --json        print as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench calibrate && muster bench plan\n"
	"  muster bench plan job.ini --layout parallel.tp=2 \\\n"
	"      --layout 'parallel.pp=2 parallel.schedule=zb-v'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured\n"
	"  1  a step failed, or there is not enough memory\n"
	"  2  usage or job file; this machine was not calibrated\n";

enum { LAYOUTS_MAX = 64, WORDS_MAX = 256, TURNS_MAX = 100, WARMUP = 2, GEMM_SIZE = 1024 };

#define TURN_SECONDS 0.5
#define GEMM_SECONDS 0.1

struct bench {
	const char *calibration, *only, *file; /* NULL: not given */
	int64_t rounds, steps;
	bool parts, json;
	char **words; /* [n_words] of the command line */
	int n_words;
	struct bench_plan_job given[LAYOUTS_MAX];
	int n_given;
	struct bench_plan_form *forms;
	int n;
	struct bench_train *turn;
	double calibrated; /* FLOP/s of matrix products on all cores */
};

/* --- The jobs --- */

static int add_words(char *text, const char **list, int n)
{
	for (char *word; (word = strtok_r(text, " \t\n", &text)) && n < WORDS_MAX;)
		list[n++] = word;
	return n;
}

/* Combines the words of the defaults, the model, the command line and the layout. Later words
 * override earlier ones. */
static int load(const struct bench *b, const struct bench_plan_job *j, struct job *job,
		struct err *e)
{
	const char *list[WORDS_MAX] = { "launch.threads=1", "parallel.dp=1" };
	char *model = strdup(j->words), *layout = strdup(j->layout);
	int n = 2;
	if (!model || !layout) {
		free(model);
		free(layout);
		return err_set(e, ERR_NOMEM, "no memory for the words of a job");
	}
	n = add_words(model, list, n);
	for (int i = 0; i < b->n_words && n < WORDS_MAX; i++)
		list[n++] = b->words[i];
	n = add_words(layout, list, n);
	int rc = job_load(b->file, list + (b->file ? 1 : 0), n - (b->file ? 1 : 0), job, e);
	if (!rc && !job->parallel.dp)
		job->parallel.dp = 1;
	free(model);
	free(layout);
	return rc ? err_prefix(e, "%s %s", j->model, j->layout) : 0;
}

static bool is_wanted(const struct bench *b, const struct bench_plan_job *j)
{
	return !b->only || strstr(j->model, b->only) || strstr(j->layout, b->only);
}

static int list_forms(struct bench *b, struct err *e)
{
	const struct bench_plan_job *jobs = b->n_given ? b->given : bench_plan_jobs;
	int n = b->n_given ? b->n_given : bench_plan_n_jobs;
	b->forms = calloc((size_t)n, sizeof *b->forms);
	if (!b->forms)
		return err_set(e, ERR_NOMEM, "no memory for %d layouts", n);
	for (int i = 0; i < n; i++)
		if (b->n_given || is_wanted(b, &jobs[i]))
			b->forms[b->n++].job = &jobs[i];
	return b->n ? 0
		    : err_set(e, ERR_USAGE,
			      "--only: no layout has \"%s\"; see muster bench plan without it",
			      b->only);
}

/* --- Predicting --- */

static int predict(struct bench *b, struct bench_plan_form *f, struct err *e)
{
	struct job *job = malloc(sizeof *job); /* too large for a small stack */
	struct forecast told;
	int rc = !job ? err_set(e, ERR_NOMEM, "no memory for a job")
		      : load(b, f->job, job, e) ||
				 plan_forecast_here(job, b->calibration, &told, e);
	free(job);
	if (rc)
		return -1;
	f->world = told.world;
	f->predicted = told.time;
	f->predicted_bytes = told.bytes;
	b->calibrated = told.flops;
	return 0;
}

/* --- Measuring --- */

static void add_parts(struct plan_time *sum, const struct plan_time *t, double share)
{
	for (int i = 0; i < STEP_PART_COUNT; i++)
		sum->parts[i] += share * t->parts[i];
}

static int64_t steps_of(const struct bench *b, const struct bench_plan_form *f)
{
	int64_t n = b->steps ? b->steps : (int64_t)(TURN_SECONDS / f->predicted.total);
	return b->steps ? n : n < 3 ? 3 : n > 20 ? 20 : n;
}

static int take_turn(struct bench *b, struct bench_plan_form *f, struct err *e)
{
	struct bench_train *t = b->turn;
	if (load(b, f->job, &t->job, e))
		return -1;
	if (bench_train_gemm(t, 2, GEMM_SIZE, GEMM_SECONDS, e))
		return -1;
	f->speed += b->calibrated > 0 ? t->gemm / b->calibrated / (double)b->rounds : 0;
	t->ranks = f->world;
	t->steps = steps_of(b, f);
	t->warmup = WARMUP;
	if (bench_train_run(t, e))
		return err_prefix(e, "%s %s", f->job->model, f->job->layout);
	for (int64_t i = 0; i < t->steps && f->n < BENCH_PLAN_STEPS; i++)
		f->seconds[f->n++] = t->seconds[i];
	add_parts(&f->measured, &t->parts, 1.0 / (double)b->rounds);
	f->measured_bytes = (double)t->peak_bytes;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static int measure(struct bench *b, struct err *e)
{
	for (int64_t r = 0; r < b->rounds; r++)
		for (int i = 0; i < b->n; i++)
			if (take_turn(b, &b->forms[i], e))
				return -1;
	for (int i = 0; i < b->n; i++) {
		struct bench_plan_form *f = &b->forms[i];
		qsort(f->seconds, (size_t)f->n, sizeof *f->seconds, by_value);
		f->measured.total = f->seconds[f->n / 2];
	}
	return 0;
}

/* --- The command line --- */

static int bench(struct bench *b)
{
	struct err e = ERR_INIT;
	int rc = list_forms(b, &e);
	for (int i = 0; i < b->n && !rc; i++)
		rc = predict(b, &b->forms[i], &e);
	if (!rc && !(b->turn = bench_train_shared(1)))
		rc = err_set(&e, ERR_NOMEM, "no memory to measure in");
	rc = rc ? rc : measure(b, &e);
	int status = rc ? tool_fail(&tool_bench_plan, &e) : TOOL_OK;
	if (!rc && b->json)
		status = tool_print_json(&tool_bench_plan, bench_plan_json(b->forms, b->n));
	else if (!rc)
		bench_plan_print(b->forms, b->n, b->parts);
	bench_train_unshared(b->turn, 1);
	free(b->forms);
	return status;
}

/* Takes the words and layouts of the command line as forms of one model. */
static void take_job(struct bench *b, char **words, int n)
{
	b->words = words;
	b->n_words = n;
	if (n && !strchr(words[0], '=')) {
		b->file = words[0];
		b->words++;
		b->n_words--;
	}
	if (n && !b->n_given)
		b->given[b->n_given++].layout = "";
	for (int i = 0; i < b->n_given; i++) {
		b->given[i].model = b->file ? b->file : "job";
		b->given[i].words = "";
	}
}

static int run_bench_plan(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "layout", required_argument, NULL, 'l' }, { "calibration", required_argument, NULL, 'c' },
		{ "rounds", required_argument, NULL, 'r' }, { "steps", required_argument, NULL, 'n' }, { "only", required_argument, NULL, 'o' },
		{ "parts", no_argument, NULL, 'p' }, { "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	struct bench b = { .rounds = 3 };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'r')
			b.rounds = atoll(optarg);
		else if (c == 'n')
			b.steps = atoll(optarg) ? atoll(optarg) : -1;
		else if (c == 'c')
			b.calibration = optarg;
		else if (c == 'o')
			b.only = optarg;
		else if (c == 'p' || c == 'j')
			*(c == 'p' ? &b.parts : &b.json) = true;
		else if (c != 'l')
			return tool_option(&tool_bench_plan, c, argv);
		else if (b.n_given == LAYOUTS_MAX)
			return tool_usage(&tool_bench_plan, "--layout may be given %d times",
					  LAYOUTS_MAX);
		else
			b.given[b.n_given++].layout = optarg;
	}
	take_job(&b, argv + optind, argc - optind);
	if (b.rounds < 1 || b.rounds > TURNS_MAX || b.steps < 0 || b.steps > BENCH_STEPS_MAX)
		return tool_usage(&tool_bench_plan, "--rounds is 1 to %d, --steps 1 to %d",
				  TURNS_MAX, BENCH_STEPS_MAX);
	return bench(&b);
}

const struct tool tool_bench_plan = { "bench", "plan", run_bench_plan,
				      "how good predictions are on this machine", page };
