#include "agent/optim/optim.h"
#include "agent/pipeline/engine.h"
#include "agent/state.h"
#include "agent/tools/crew.h"
#include "agent/tools/tools.h"
#include "base/clock.h"
#include "base/human.h"
#include "base/philox.h"
#include "plan/speeds.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster bench step — how fast this machine trains, against how fast it multiplies matrices\n"
	"\n"
	"SYNOPSIS\n"
	"  muster bench step [JOB.ini] [section.key=value …] [--steps N] [--warmup N] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Trains a model on random tokens in this process alone (tp, pp and dp are 1): a few steps to warm up, then N that are\n"
	"  timed, each with forward, backward, norm of the gradients and AdamW. Prints the median step, tokens/s, model\n"
	"  FLOP/s (6 × the weights of matrix products + causal attention a token, without recomputation), the FLOP/s\n"
	"  of plain matrix products before and after, and the ratio of the two, which tells what the machine's\n"
	"  speed cannot: how much of it training uses. Without JOB.ini the model is GPT-2 124M (12 layers, hidden 768,\n"
	"  vocabulary 50257), micro-batch and batch 4, seq 256, 2 threads.\n"
	"\n"
	"OPTIONS\n"
	"  JOB.ini            take model, batch and launch.threads from a job file\n"
	"  section.key=value  overrides, as for muster run\n"
	"  --steps N          timed steps (default 5)\n"
	"  --warmup N         steps before them (default 2)\n"
	"  --json             print as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster bench step\n"
	"  muster bench step launch.threads=8 batch.micro=8 batch.global=8\n"
	"\n"
	"EXIT STATUS\n"
	"  0  measured\n"
	"  1  a step failed, or there is not enough memory\n"
	"  2  usage or job file\n";

enum { GEMM_SIZE = 2048, MOST_STEPS = 100000 };

static const double gemm_seconds = 1.5;

static const char *const gpt2_124m[] = {
	"model.family=gpt2", "model.layers=12", "model.hidden=768", "model.heads=12", "model.vocab=50257",
	"model.seq=256", "batch.micro=4", "batch.global=4", "launch.threads=2",
};

static const char *const alone[] = { "parallel.tp=1", "parallel.pp=1", "parallel.dp=1" };

struct bench {
	struct job job;
	struct model_shape shape;
	int64_t steps, warmup;
	bool json;
	int threads;
	struct comm *world;
	struct engine *engine;
	struct optim *optim;
	int32_t *inputs, *targets;
	double *seconds;        /* of each timed step */
	double loss, gemm_before, gemm_after;
};

/* --- the model ------------------------------------------------------------------- */

static int open_model(struct bench *b, struct err *e)
{
	struct engine_options opt = {
		.job = &b->job, .layout = layout_of(&b->job, 1), .backend = "cpu", .threads = b->threads, .spill_dir = ".",
	};
	if (crew_alone(&b->world, e))
		return -1;
	opt.world = b->world;
	if (engine_open(&opt, &b->engine, e))
		return -1;
	const struct optim_options o = { .kern = engine_kern(b->engine), .store = engine_store(b->engine), .job = &b->job, .spill_dir = "." };
	if (optim_open(&o, &b->optim, e))
		return -1;
	const struct state_view view = { .store = engine_store(b->engine), .optim = b->optim };
	return state_init(&view, &b->shape, b->job.job.seed, e);
}

static int make_tokens(struct bench *b, struct err *e)
{
	size_t n = (size_t)(b->job.batch.global * b->shape.seq);
	b->inputs = malloc(n * sizeof *b->inputs);
	b->targets = malloc(n * sizeof *b->targets);
	b->seconds = calloc((size_t)b->steps, sizeof *b->seconds);
	if (!b->inputs || !b->targets || !b->seconds)
		return err_set(e, ERR_NOMEM, "no memory for %zu tokens; use a smaller batch.global", n);
	struct philox_key key = philox_key(b->job.job.seed, PHILOX_TEST, 0);
	for (size_t i = 0; i < n; i++) {
		uint32_t r[4];
		philox4(key, i, r);
		b->inputs[i] = (int32_t)(r[0] % (uint32_t)b->shape.vocab);
		b->targets[i] = (int32_t)(r[1] % (uint32_t)b->shape.vocab);
	}
	return 0;
}

static int one_step(struct bench *b, int64_t step, struct err *e)
{
	const struct engine_batch batch = { .inputs = b->inputs, .targets = b->targets, .loss_scale = 1 };
	double norm;
	if (engine_step(b->engine, &batch, &b->loss, e) || optim_norm(b->optim, b->world, 1, &norm, e))
		return -1;
	optim_step(b->optim, norm, 1, step);
	return store_publish(engine_store(b->engine), step, e);
}

static int measure(struct bench *b, struct err *e)
{
	struct kern *k = engine_kern(b->engine);
	for (int64_t i = 0; i < b->warmup; i++)
		if (one_step(b, i, e))
			return -1;
	b->gemm_before = kern_gemm_flops(k, GEMM_SIZE, gemm_seconds);
	for (int64_t i = 0; i < b->steps; i++) {
		double begun = clock_s();
		if (one_step(b, b->warmup + i, e))
			return -1;
		b->seconds[i] = clock_s() - begun;
	}
	b->gemm_after = kern_gemm_flops(k, GEMM_SIZE, gemm_seconds);
	if (!(b->gemm_before > 0 && b->gemm_after > 0))
		return err_set(e, ERR_NOMEM, "no memory for matrices of %d × %d beside the model; use a smaller one", GEMM_SIZE, GEMM_SIZE);
	return 0;
}

