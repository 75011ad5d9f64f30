/* A checkpoint, and a trace of steps, that somebody asks for while a world of several ranks trains. The ranks
 * hear of it after different steps, and save after the same one, and record the same ones. */
#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/data/pack.h"
#include "agent/engine/train/train.h"
#include "base/file.h"
#include "base/log.h"
#include "tests/unit/agent/world.h"
#include "tests/unit/patience.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static const char base[] =
	"[job]\nname = t\nsteps = 20\nseed = 3\n"
	"[model]\nfamily = gpt2\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 256\nseq = 8\n"
	"[batch]\nmicro = 1\nglobal = 4\n"
	"[optimizer]\nlr = 1e-3\nwarmup = 2\ndecay_steps = 20\n"
	"[checkpoint]\nevery = 0\n"
	"[data]\nvalidation = 0.2\n";

enum { RANKS = 2, COMMITS = 8, TRACES = 2, WRITES_FOR = 2 /* steps */, TOO_MANY = COMM_TAPE_OPS };

/* The ranks of one run. Shared by them. */
struct board {
	int commits; /* of rank 0 */
	int64_t steps[COMMITS];
	struct {
		int64_t first, last;
		char why[300];
	} traces[RANKS][TRACES + 1]; /* by number */
};

struct course {
	const char *name;
	const char *const *words;
	struct layout layout;
	struct board *board;
	int records;          /* steps that a request wants recorded; 0: nobody asks */
	bool unequal;         /* the last rank has far more operations than the others */
	int64_t write_before; /* a trace that ends before this step is written WRITES_FOR steps long */
};

/* What the hooks of a rank know. */
struct rank {
	int number, records;
	int64_t write_before;
	_Atomic int64_t step; /* finished ones */
	struct comm *alone;   /* a group of this rank; NULL: none */
	struct board *board;
};

static void path_of(char out[192], const char *name)
{
	snprintf(out, 192, "%s/%s", dir, name);
}

/* --- hooks ---------------------------------------------------------------------------- */

static void note_progress(void *arg, int64_t step, const char *phase)
{
	struct rank *r = arg;
	(void)phase;
	r->step = step;
}

static void nothing(void *arg)
{
	(void)arg;
}

static void note_worked(void *arg, double seconds)
{
	(void)arg;
	(void)seconds;
}

static void note_times(void *arg, const struct train_times *times, bool at_once)
{
	(void)arg;
	(void)times;
	(void)at_once;
}

static bool never_stops(void *arg, bool *checkpoint)
{
	(void)arg;
	*checkpoint = false;
	return false;
}

/* The last rank hears of the first request after 3 steps, and the other one 4 steps later; of the
 * second one the first rank hears after 9 steps, and the last one never. */
static int asked(void *arg)
{
	const struct rank *r = arg;
	if (r->number == RANKS - 1)
		return r->step >= 3;
	return r->step >= 9 ? 2 : r->step >= 7;
}

/* As with the checkpoints; the second request comes when the first one is long over. */
static int trace_asked(void *arg, int *steps)
{
	const struct rank *r = arg;
	*steps = r->records;
	if (!r->records)
		return 0;
	if (r->number == RANKS - 1)
		return r->step >= 2;
	return r->step >= 15 ? 2 : r->step >= 4;
}

/* On the thread that has written the file. It takes as long as the rank's next steps: if training waited for
 * it, neither would end. */
static void note_traced(void *arg, const struct trace_report *report)
{
	struct rank *r = arg;
	struct board *b = r->board;
	while (!report->why && report->last < r->write_before &&
	       r->step < report->last + WRITES_FOR)
		usleep(100);
	b->traces[r->number][report->number].first = report->first;
	b->traces[r->number][report->number].last = report->last;
	snprintf(b->traces[r->number][report->number].why, 300, "%s",
		 report->why ? report->why : "");
}

static int records(void *arg, int64_t step, double seconds, struct err *e)
{
	(void)arg;
	(void)step;
	(void)seconds;
	(void)e;
	return 0;
}

static int reached(void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	return 0;
}

static void note_ready(void *arg, int64_t step, int64_t samples, const char *from,
		       const struct phases *start)
{
	(void)arg;
	(void)step;
	(void)samples;
	(void)from;
	(void)start;
}

static void note_step(void *arg, const struct step_report *r)
{
	(void)arg;
	(void)r;
}

static void note_eval(void *arg, int64_t step, double loss)
{
	(void)arg;
	(void)step;
	(void)loss;
}

static void note_bad_step(void *arg, const struct bad_step *b)
{
	(void)arg;
	(void)b;
}

static void note_series(void *arg, int64_t step)
{
	(void)arg;
	(void)step;
}

static void note_commit(void *arg, const struct ckpt_report *c)
{
	struct board *b = ((struct rank *)arg)->board;
	if (b->commits < COMMITS)
		b->steps[b->commits++] = c->step;
}

static void note_failure(void *arg, int64_t step, const char *why)
{
	(void)arg;
	(void)step;
	fprintf(stderr, "%s\n", why);
	abort();
}

