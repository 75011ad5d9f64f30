/*
 * Measures a training step on one device. It reads commands from its standard input, line by line,
 * and answers each with a line of JSON, so that a script can run two programs by turns
 * (tests/gpu/report):
 *
 *     gemm N SECONDS           {"flops": …}: square products of size N, on random numbers
 *     copy BYTES               {"bytes_s": …}: copies inside the device's memory; counts bytes
 *                              read and written
 *     open MODEL [KEY=VALUE …] {"parameters": …, "tokens": …, "flops_token": …, "planned": {…}};
 *                              closes the model before it
 *     calibrate SECONDS N      {"ops": …, "seconds": …}: times the operations of the planner's
 *                              calibration in bf16, SECONDS for each size of at most N elements
 *     predict                  {"published_s": …, "calibrated_s": …}: the planner's prediction of a
 *                              step of the open model, by published constants and, after
 *                              `calibrate`, by what that measured
 *     turn STEPS [waits]       {"seconds": […], "loss": …, "peak_bytes": …}: the seconds of
 *                              each step. On a device a step is the trainer's: it judges itself on
 *                              the device, and its numbers are read after the next step's passes
 *                              are queued (agent/engine/train/stepper.h). waits: the host waits for
 *                              the device after each step
 *     choices                  {"choices": [{"key": …, "note": …}, …], "notices": [text, …]}: what
 *                              was measured to choose algorithms, unless the model has
 *                              job.deterministic=yes; and what the backend reported since the last
 *                              time, such as slow products
 *     close                    {}
 *
 * A command that fails answers {"error": "…"}.
 *
 * usage: bench [--backend NAME] [--toy] [COMMAND …]
 *   --backend NAME  cuda (default), cpu, reference
 *   --toy           toy models
 *   COMMAND         run these commands instead of reading standard input
 *
 * A step is forward, backward, the gradient's norm, AdamW and publishing the weights, on batches of
 * random tokens, of which low ones are more frequent. FLOPs are the model's
 * (plan/spec/model/model.h).
 */
#include "agent/engine/optim/optim.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/train/state.h"
#include "agent/engine/train/stepper.h"
#include "base/choices.h"
#include "base/clock.h"
#include "base/philox.h"
#include "plan/plan.h"
#include "plan/spec/speeds.h"
#include "tests/gpu/json_text.h"
#include "tests/gpu/models.h"
#include "tests/gpu/predict.h"
#include "tests/unit/agent/world.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 4, LINE = 1024, STEPS_MAX = 10000 };

struct bench {
	const char *backend_name;
	bool toy, open;
	struct measured_chip *chip; /* NULL: not calibrated */
	struct comm *world;
	struct job job;
	struct rank_view view;
	struct engine *engine;
	struct optim *optim;
	int32_t *tokens; /* [BATCHES][sequences][seq + 1] */
	int32_t *inputs, *targets;
	int64_t step;
	struct stepper stepper;
};

/* --- The model --- */

static void draw_tokens(struct bench *b, int64_t n, uint32_t vocab)
{
	struct philox_key key = philox_key(b->job.job.seed, PHILOX_TEST, 0);
	for (int64_t i = 0; i < n; i++) {
		uint32_t r[4];
		philox4(key, (uint64_t)i, r);
		b->tokens[i] = (int32_t)((uint64_t)(r[0] % vocab) * (r[1] % vocab) / vocab);
	}
}

static int make_batches(struct bench *b, struct err *e)
{
	int64_t sequences = b->job.batch.global, seq = b->job.model.seq,
		all = BATCHES * sequences * (seq + 1);
	b->tokens = calloc((size_t)all, sizeof *b->tokens);
	b->inputs = calloc((size_t)(sequences * seq), sizeof *b->inputs);
	b->targets = calloc((size_t)(sequences * seq), sizeof *b->targets);
	if (!b->tokens || !b->inputs || !b->targets)
		return err_set(e, ERR_NOMEM, "no memory for %lld tokens", (long long)all);
	draw_tokens(b, all, (uint32_t)b->job.model.vocab);
	return 0;
}

static void next_batch(struct bench *b)
{
	int64_t sequences = b->job.batch.global, seq = b->job.model.seq;
	const int32_t *from = b->tokens + b->step % BATCHES * sequences * (seq + 1);
	for (int64_t s = 0; s < sequences; s++, from += seq + 1) {
		memcpy(b->inputs + s * seq, from, (size_t)seq * sizeof *from);
		memcpy(b->targets + s * seq, from + 1, (size_t)seq * sizeof *from);
	}
}

