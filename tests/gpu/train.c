/*
 * Trains tiny models for twenty steps on a device. They must give the specification's losses, the
 * same bits in two runs and after a stop, and with several agents on one device the losses of a
 * single agent. One row also runs with measured choices, as training does: with those of its run
 * folder it must give the same bits again, also after a stop.
 *
 * usage: train [--backend NAME] [--steps N] [--few] [--only WORD]
 *   --backend NAME  cuda (default), or another one
 *   --steps N       an even number (default 20)
 *   --few           for slow machines: small batches and two layers; each row is compared with the
 *                   specification, run twice, and run in one layout
 *   --only WORD     rows with WORD in their names
 *
 * Each run has its own processes, since CUDA does not survive a fork.
 */
#include "agent/engine/train/agree_choices.h"
#include "base/file.h"
#include "tests/gpu/score.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS_MAX = 20, WORDS = 8, STATE_MAX = 16 << 20 };

/* Sizes with few divisors, and some with the heads of real models. */
static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 4,  20,      6, 6, 4,
				  51,     101,         16, TIE_YES, 1, 8, 0.1 },
			 llama = { "llama", FAMILY_LLAMA, 4,  24,     8, 2,  4,
				   45,      103,          16, TIE_NO, 2, 16, 0.1 },
			 mixtral = { "mixtral", FAMILY_MIXTRAL, 4, 16, 4,  2, 4, 24, 61,
				     16,        TIE_NO,         2, 8,  0.1 },
			 heads64 = { "heads of 64", FAMILY_GPT2, 2,  128,     2, 2, 64,
				     512,           320,         72, TIE_YES, 2, 4, 0.02 },
			 heads128 = { "heads of 128",
				      FAMILY_LLAMA,
				      2,
				      256,
				      2,
				      1,
				      128,
				      256,
				      320,
				      72,
				      TIE_NO,
				      2,
				      4,
				      0.02 };

/* tolerance: of losses, compared with the specification in fp32. */
struct row {
	const char *name;
	const struct tiny *model;
	const char *words[WORDS];
	double tolerance;
	bool layouts, chosen; /* also in layouts; also with measured choices */
};

/* clang-format off */
static const struct row rows[] = {
	{ "gpt2", &gpt2, { 0 }, 1e-4, true, false },
	{ "llama", &llama, { 0 }, 1e-4, true, false },
	{ "mixtral", &mixtral, { 0 }, 1e-4, true, false },
	{ "gpt2, dropout, recompute", &gpt2, { "model.dropout=0.2", "model.attn_dropout=0.1", "recompute.mode=full" }, 1e-4, false, false },
	{ "llama, documents, offload", &llama, { "data.documents=mask", "offload.activations=yes", "offload.optimizer=yes" }, 1e-4, false, false },
	{ "mixtral, capacity, z-loss", &mixtral, { "model.capacity=1.25", "model.z_loss=0.01", "model.router=before" }, 1e-4, false, false },
	{ "gpt2, heads of 64", &heads64, { "optimizer.lr=1e-3" }, 1e-4, false, false },
	{ "gpt2, heads of 64, bf16", &heads64, { "optimizer.lr=1e-3", "precision.dtype=bf16" }, 1e-2, true, true },
	{ "llama, heads of 128, bf16", &heads128, { "optimizer.lr=1e-3", "precision.dtype=bf16", "precision.stochastic_rounding=yes" }, 1e-2, false, false },
	{ "gpt2, heads of 64, fp8", &heads64, { "optimizer.lr=1e-3", "precision.dtype=bf16", "precision.fp8=hybrid" }, 5e-2, false, false },
	{ "gpt2, heads of 64, fp16", &heads64, { "optimizer.lr=1e-3", "precision.dtype=fp16", "precision.loss_scale=1024" }, 1e-2, false, false },
};
/* clang-format on */

/* Layouts of several agents on one device. */
static const struct column {
	const char *name, *words[WORDS];
	bool experts; /* only for mixtures of experts */
} columns[] = {
	{ "tp 2", { "parallel.tp=2" }, false },
	{ "pp 2", { "parallel.pp=2" }, false },
	{ "dp 2", { "parallel.dp=2" }, false },
	{ "zero-3", { "parallel.dp=2", "parallel.zero=3" }, false },
	{ "ep 2", { "parallel.dp=2", "parallel.ep=2" }, true },
};

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* One run, shared with its processes. */
struct course {
	const struct tiny *model;
	struct job job;
	const char *backend_name;
	int from, to;        /* steps */
	bool keeps;          /* keeps its state at the end */
	const char *choices; /* the folder with measured choices; NULL: each library's first */
	bool late;           /* reads the numbers of a step one step later, as the trainer does */
	double loss[STEPS_MAX], norm[STEPS_MAX];
	int64_t elements;
	float state
		[STATE_MAX]; /* the state after a stop: masters of the pieces, then the moments */
};

