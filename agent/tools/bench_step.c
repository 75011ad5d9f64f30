#include "agent/tools/bench_train.h"
#include "agent/tools/tools.h"
#include "base/human.h"
#include "kernels/ops.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"
#include "plan/spec/speeds.h"

#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster bench step — compare training speed with matrix-product speed\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench step [JOB.ini] [section.key=value …] [--beside WORDS …] [--rounds N]\n"
	"      [--steps N] [--warmup N] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Trains a model on random tokens with one process per agent: a few steps to warm up,\n"
	"  then N timed steps, each with forward pass, backward pass, gradient norm and update.\n"
	"  Prints the median step, tokens/s, model FLOP/s (6 × the weights of matrix products +\n"
	"  causal attention per token, without recomputation), and their ratio to the FLOP/s of\n"
	"  plain matrix products by as many threads as the first job's agents have, which are\n"
	"  measured before each round. The ratio shows how much of the machine's speed training\n"
	"  uses. With --beside other forms of the job are measured in turn with the first one,\n"
	"  round by round, and their speed is given as a ratio to it. Without JOB.ini the model\n"
	"  is GPT-2 124M (12 layers, hidden 768, vocabulary 50257) with micro-batch 4, batch 4\n"
	"  and seq 256 on one agent of 2 threads.\n"
	"\n"
	"OPTIONS\n"
	"  JOB.ini            take model, batch, degrees and launch.threads from a job file;\n"
	"                     parallel.dp 0 counts as 1\n"
	"  section.key=value  overrides, as for muster run\n"
	"  --beside WORDS     also measure the job with these words, separated by blanks, added\n"
	"                     to the job's words; may be given several times\n"
	"  --rounds N         turns of each job (default 1, with --beside 3)\n"
	"  --steps N          timed steps of a turn (default 5)\n"
	"  --warmup N         steps before them (default 2)\n"
	"  --json             print as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench step\n"
	"  muster bench step launch.threads=8 batch.micro=8 batch.global=8\n"
	"  muster bench step --beside 'parallel.tp=2 launch.threads=1' \\\n"
	"      --beside 'parallel.dp=2 launch.threads=1 batch.micro=2'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured\n"
	"  1  a step failed, or there is not enough memory\n"
	"  2  usage or job file\n";

enum { GEMM_SIZE = 2048, JOBS_MAX = 16, ROUNDS_MAX = 100, WORDS_MAX = 256 };

static const double gemm_seconds = 1.0;

static const char *const gpt2_124m[] = {
	"model.family=gpt2", "model.layers=12",   "model.hidden=768",
	"model.heads=12",    "model.vocab=50257", "model.seq=256",
	"batch.micro=4",     "batch.global=4",    "launch.threads=2",
};

/* One form of the job. */
struct form {
	const char *words; /* "" for the first */
	double seconds[ROUNDS_MAX * BENCH_STEPS_MAX];
	int n;
	double loss, median;
	int64_t peak_bytes, world;
};

struct bench {
	const char *const *base; /* [n_base] words and file of the first form */
	int n_base;
	int64_t steps, warmup, rounds;
	bool json;
	const char *beside[JOBS_MAX];
	int n_forms;
	struct form *forms; /* [n_forms] */
	struct bench_train *turn;
	struct model_shape shape;
	int64_t batch; /* sequences per step */
	int threads;   /* of the first form: all agents together */
	double gemm;   /* mean over rounds */
};

/* --- the jobs --- */

/* Loads a job from the first form's words and then those of another form. */
static int load_form(const struct bench *b, const char *more, struct job *job, struct err *e)
{
	const char *list[WORDS_MAX], *file = NULL;
	char *copy = strdup(more), *rest = copy;
	int n = 0;
	if (!copy)
		return err_set(e, ERR_NOMEM, "no memory for the words %s", more);
	list[n++] = "parallel.dp=1";
	if (b->n_base && !strchr(b->base[0], '='))
		file = b->base[0];
	for (size_t i = 0; !file && i < sizeof gpt2_124m / sizeof *gpt2_124m; i++)
		list[n++] = gpt2_124m[i];
	for (int i = file ? 1 : 0; i < b->n_base && n < WORDS_MAX; i++)
		list[n++] = b->base[i];
	for (char *word; (word = strtok_r(rest, " \t\n", &rest)) && n < WORDS_MAX;)
		list[n++] = word;
	int rc = job_load(file, list + (file ? 1 : 0), n - (file ? 1 : 0), job, e);
	free(copy);
	if (!rc && !job->parallel.dp)
		job->parallel.dp = 1;
	return rc;
}