/* On a device, the host's threads only set the initial weights, and may use all cores of this
 * process. */
static int host_threads(const char *backend_name)
{
	cpu_set_t cores;
	if (strcmp(backend_name, "cuda") || sched_getaffinity(0, sizeof cores, &cores))
		return 1;
	return CPU_COUNT(&cores) < 64 ? CPU_COUNT(&cores) : 64;
}

/* As a run of muster does in its first step, and at once, since there is one rank. */
static void want_choices(struct bench *b)
{
	struct choices *c = backend_choices(pipeline_backend(b->engine));
	if (c && b->job.job.deterministic != DETERMINISTIC_YES)
		choices_set_mode(c, CHOICES_MEASURED);
}

/* Without tensor cores for them, a step in 8 bits takes minutes. */
static int check_eight(const struct bench *b, struct err *e)
{
	const struct backend *k = pipeline_backend(b->engine);
	return b->job.precision.fp8 == FP8_OFF || backend_on_host(k) || backend_fp8(k)
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED, "this GPU has no 8-bit matrix products");
}

static int open_model(struct bench *b, struct err *e)
{
	const struct layout alone = layout_of(&b->job, 1);
	const struct engine_options opt = {
		.view = &b->view,
		.world = b->world,
		.backend_name = b->backend_name,
		.threads = host_threads(b->backend_name),
		.spill_dir = ".",
	};
	if (rank_view_init(&b->job, &alone, 0, &b->view, e) || pipeline_open(&opt, &b->engine, e) ||
	    check_eight(b, e) || make_batches(b, e))
		return -1;
	want_choices(b);
	const struct optim_options o = { .backend = pipeline_backend(b->engine),
					 .store = pipeline_store(b->engine),
					 .job = &b->job,
					 .spill_dir = ".",
					 .numbers = pipeline_numbers(b->engine) };
	if (optim_open(&o, &b->optim, e))
		return -1;
	const struct train_state state = { .store = pipeline_store(b->engine), .optim = b->optim };
	if (train_state_init(&state, pipeline_shape(b->engine), b->job.job.seed, e))
		return -1;
	const struct stepper_parts parts = {
		.view = &b->view, .world = b->world, .engine = b->engine, .optim = b->optim
	};
	train_stepper_init(&b->stepper, &b->job);
	return train_stepper_begin(&b->stepper, &parts, e);
}

static void close_model(struct bench *b)
{
	if (!b->open)
		return;
	train_stepper_fini(&b->stepper);
	optim_close(b->optim);
	pipeline_close(b->engine);
	rank_view_fini(&b->view);
	comm_close(b->world);
	free(b->tokens);
	free(b->inputs);
	free(b->targets);
	*b = (struct bench){ .backend_name = b->backend_name, .toy = b->toy, .chip = b->chip };
}

static int one_step(struct bench *b, struct err *e)
{
	next_batch(b);
	const struct engine_batch batch = { .inputs = b->inputs,
					    .targets = b->targets,
					    .sample = b->step * b->job.batch.global };
	return train_stepper_run(&b->stepper, &batch, b->step++, e);
}

struct stopwatch {
	double since, *seconds;
	int ended;
};

/* The first n steps have ended. */
static void note_ended(struct stopwatch *w, int n)
{
	for (; w->ended < n; w->ended++) {
		double now = clock_s();
		w->seconds[w->ended] = now - w->since;
		w->since = now;
	}
}

/* Sets the seconds from the end of one step to that of the next. A late step ends when the host has
 * its numbers, which is during the next one. */
static int many_steps(struct bench *b, int steps, bool waits, double *seconds, struct err *e)
{
	struct stopwatch w = { clock_s(), seconds, 0 };
	for (int i = 0; i < steps; i++) {
		if (one_step(b, e))
			return -1;
		note_ended(&w, i);
		if (b->stepper.late && !waits && i < steps - 1)
			continue;
		if (train_stepper_settle(&b->stepper, e) ||
		    backend_sync(pipeline_backend(b->engine), e))
			return -1;
		note_ended(&w, i + 1);
	}
	return 0;
}

/* --- What is planned --- */