static void note_finished(void *arg, int64_t step, int64_t bytes, const struct phases *spent)
{
	(void)arg;
	(void)step;
	(void)bytes;
	(void)spent;
}

/* A drill's hook, before each step: operations that only this rank has. */
static int work_alone(void *arg, int64_t step, bool *poison, struct err *e)
{
	const struct rank *r = arg;
	char in = 0, out = 0;
	const struct comm_p2p self[] = { { true, { &out }, 1, COMM_U8, 0 },
					 { false, { &in }, 1, COMM_U8, 0 } };
	int rc = 0;
	(void)step;
	(void)poison;
	for (int i = 0; i < 100 && r->number == RANKS - 1 && !rc; i++)
		rc = comm_batch_send_recv(r->alone, self, 2, e);
	return rc;
}

/* --- a run ------------------------------------------------------------------------------ */

static int load_job(const struct course *c, struct job *job, struct err *e)
{
	char file[192], text[192], data[256];
	const char *words[8] = { data };
	int n = 1;
	path_of(file, "base.ini");
	path_of(text, "text");
	snprintf(data, sizeof data, "data.path=%s", text);
	while (c->words[n - 1]) {
		words[n] = c->words[n - 1];
		n++;
	}
	return job_load(file, words, n, job, e);
}

static int train(struct comm *world, void *arg, struct err *e)
{
	const struct course *c = arg;
	static struct job job;
	struct rank r = { .number = comm_rank(world),
			  .board = c->board,
			  .records = c->records,
			  .write_before = c->write_before };
	const struct train_hooks hooks = {
		.arg = &r,
		.progress = note_progress,
		.moved = nothing,
		.worked = note_worked,
		.times = note_times,
		.stopping = never_stops,
		.save_asked = asked,
		.trace_asked = trace_asked,
		.await_recorded = records,
		.await_contact = reached,
		.give_up = nothing,
		.ready = note_ready,
		.step = note_step,
		.eval = note_eval,
		.bad_step = note_bad_step,
		.series = note_series,
		.committed = note_commit,
		.save_failed = note_failure,
		.traced = note_traced,
		.finished = note_finished,
		.drill = c->unequal ? work_alone : NULL,
		.drill_arg = &r,
	};
	struct phases phases = { 0 };
	struct rank_view view;
	char run[192];
	path_of(run, c->name);
	if (load_job(c, &job, e) || rank_view_init(&job, &c->layout, r.number, &view, e))
		return -1;
	const struct train_env env = {
		.view = &view,
		.world = world,
		.hooks = &hooks,
		.run_dir = run,
		.resume = "none",
		.generation = 1,
		.threads = 1,
		.leaf = -1,
		.node_ranks = RANKS,
		.phases = &phases,
	};
	int rc = c->unequal ? comm_split(world, r.number, 0, "alone", &r.alone, e) : 0;
	if (!rc)
		rc = train_run(&env, e);
	comm_close(r.alone);
	rank_view_fini(&view);
	return rc;
}

/* All ranks save once for each request, soon after the first one has heard of it, and at the end. */
static void check_run(const char *name, const char *const *words, struct layout layout,
		      int64_t late)
{
	struct course c = { .name = name,
			    .words = words,
			    .layout = layout,
			    .board = world_shared(sizeof *c.board) };
	char run[192];
	path_of(run, name);
	assert_int_equal(file_make_dirs(run, NULL), 0);
	assert_int_equal(world_run(RANKS, train, &c), 0);
	assert_int_equal(c.board->commits, 3);
	assert_in_range(c.board->steps[0], 4, 4 + late);
	assert_in_range(c.board->steps[1], 10, 10 + late);
	assert_int_equal(c.board->steps[2], 20);
	world_unshared(c.board, sizeof *c.board);
}

static const struct layout replicas = {
	.tp = 1, .cp = 1, .dp = RANKS, .pp = 1, .ep = 1, .chunks = 1
};
static const struct layout stages = {
	.tp = 1, .cp = 1, .dp = 1, .pp = RANKS, .ep = 1, .chunks = 1
};

static void replicas_save_after_the_same_step(void **state)
{
	static const char *const words[] = { "parallel.dp=2", NULL };
	(void)state;
	check_run("replicas", words, replicas, 0);
}

static void stages_save_after_the_same_step(void **state)
{
	static const char *const words[] = { "parallel.pp=2", NULL };
	(void)state;
	check_run("stages", words, stages, 0);
}

/* The servers name a step that no worker has passed, so it may come later. */
static void workers_of_a_parameter_server_save_after_the_same_step(void **state)
{
	static const char *const exact[] = { "parallel.dp=2", "parallel.sync=server",
					     "parallel.staleness=0", NULL };
	static const char *const stale[] = { "parallel.dp=2", "parallel.sync=server",
					     "parallel.staleness=1", NULL };
	(void)state;
	check_run("server", exact, replicas, 1);
	check_run("stale", stale, replicas, 2);
}