static int world_of(const struct job *job)
{
	struct layout l = layout_of(job, (int)job->parallel.dp);
	return layout_world(&l);
}

static int all_threads(const struct job *job)
{
	int sum = 0;
	for (int r = 0; r < world_of(job); r++)
		sum += speeds_threads(job, r) ? speeds_threads(job, r) : 1;
	return sum;
}

/* job: room for one. */
static int check_form(struct bench *b, struct form *f, struct job *job, struct err *e)
{
	if (load_form(b, f->words, job, e))
		return -1;
	f->world = world_of(job);
	shape_of_job(job, &b->shape);
	b->batch = job->batch.global;
	b->threads = all_threads(job);
	return 0;
}

/* Reads every form before the first one runs. */
static int check_forms(struct bench *b, struct err *e)
{
	struct job *job = malloc(sizeof *job); /* too large for a small stack */
	int rc = job ? 0 : err_set(e, ERR_NOMEM, "no memory for a job");
	for (int i = b->n_forms - 1; i >= 0 && !rc; i--)
		rc = check_form(b, &b->forms[i], job, e);
	free(job);
	return rc;
}

/* --- measuring --- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static int take_turn(struct bench *b, struct form *f, struct err *e)
{
	struct bench_train *t = b->turn;
	if (load_form(b, f->words, &t->job, e))
		return -1;
	t->ranks = (int)f->world;
	t->steps = b->steps;
	t->warmup = b->warmup;
	if (bench_train_run(t, e))
		return err_prefix(e, "%s", *f->words ? f->words : "the first job");
	memcpy(f->seconds + f->n, t->seconds, (size_t)b->steps * sizeof *f->seconds);
	f->n += (int)b->steps;
	f->loss = t->loss;
	f->peak_bytes = t->peak_bytes;
	return 0;
}

static int measure(struct bench *b, struct err *e)
{
	for (int64_t r = 0; r < b->rounds; r++) {
		if (bench_train_gemm(b->turn, b->threads, GEMM_SIZE, gemm_seconds, e))
			return -1;
		b->gemm += b->turn->gemm / (double)b->rounds;
		for (int i = 0; i < b->n_forms; i++)
			if (take_turn(b, &b->forms[i], e))
				return -1;
	}
	for (int i = 0; i < b->n_forms; i++) {
		struct form *f = &b->forms[i];
		qsort(f->seconds, (size_t)f->n, sizeof *f->seconds, by_value);
		f->median = f->seconds[f->n / 2];
	}
	return 0;
}

/* --- the report --- */

static double flops_of(const struct bench *b, const struct form *f)
{
	return shape_flops_token(&b->shape) * (double)(b->batch * b->shape.seq) / f->median;
}

static json_t *json_of(const struct bench *b, const struct form *f)
{
	double tokens = (double)(b->batch * b->shape.seq);
	return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "words", f->words,
			 "agents", (json_int_t)f->world, "step_s", f->median, "best_s",
			 f->seconds[0], "tokens_s", tokens / f->median, "model_flops",
			 flops_of(b, f), "ratio", flops_of(b, f) / b->gemm, "beside_first",
			 b->forms[0].median / f->median, "loss", f->loss, "peak_bytes",
			 (json_int_t)f->peak_bytes);
}

static int report_json(const struct bench *b)
{
	json_t *forms = json_array();
	for (int i = 0; i < b->n_forms; i++)
		json_array_append_new(forms, json_of(b, &b->forms[i]));
	return tool_print_json(&tool_bench_step,
			       json_pack("{s:I, s:I, s:i, s:I, s:I, s:f, s:o}", "parameters",
					 (json_int_t)shape_params(&b->shape), "tokens",
					 (json_int_t)(b->batch * b->shape.seq), "threads",
					 b->threads, "steps", (json_int_t)b->steps, "rounds",
					 (json_int_t)b->rounds, "gemm_flops", b->gemm, "forms",
					 forms));
}

static void report_one(const struct bench *b, const struct form *f)
{
	char memory[HUMAN];
	printf("step          %.3f s median of %d (best %.3f, worst %.3f), loss %.4f\n", f->median,
	       f->n, f->seconds[0], f->seconds[f->n - 1], f->loss);
	printf("tokens/s      %.1f\n", (double)(b->batch * b->shape.seq) / f->median);
	printf("model FLOP/s  %.2f G\n", flops_of(b, f) / 1e9);
	printf("sgemm FLOP/s  %.2f G\n", b->gemm / 1e9);
	printf("ratio         %.3f\n", flops_of(b, f) / b->gemm);
	printf("memory        %s an agent at most\n", human_bytes((double)f->peak_bytes, memory));
}