struct settings {
	const char *backend_name, *only;
	int steps;
	bool few;
};

/* --- The state in the host's memory ------------------------------------------------------- */

/* Copies masters and moments out of the trainee, or into it. */
static int carry(struct trainee *t, struct course *c, bool reads, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(t->state.store, &n);
	float *at = c->state;
	for (int i = 0; i < n * train_state_tensors(&t->state); i++) {
		const struct param_piece *p = &pieces[i % n];
		if (at + p->count > c->state + STATE_MAX)
			return err_set(e, ERR_INTERNAL, "a state of more than %d elements",
				       STATE_MAX);
		if (reads && train_state_read(&t->state, p, i / n, 0, p->count, at, e))
			return -1;
		if (!reads && train_state_write(&t->state, p, i / n, 0, p->count, at, e))
			return -1;
		at += p->count;
	}
	c->elements = at - c->state;
	return 0;
}

static struct course *resumed; /* in the process that continues */

static int from_memory(struct trainee *t, const char *dir, struct ckpt_state *at, struct err *e)
{
	(void)dir;
	at->step = resumed->from;
	return carry(t, resumed, false, e) || param_store_sync_params(t->state.store, at->step, e)
		       ? -1
		       : 0;
}

/* --- Runs --------------------------------------------------------------------------------- */

/* A late step gives the numbers of the step before. */
static int one_step(struct trainee *t, struct course *c, int step, struct err *e)
{
	double loss, norm;
	int rc = trainee_step(t, step, &loss, &norm, e);
	step -= c->late;
	if (!rc && step >= c->from && comm_rank(t->world) == 0) {
		c->loss[step] = loss;
		c->norm[step] = norm;
	}
	return rc;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	struct train_choices *choices = NULL;
	resumed = c;
	trainee_reading = c->late ? TRAIN_READS_LATE : TRAIN_READS_AT_ONCE;
	int rc = c->from ? trainee_open_as(c->model, &c->job, world, c->backend_name, 1,
					   from_memory, NULL, &t, e)
			 : trainee_open(c->model, &c->job, world, c->backend_name, 1, &t, e);
	if (!rc && c->choices)
		rc = train_choices_begin(world, &t.view, pipeline_backend(t.engine), c->choices,
					 c->from, &choices, e);
	for (int step = c->from; !rc && step < c->to; step++)
		rc = one_step(&t, c, step, e) || train_choices_agree(&choices, e) ? -1 : 0;
	if (!rc && c->late)
		rc = trainee_settle(&t, &c->loss[c->to - 1], &c->norm[c->to - 1], e);
	if (!rc && c->keeps)
		rc = carry(&t, c, true, e);
	train_choices_close(choices);
	trainee_close(&t);
	return rc;
}

static void add_words(const char *const *from, const char **to, int *n)
{
	for (; *from; from++)
		to[(*n)++] = *from;
}

/* A run with the row's words and `more`. NULL: the job's checks refuse it. */
static struct course *course_of(const struct settings *s, const struct row *row,
				const char *backend_name, const char *const *more)
{
	const char *words[4 * WORDS] = { NULL };
	struct course *c = world_shared(sizeof *c);
	struct err e = ERR_INIT;
	char global[40];
	int n = 0;
	add_words(row->words, words, &n);
	add_words(more, words, &n);
	if (!strncmp(backend_name, "cuda", 4))
		words[n++] = "job.device=cuda";
	snprintf(global, sizeof global, "batch.global=%d", 2 * row->model->micro);
	if (s->few) {
		words[n++] = "model.layers=2";
		words[n++] = global;
	}
	c->model = row->model;
	c->backend_name = backend_name;
	c->to = s->steps;
	if (!trainee_job(row->model, words, &c->job, &e))
		return c;
	fprintf(stderr, "%s: %s\n", row->name, e.text);
	world_unshared(c, sizeof *c);
	return NULL;
}

static void course_end(struct course *c)
{
	if (c)
		world_unshared(c, sizeof *c);
}

static bool course_run(struct course *c)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	return !world_run(layout_world(&l), attend, c);
}