/* --- the report -------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static int report(struct bench *b)
{
	char memory[HUMAN];
	qsort(b->seconds, (size_t)b->steps, sizeof *b->seconds, by_value);
	double median = b->seconds[b->steps / 2], tokens = (double)(b->job.batch.global * b->shape.seq);
	double flops = model_flops_token(&b->shape) * tokens / median, gemm = (b->gemm_before + b->gemm_after) / 2;
	if (b->json)
		return tool_print_json(&tool_bench_step, json_pack("{s:I, s:I, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}",
				       "parameters", (json_int_t)model_params(&b->shape), "tokens", (json_int_t)tokens, "threads", b->threads,
				       "steps", (json_int_t)b->steps, "step_s", median, "best_s", b->seconds[0], "tokens_s", tokens / median,
				       "model_flops", flops, "gemm_before_flops", b->gemm_before, "gemm_after_flops", b->gemm_after,
				       "ratio", flops / gemm, "loss", b->loss, "peak_bytes", (json_int_t)engine_peak_bytes(b->engine)));
	printf("model         %s, %" PRId64 " layers, hidden %" PRId64 ", %.1f M parameters; %" PRId64 " × %" PRId64 " tokens a step, %d threads\n",
	       b->shape.family == FAMILY_LLAMA ? "llama" : "gpt2", b->shape.layers, b->shape.hidden,
	       (double)model_params(&b->shape) / 1e6, b->job.batch.global, b->shape.seq, b->threads);
	printf("step          %.3f s median of %" PRId64 " (best %.3f, worst %.3f), loss %.4f\n", median, b->steps, b->seconds[0],
	       b->seconds[b->steps - 1], b->loss);
	printf("tokens/s      %.1f\n", tokens / median);
	printf("model FLOP/s  %.2f G\n", flops / 1e9);
	printf("sgemm FLOP/s  %.2f G before, %.2f G after\n", b->gemm_before / 1e9, b->gemm_after / 1e9);
	printf("ratio         %.3f\n", flops / gemm);
	printf("memory        %s at most\n", human_bytes((double)engine_peak_bytes(b->engine), memory));
	return TOOL_OK;
}

static int bench(struct bench *b)
{
	struct err e = ERR_INIT;
	int rc = open_model(b, &e) || make_tokens(b, &e) || measure(b, &e) ? tool_fail(&tool_bench_step, &e) : report(b);
	optim_close(b->optim);
	engine_close(b->engine);
	comm_close(b->world);
	free(b->inputs);
	free(b->targets);
	free(b->seconds);
	return rc;
}

/* --- the command line ---------------------------------------------------------------- */

static int load_job(struct bench *b, char **words, int n, struct err *e)
{
	const char *file = NULL;
	int all = 0;
	const char **list = calloc((size_t)n + sizeof gpt2_124m / sizeof *gpt2_124m + sizeof alone / sizeof *alone, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for %d words", n);
	if (n > 0 && !strchr(words[0], '=')) {
		file = words[0];
	} else {
		for (size_t i = 0; i < sizeof gpt2_124m / sizeof *gpt2_124m; i++)
			list[all++] = gpt2_124m[i];
	}
	for (int i = file ? 1 : 0; i < n; i++)
		list[all++] = words[i];
	for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
		list[all++] = alone[i];
	int rc = job_load(file, list, all, &b->job, e);
	free(list);
	if (rc)
		return -1;
	model_shape(&b->job, &b->shape);
	int threads = speeds_threads(&b->job, 0);
	b->threads = threads ? threads : 1;
	if (b->job.batch.global % b->job.batch.micro)
		return err_set(e, ERR_USAGE, "batch.global %" PRId64 " is no multiple of batch.micro %" PRId64 "; change one of them",
			       b->job.batch.global, b->job.batch.micro);
	return 0;
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "steps", required_argument, NULL, 'n' }, { "warmup", required_argument, NULL, 'w' },
		{ "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	struct err e = ERR_INIT;
	struct bench b = { .steps = 5, .warmup = 2 };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'n')
			b.steps = atoll(optarg);
		else if (c == 'w')
			b.warmup = atoll(optarg);
		else if (c == 'j')
			b.json = true;
		else
			return tool_option(&tool_bench_step, c, argv);
	}
	if (b.steps < 1 || b.steps > MOST_STEPS || b.warmup < 0 || b.warmup > MOST_STEPS)
		return tool_usage(&tool_bench_step, "--steps is 1 to %d, --warmup 0 to %d", MOST_STEPS, MOST_STEPS);
	if (load_job(&b, argv + optind, argc - optind, &e))
		return tool_fail(&tool_bench_step, &e);
	return bench(&b);
}

const struct tool tool_bench_step = { "bench", "step", run, "how fast this machine trains", page };