static int print_plan(struct bench *b, struct err *e)
{
	struct model_shape m;
	struct layout l = layout_of(&b->job, 1);
	struct stage stage;
	struct plan_rank r = { .threads = 1 };
	shape_of_job(&b->job, &m);
	if (speeds_stages(&b->job, &m, &l, &stage, e))
		return -1;
	plan_memory_rank(&b->job, &m, &l, 1, &stage, false, &r);
	printf("{\"parameters\": %lld, \"tokens\": %lld, \"flops_token\": %.17g, \"planned\": "
	       "{\"params\": %.0f, \"grads\": %.0f, \"optimizer\": %.0f, "
	       "\"activations\": %.0f, \"buffers\": %.0f, \"total\": %.0f}}\n",
	       (long long)shape_params(&m), (long long)(b->job.batch.global * m.seq),
	       shape_flops_token(&m), r.params, r.grads, r.optimizer, r.activations, r.buffers,
	       r.total);
	return 0;
}

/* --- Commands --- */

/* words: the model's name, and keys of its job. */
static int command_open(struct bench *b, char *words, struct err *e)
{
	char *rest = words, *name = strtok_r(rest, " \t\n", &rest);
	close_model(b);
	if (!name)
		return err_set(e, ERR_USAGE, "open needs a model's name");
	if (models_job(name, b->toy, b->backend_name, rest, &b->job, e))
		return -1;
	b->world = world_alone();
	b->open = true;
	if (open_model(b, e)) {
		close_model(b);
		return -1;
	}
	return print_plan(b, e);
}

static int command_turn(struct bench *b, char *words, struct err *e)
{
	int steps = atoi(words);
	bool waits = strstr(words, "waits");
	double *seconds = calloc(STEPS_MAX, sizeof *seconds);
	int rc = !seconds || !b->open || steps < 1 || steps > STEPS_MAX
			 ? err_set(e, ERR_USAGE, "turn needs an open model, and 1 to %d steps",
				   STEPS_MAX)
			 : 0;
	if (!rc)
		rc = many_steps(b, steps, waits, seconds, e);
	if (!rc) {
		printf("{\"seconds\": [");
		for (int i = 0; i < steps; i++)
			printf("%s%.9g", i ? ", " : "", seconds[i]);
		printf("], \"loss\": %.9g, \"peak_bytes\": %lld}\n", b->stepper.last.loss,
		       (long long)pipeline_peak_bytes(b->engine));
	}
	free(seconds);
	return rc;
}

static int command_close(struct bench *b, char *words, struct err *e)
{
	(void)words;
	(void)e;
	close_model(b);
	puts("{}");
	return 0;
}

/* What was chosen by measurement so far, with the measured times, and the backend's notices. */
static int command_choices(struct bench *b, char *words, struct err *e)
{
	const char *key, *note, *notice;
	(void)words;
	if (!b->open)
		return err_set(e, ERR_USAGE, "choices needs an open model");
	struct backend *k = pipeline_backend(b->engine);
	const struct choices *c = backend_choices(k);
	printf("{\"choices\": [");
	for (int i = 0; c && choices_at(c, i, &key, &note); i++)
		printf("%s{\"key\": \"%s\", \"note\": \"%s\"}", i ? ", " : "", key, note);
	printf("], \"notices\": [");
	for (int i = 0; (notice = backend_notice(k)); i++) {
		fputs(i ? ", " : "", stdout);
		json_text_print(notice);
	}
	puts("]}");
	return 0;
}

static int open_backend(const struct bench *b, struct backend **k, struct err *e)
{
	char name[64];
	snprintf(name, sizeof name, "%s:bf16", b->backend_name);
	return backend_open(name, 1, k, e);
}

static int command_gemm(struct bench *b, char *words, struct err *e)
{
	struct backend *k;
	char *rest;
	int64_t n = strtoll(words, &rest, 10);
	if (n < 1)
		return err_set(e, ERR_USAGE, "gemm needs a size and seconds");
	if (open_backend(b, &k, e))
		return -1;
	double flops = backend_gemm_flops(k, n, strtod(rest, NULL));
	backend_close(k);
	if (!(flops > 0))
		return err_set(e, ERR_NOMEM, "no memory for matrices of %lld × %lld", (long long)n,
			       (long long)n);
	printf("{\"flops\": %.9g}\n", flops);
	return 0;
}