/* --- traces ----------------------------------------------------------------------------- */

static void check_trace(const struct board *b, int number, int64_t first, int64_t last)
{
	for (int r = 0; r < RANKS; r++) {
		assert_string_equal(b->traces[r][number].why, "");
		assert_int_equal(b->traces[r][number].first, first);
		assert_int_equal(b->traces[r][number].last, last);
	}
}

/* The second file replaces the first one. */
static void check_files(const char *name, int64_t first, int64_t last)
{
	char path[256], range[64];
	for (int r = 0; r < RANKS; r++) {
		struct buf text = BUF_INIT;
		snprintf(path, sizeof path, "%.60s/%.20s/trace/gen-1/steps-%d.json", dir, name, r);
		snprintf(range, sizeof range, "\"first\": %lld, \"last\": %lld,", (long long)first,
			 (long long)last);
		assert_int_equal(file_slurp(path, 1 << 24, &text, NULL), 0);
		assert_non_null(strstr(buf_str(&text), range));
		buf_fini(&text);
	}
}

static struct course run_traced(const char *name, const char *const *words, struct layout layout,
				int records, int64_t write_before)
{
	struct course c = { .name = name,
			    .unequal = records == TOO_MANY,
			    .words = words,
			    .layout = layout,
			    .records = records,
			    .write_before = write_before,
			    .board = world_shared(sizeof *c.board) };
	char run[192];
	path_of(run, name);
	assert_int_equal(file_make_dirs(run, NULL), 0);
	assert_int_equal(world_run(RANKS, train, &c), 0);
	return c;
}

static void all_ranks_record_the_same_steps_and_train_on_while_they_write(void **state)
{
	static const char *const words[] = { "parallel.pp=2", NULL };
	(void)state;
	struct course c = run_traced("traced", words, stages, 3, 20 - WRITES_FOR);
	check_trace(c.board, 1, 4, 6);
	check_trace(c.board, 2, 17, 19);
	check_files("traced", 17, 19);
	world_unshared(c.board, sizeof *c.board);
}

static void the_steps_of_the_job_come_first(void **state)
{
	static const char *const words[] = { "parallel.dp=2", "trace.steps=6-8", NULL };
	(void)state;
	struct course c = run_traced("both", words, replicas, 3, 0);
	check_trace(c.board, 1, 9, 11);
	check_trace(c.board, 2, 17, 19);
	world_unshared(c.board, sizeof *c.board);
}

static void the_end_of_the_run_ends_the_steps(void **state)
{
	static const char *const words[] = { "parallel.dp=2", "trace.steps=7-30", NULL };
	(void)state;
	struct course c = run_traced("ends", words, replicas, 3, 0);
	check_trace(c.board, 1, 4, 6);
	for (int r = 0; r < RANKS; r++)
		assert_string_equal(c.board->traces[r][2].why,
				    "training ended before the steps began");
	check_files("ends", 7, 20);
	world_unshared(c.board, sizeof *c.board);
}

/* All ranks say the same, although one has less room than the others. */
static void more_steps_than_the_tape_holds_are_refused(void **state)
{
	static const char *const words[] = { "parallel.dp=2", NULL };
	(void)state;
	struct course c = run_traced("large", words, replicas, TOO_MANY, 0);
	for (int r = 0; r < RANKS; r++)
		assert_non_null(
			strstr(c.board->traces[r][1].why, "steps of this job; ask for at most"));
	assert_string_equal(c.board->traces[0][1].why, c.board->traces[1][1].why);
	world_unshared(c.board, sizeof *c.board);
}

static void make_text(void)
{
	struct buf text = BUF_INIT;
	char source[192], packed[192], job[192];
	char *files[] = { source };
	struct pack_report report;
	for (int i = 0; i < 400; i++)
		buf_printf(&text, "%d times %d is %d. ", i, i, i * i);
	path_of(source, "source");
	path_of(packed, "text");
	path_of(job, "base.ini");
	if (file_replace(job, base, sizeof base - 1, NULL) ||
	    file_replace(source, text.data, text.len, NULL) ||
	    data_pack_files(packed, files, 1, &(struct document_options){ 0 }, &report, NULL))
		abort();
	buf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replicas_save_after_the_same_step),
		cmocka_unit_test(stages_save_after_the_same_step),
		cmocka_unit_test(workers_of_a_parameter_server_save_after_the_same_step),
		cmocka_unit_test(all_ranks_record_the_same_steps_and_train_on_while_they_write),
		cmocka_unit_test(the_steps_of_the_job_come_first),
		cmocka_unit_test(the_end_of_the_run_ends_the_steps),
		cmocka_unit_test(more_steps_than_the_tape_holds_are_refused),
	};
	if (!tmpdir_make(dir, sizeof dir))
		return 1;
	log_setup(2, LOG_ERROR, "test");
	alarm(PATIENCE_S);
	make_text();
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	file_remove_tree(dir);
	return rc;
}