/* NaN counts as the largest. */
static double off(const struct course *a, const struct course *b)
{
	double most = 0;
	for (int i = 0; i < a->to; i++) {
		double d = fabs(a->loss[i] - b->loss[i]) / fabs(b->loss[i]);
		if (d > most || isnan(d))
			most = d;
	}
	return most;
}

/* Describes where two runs differ: the first step that differs, otherwise an element of the final
 * state. Empty: nowhere. */
static const char *describe_difference(const struct course *a, const struct course *b,
				       char out[160])
{
	out[0] = '\0';
	for (int i = 0; i < STEPS_MAX; i++)
		if (memcmp(&a->loss[i], &b->loss[i], sizeof *a->loss) ||
		    memcmp(&a->norm[i], &b->norm[i], sizeof *a->norm)) {
			snprintf(out, 160,
				 "they differ at step %d: loss %.17g instead of %.17g, norm %.17g "
				 "instead of "
				 "%.17g",
				 i + 1, a->loss[i], b->loss[i], a->norm[i], b->norm[i]);
			return out;
		}
	if (a->elements != b->elements)
		snprintf(out, 160, "their states have different sizes: %lld and %lld",
			 (long long)a->elements, (long long)b->elements);
	for (int64_t i = 0; !out[0] && i < a->elements; i++)
		if (memcmp(&a->state[i], &b->state[i], sizeof *a->state))
			snprintf(out, 160,
				 "they differ in element %lld of %lld of the state: %.9g instead "
				 "of %.9g",
				 (long long)i, (long long)a->elements, (double)a->state[i],
				 (double)b->state[i]);
	return out;
}

/* --- Checks ------------------------------------------------------------------------------- */

static const char *const nothing[] = { NULL };

static void check_specification(const struct settings *s, const struct row *row, struct course *one,
				struct score *score)
{
	static const char *const fp32[] = { "precision.dtype=fp32",
					    "precision.stochastic_rounding=no",
					    "precision.fp8=off",
					    "offload.activations=no",
					    "offload.optimizer=no",
					    "precision.loss_scale=0",
					    NULL };
	struct course *spec = course_of(s, row, "reference", fp32);
	bool ran = spec && course_run(spec);
	double d = ran ? off(one, spec) : NAN;
	score_check(score, d <= row->tolerance,
		    "%s: %d losses beside those of the reference, off by %.1e (%.0e allowed)",
		    row->name, s->steps, d, row->tolerance);
	course_end(spec);
}

static void check_same(bool ran, const struct course *c, const struct course *one,
		       const struct row *row, const char *what, struct score *score)
{
	char text[160];
	const char *where = ran ? describe_difference(c, one, text) : "it does not run";
	score_check(score, !*where, "%s: %s%s%s", row->name, what, *where ? ": " : "", where);
}

static void check_again(const struct settings *s, const struct row *row, const struct course *one,
			struct score *score)
{
	struct course *again = course_of(s, row, s->backend_name, nothing);
	again->keeps = true;
	check_same(course_run(again), again, one, row, "the same bits in two runs", score);
	course_end(again);
}

/* The device judges each step and updates, and the host reads the numbers one step later. */
static void check_late(const struct settings *s, const struct row *row, const struct course *one,
		       struct score *score)
{
	struct course *late = course_of(s, row, s->backend_name, nothing);
	late->keeps = late->late = true;
	check_same(course_run(late), late, one, row,
		   "the same bits when numbers are read one step later", score);
	course_end(late);
}

/* Passes are replayed from graphs, or run each time. */
static void check_graphs(const struct settings *s, const struct row *row, const struct course *one,
			 struct score *score)
{
	static const char *const off[] = { "job.graphs=no", NULL };
	struct course *c = course_of(s, row, s->backend_name, off);
	bool ran = false;
	if (c) {
		c->keeps = true;
		ran = course_run(c);
	}
	check_same(ran, c, one, row, "the same bits without graphs", score);
	course_end(c);
}

/* A run that measures, and one in two halves that takes the choices of the first from their folder.
 * The user's cache is not used. */