/* Times eight copies in a row, five times; the best one counts. */
static int copies(struct backend *k, void *to, const void *from, size_t bytes, double *rate,
		  struct err *e)
{
	enum { ROUNDS = 6, COPIES = 8 };
	for (int r = 0; r < ROUNDS; r++) {
		double since = clock_s();
		for (int i = 0; i < COPIES; i++)
			backend_copy(k, to, from, bytes);
		if (backend_sync(k, e))
			return -1;
		double now = 2.0 * COPIES * (double)bytes / (clock_s() - since);
		if (r && now > *rate)
			*rate = now;
	}
	return 0;
}

static int command_copy(struct bench *b, char *words, struct err *e)
{
	struct backend *k;
	size_t bytes = strtoull(words, NULL, 10);
	double rate = 0;
	if (!bytes)
		return err_set(e, ERR_USAGE, "copy needs a number of bytes");
	if (open_backend(b, &k, e))
		return -1;
	void *from = backend_alloc(k, bytes), *to = backend_alloc(k, bytes);
	int rc = from && to ? copies(k, to, from, bytes, &rate, e)
			    : err_set(e, ERR_NOMEM, "no memory for two times %zu bytes", bytes);
	backend_close(k);
	if (!rc)
		printf("{\"bytes_s\": %.9g}\n", rate);
	return rc;
}

static int command_calibrate(struct bench *b, char *words, struct err *e)
{
	struct node_kind k;
	char *rest;
	double seconds = strtod(words, &rest), since = clock_s();
	int64_t elements = strtoll(rest, NULL, 10);
	if (!(seconds > 0) || elements < 1)
		return err_set(e, ERR_USAGE, "calibrate needs seconds and a number of elements");
	if (predict_open(b->backend_name, &k, e) || predict_calibrate(&k, seconds, elements, e))
		return -1;
	free(b->chip);
	b->chip = k.chip;
	printf("{\"ops\": %d, \"seconds\": %.3g}\n", b->chip->n_ops, clock_s() - since);
	return 0;
}

static int command_predict(struct bench *b, char *words, struct err *e)
{
	struct node_kind k;
	double published, calibrated = 0;
	(void)words;
	if (!b->open)
		return err_set(e, ERR_USAGE, "predict needs an open model");
	if (predict_open(b->backend_name, &k, e) || predict_step(&k, &b->job, &published, e))
		return -1;
	k.chip = b->chip;
	if (k.chip && predict_step(&k, &b->job, &calibrated, e))
		return -1;
	printf("{\"published_s\": %.9g", published);
	if (k.chip)
		printf(", \"calibrated_s\": %.9g", calibrated);
	puts("}");
	return 0;
}

static const struct command {
	const char *name;
	int (*run)(struct bench *b, char *words, struct err *e);
} commands[] = {
	{ "gemm", command_gemm },       { "copy", command_copy },
	{ "open", command_open },       { "turn", command_turn },
	{ "close", command_close },     { "calibrate", command_calibrate },
	{ "predict", command_predict }, { "choices", command_choices },
};

static void print_error(const struct err *e)
{
	printf("{\"error\": \"");
	for (const char *c = e->text; *c; c++)
		putchar(*c == '"' || *c == '\\' || (unsigned char)*c < 0x20 ? '\'' : *c);
	printf("\"}\n");
}

/* Runs a command; returns whether it succeeded. */
static bool run_command(struct bench *b, char *line)
{
	struct err e = ERR_INIT;
	char *rest = line, *name = strtok_r(rest, " \t\n", &rest);
	int rc = -1;
	size_t i = 0, n = sizeof commands / sizeof *commands;
	if (!name)
		return true;
	while (i < n && strcmp(commands[i].name, name))
		i++;
	if (i < n)
		rc = commands[i].run(b, rest, &e);
	else
		err_set(&e, ERR_USAGE, "there is no command %s", name);
	if (rc)
		print_error(&e);
	fflush(stdout);
	return !rc;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "backend", required_argument, NULL, 'b' },
						 { "toy", no_argument, NULL, 't' },
						 { 0 } };
	struct bench b = { .backend_name = "cuda" };
	char line[LINE];
	bool ok = true;
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		if (c == 'b')
			b.backend_name = optarg;
		else if (c == 't')
			b.toy = true;
		else
			return 2;
	for (int i = optind; i < argc; i++) {
		snprintf(line, sizeof line, "%s", argv[i]);
		ok &= run_command(&b, line);
	}
	while (optind == argc && fgets(line, sizeof line, stdin))
		ok &= run_command(&b, line);
	close_model(&b);
	free(b.chip);
	return ok ? 0 : 1;
}