static void report_table(const struct bench *b)
{
	char memory[HUMAN];
	int wide = (int)strlen("(first)");
	for (int i = 0; i < b->n_forms; i++)
		wide = (int)strlen(b->forms[i].words) > wide ? (int)strlen(b->forms[i].words)
							     : wide;
	printf("sgemm FLOP/s  %.2f G\n\n%-*s %6s %9s %9s %7s %7s %10s\n", b->gemm / 1e9, wide,
	       "job", "agents", "step s", "tokens/s", "sgemm", "first", "an agent");
	for (int i = 0; i < b->n_forms; i++) {
		const struct form *f = &b->forms[i];
		printf("%-*s %6" PRId64 " %9.3f %9.1f %7.3f %7.3f %10s\n", wide,
		       i ? f->words : "(first)", f->world, f->median,
		       (double)(b->batch * b->shape.seq) / f->median, flops_of(b, f) / b->gemm,
		       b->forms[0].median / f->median, human_bytes((double)f->peak_bytes, memory));
	}
}

static int report(const struct bench *b)
{
	if (b->json)
		return report_json(b);
	printf("model         %s, %" PRId64 " layers, hidden %" PRId64
	       ", %.1f M parameters; %" PRId64 " × %" PRId64 " tokens a step, %d threads\n",
	       job_enum_word(offsetof(struct job, model.family), (int)b->shape.family),
	       b->shape.layers, b->shape.hidden, (double)shape_params(&b->shape) / 1e6, b->batch,
	       b->shape.seq, b->threads);
	if (b->n_forms == 1)
		report_one(b, &b->forms[0]);
	else
		report_table(b);
	return TOOL_OK;
}

/* --- the command line --- */

static int bench(struct bench *b)
{
	struct err e = ERR_INIT;
	b->forms = calloc((size_t)b->n_forms, sizeof *b->forms);
	b->turn = bench_train_shared(1);
	int rc = b->forms && b->turn
			 ? 0
			 : err_set(&e, ERR_NOMEM, "no memory for %d forms of the job", b->n_forms);
	for (int i = 0; !rc && i < b->n_forms; i++)
		b->forms[i].words = i ? b->beside[i - 1] : "";
	rc = rc || check_forms(b, &e) || measure(b, &e) ? tool_fail(&tool_bench_step, &e)
							: report(b);
	bench_train_unshared(b->turn, 1);
	free(b->forms);
	return rc;
}

static int check_numbers(struct bench *b)
{
	if (b->steps < 1 || b->steps > BENCH_STEPS_MAX || b->warmup < 0 ||
	    b->warmup > BENCH_STEPS_MAX)
		return tool_usage(&tool_bench_step, "--steps is 1 to %d, --warmup 0 to %d",
				  BENCH_STEPS_MAX, BENCH_STEPS_MAX);
	if (!b->rounds)
		b->rounds = b->n_forms > 1 ? 3 : 1;
	if (b->rounds < 1 || b->rounds > ROUNDS_MAX)
		return tool_usage(&tool_bench_step, "--rounds is 1 to %d", ROUNDS_MAX);
	return TOOL_OK;
}

static int run_bench_step(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "beside", required_argument, NULL, 'b' }, { "rounds", required_argument, NULL, 'r' },
		{ "steps", required_argument, NULL, 'n' }, { "warmup", required_argument, NULL, 'w' },
		{ "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	struct bench b = { .steps = 5, .warmup = 2, .n_forms = 1 };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'n')
			b.steps = atoll(optarg);
		else if (c == 'w')
			b.warmup = atoll(optarg);
		else if (c == 'r')
			b.rounds = atoll(optarg) ? atoll(optarg) : -1;
		else if (c == 'j')
			b.json = true;
		else if (c != 'b')
			return tool_option(&tool_bench_step, c, argv);
		else if (b.n_forms == JOBS_MAX)
			return tool_usage(&tool_bench_step, "--beside may be given %d times",
					  JOBS_MAX - 1);
		else
			b.beside[b.n_forms++ - 1] = optarg;
	}
	if (check_numbers(&b) != TOOL_OK)
		return TOOL_USAGE;
	b.base = (const char *const *)argv + optind;
	b.n_base = argc - optind;
	return bench(&b);
}

const struct tool tool_bench_step = { "bench", "step", run_bench_step,
				      "compare training speed with matrix-product speed", page };