static void check_chosen(const struct settings *s, const struct row *row, const struct course *one,
			 struct score *score)
{
	char dir[] = "/tmp/muster-train.XXXXXX";
	struct course *whole = course_of(s, row, s->backend_name, nothing),
		      *halves = course_of(s, row, s->backend_name, nothing);
	const bool made = mkdtemp(dir) != NULL;
	bool ran;
	setenv("XDG_CACHE_HOME", dir, 1);
	whole->keeps = halves->keeps = true;
	whole->choices = halves->choices = dir;
	ran = made && course_run(whole);
	double d = ran ? off(whole, one) : NAN;
	score_check(score, d <= row->tolerance,
		    "%s: losses with measured choices, off by %.1e (%.0e allowed)", row->name, d,
		    row->tolerance);
	halves->to = s->steps / 2;
	ran = ran && course_run(halves);
	halves->from = halves->to;
	halves->to = s->steps;
	check_same(ran && course_run(halves), halves, whole, row,
		   "the same bits with the choices of the first run, after a stop", score);
	unsetenv("XDG_CACHE_HOME");
	if (made)
		file_remove_tree(dir);
	course_end(whole);
	course_end(halves);
}

/* Two halves, each in its own process. */
static void check_resume(const struct settings *s, const struct row *row, const struct course *one,
			 struct score *score)
{
	struct course *c = course_of(s, row, s->backend_name, nothing);
	c->keeps = true;
	c->to = s->steps / 2;
	bool ran = course_run(c);
	c->from = c->to;
	c->to = s->steps;
	check_same(ran && course_run(c), c, one, row, "a stop halfway changes no bits", score);
	course_end(c);
}

static void check_layouts(const struct settings *s, const struct row *row, const struct course *one,
			  struct score *score)
{
	bool fp32 = one->job.precision.dtype == DTYPE_FP32;
	double allowed = fp32 ? 2e-5 : 1e-2;
	for (int i = 0; i < (s->few ? 1 : COUNT(columns)); i++) {
		if (columns[i].experts && row->model->family != FAMILY_MIXTRAL)
			continue;
		struct course *c = course_of(s, row, s->backend_name, columns[i].words);
		double d = c && course_run(c) ? off(c, one) : NAN;
		score_check(
			score, d <= allowed,
			"%s: %s on one device gives one agent's losses, off by %.1e (%.0e allowed)",
			row->name, columns[i].name, d, allowed);
		course_end(c);
	}
}

static void check_row(const struct settings *s, const struct row *row, struct score *score)
{
	struct course *one = course_of(s, row, s->backend_name, nothing);
	if (one)
		one->keeps = true;
	if (!one || !course_run(one)) {
		score_check(score, false, "%s: %d steps on %s", row->name, s->steps,
			    s->backend_name);
	} else {
		check_specification(s, row, one, score);
		check_again(s, row, one, score);
		if (!strncmp(s->backend_name, "cuda", 4)) {
			check_graphs(s, row, one, score);
			check_late(s, row, one, score);
			if (row->chosen)
				check_chosen(s, row, one, score);
		}
		if (!s->few)
			check_resume(s, row, one, score);
		if (row->layouts)
			check_layouts(s, row, one, score);
	}
	course_end(one);
}

/* Runs in its own process, as every use of the device. */
static bool opens(const char *backend_name, char *why, size_t size)
{
	int status = 0, ends[2];
	fflush(NULL);
	if (pipe(ends))
		return false;
	pid_t pid = fork();
	if (pid == 0) {
		struct backend *k;
		struct err e = ERR_INIT;
		int rc = backend_open(backend_name, 1, &k, &e);
		if (rc && write(ends[1], e.text, strlen(e.text)) < 0)
			rc = -1;
		_exit(rc ? 1 : 0);
	}
	close(ends[1]);
	ssize_t n = read(ends[0], why, size - 1);
	why[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "backend", required_argument, NULL, 'b' },
		{ "steps", required_argument, NULL, 's' },
		{ "few", no_argument, NULL, 'f' },
		{ "only", required_argument, NULL, 'o' },
		{ 0 },
	};
	struct settings s = { .backend_name = "cuda", .only = "", .steps = STEPS_MAX };
	struct score score = { 0 };
	char why[400];
	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
		if (c == 'b')
			s.backend_name = optarg;
		else if (c == 's')
			s.steps = atoi(optarg);
		else if (c == 'f')
			s.few = true;
		else if (c == 'o')
			s.only = optarg;
		else
			return 2;
	if (s.steps < 2 || s.steps > STEPS_MAX || s.steps % 2) {
		fprintf(stderr, "train: --steps is an even number from 2 to %d\n", STEPS_MAX);
		return 2;
	}
	if (s.few)
		world_patience = 600;
	if (!opens(s.backend_name, why, sizeof why)) {
		score_skip(&score, "training", why);
		return score_close(&score);
	}
	for (int i = 0; i < COUNT(rows); i++)
		if (strstr(rows[i].name, s.only))
			check_row(&s, &rows[i], &score);
	return score_close(&score);
}
