/*
 * Masters that are written while the parameters of the old ones are still being gathered: every
 * rank gets the new ones, whichever function writes them. In fp32 the gathers of ZeRO's stages 1
 * and 2 are in place in the masters. The doubles' streams run late, in an order that depends on
 * the seed. On one device the groups' operations are staged, and on two NCCL's double runs them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "base/file.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, TURNS = 3, SEEDS = 3 };

static const struct tiny llama = { "llama", FAMILY_LLAMA, 3, 16,     4, 2, 4,
				   20,      61,           8, TIE_NO, 1, 2, 0.1 };

struct course {
	struct job job;
	bool staged;
	int seed;
	char dir[64]; /* of the checkpoint that is loaded */
};

/* bf16 holds it exactly, and two rounds in a row differ. */
static float value_of(const struct param *p, int64_t element, int round)
{
	return (float)((element * 7 + p->offset * 3 + round * 31) % 128 + 1);
}

/* --- Writers ------------------------------------------------------------------------------ */

static int write_all(struct trainee *t, int round, struct err *e)
{
	int n, rc = 0;
	const struct param_piece *pieces = param_store_pieces(t->state.store, &n);
	for (int i = 0; i < n && !rc; i++) {
		const struct param_piece *p = &pieces[i];
		float *values = malloc((size_t)p->count * sizeof *values);
		if (!values)
			return err_set(e, ERR_NOMEM, "no memory for %s", p->param->name);
		for (int64_t j = 0; j < p->count; j++)
			values[j] = value_of(p->param, p->first + j, round);
		rc = train_state_write(&t->state, p, 0, 0, p->count, values, e);
		free(values);
	}
	return rc;
}

static int write_masters(struct trainee *t, const char *dir, int round, struct err *e)
{
	(void)dir;
	return write_all(t, round, e) || param_store_sync_params(t->state.store, round, e) ? -1 : 0;
}

static int clear_masters(struct trainee *t, const char *dir, int round, struct err *e)
{
	(void)dir;
	return train_state_clear(&t->state, e) || param_store_sync_params(t->state.store, round, e)
		       ? -1
		       : 0;
}

static int init_masters(struct trainee *t, const char *dir, int round, struct err *e)
{
	(void)dir;
	(void)round;
	return train_state_init(&t->state, pipeline_shape(t->engine), t->job.job.seed, e);
}

static int load_masters(struct trainee *t, const char *dir, int round, struct err *e)
{
	struct ckpt_state at;
	(void)round;
	return trainee_load(t, dir, &at, e);
}

static const struct writer {
	const char *name;
	int (*write)(struct trainee *t, const char *dir, int round, struct err *e);
} writers[] = {
	{ "train_state_write", write_masters },
	{ "train_state_clear", clear_masters },
	{ "train_state_init", init_masters },
	{ "train_resume", load_masters },
};

/* --- What a rank has ------------------------------------------------------------------------ */

static size_t bytes_of(const struct trainee *t)
{
	const struct catalogue *c = pipeline_catalogue(t->engine);
	return (size_t)c->units[c->n_units - 1].hi * backend_width(pipeline_backend(t->engine));
}

/* The stored form of all units, as a pass sees them. */
static int read_units(struct trainee *t, char *out, struct err *e)
{
	const struct catalogue *c = pipeline_catalogue(t->engine);
	struct backend *k = pipeline_backend(t->engine);
	size_t width = backend_width(k);
	for (int i = 0; i < c->n_units; i++) {
		const struct unit *u = &c->units[i];
		const void *at;
		if (param_store_acquire(t->state.store, i, &at, e) ||
		    backend_get(k, out + (size_t)u->lo * width, at, (size_t)(u->hi - u->lo) * width,
				e))
			return -1;
		param_store_release(t->state.store, i);
	}
	return 0;
}

/* Reads the units after a write before which nothing is in progress, and after one that comes while
 * other values are gathered. */
static int read_both(struct trainee *t, const struct course *c, const struct writer *w, int round,
		     char *calm, char *busy, struct err *e)
{
	bool failed = param_store_settle(t->state.store, e) ||
		      backend_sync(pipeline_backend(t->engine), e) ||
		      w->write(t, c->dir, round, e) || read_units(t, calm, e) ||
		      write_masters(t, c->dir, round + 1, e) || w->write(t, c->dir, round, e) ||
		      read_units(t, busy, e);
	return failed ? -1 : 0;
}

static int check_writer(struct trainee *t, const struct course *c, const struct writer *w,
			int round, struct err *e)
{
	size_t bytes = bytes_of(t);
	char *calm = calloc(2, bytes), *busy = calm + bytes;
	if (!calm)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes", 2 * bytes);
	int rc = read_both(t, c, w, round, calm, busy, e);
	for (size_t i = 0; rc == 0 && i < bytes; i++)
		if (calm[i] != busy[i])
			rc = err_set(e, ERR_INTERNAL, "%s: byte %zu of %zu is not what was written",
				     w->name, i, bytes);
	free(calm);
	return rc;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	char seed[16];
	snprintf(seed, sizeof seed, "%d", c->seed);
	setenv("MUSTER_EMULATE_SEED", seed, 1);
	trainee_device = c->staged ? 0 : comm_rank(world);
	int rc = trainee_open(&llama, &c->job, world, "cuda", 1, &t, e) ||
				 trainee_save(&t, c->dir, 1, e)
			 ? -1
			 : 0;
	for (size_t turn = 0; !rc && turn < TURNS; turn++)
		for (size_t i = 0; !rc && i < sizeof writers / sizeof *writers; i++)
			rc = check_writer(&t, c, &writers[i], (int)(4 * turn + i), e);
	trainee_close(&t);
	return rc;
}

/* Returns how many runs failed: 0 or 1. */
static int write_under_way(const char *zero, const char *dtype, bool staged, int seed)
{
	const char *words[] = { "parallel.dp=2", "job.device=cuda", zero, dtype, NULL };
	struct err e = ERR_INIT;
	struct course c = { .staged = staged, .seed = seed, .dir = "/tmp/muster-masters-XXXXXX" };
	assert_non_null(mkdtemp(c.dir));
	if (trainee_job(&llama, words, &c.job, &e))
		fail_msg("%s: %s", zero, e.text);
	int rc = world_run(RANKS, attend, &c);
	file_remove_tree(c.dir);
	print_message("    %s, %s, %s, seed %d: %s\n", zero, dtype, staged ? "staged" : "NCCL",
		      seed, rc ? "wrong" : "right");
	return rc != 0;
}

static void every_rank_gets_what_was_written_last(void **state)
{
	static const char *const zeros[] = { "parallel.zero=1", "parallel.zero=2",
					     "parallel.zero=3" };
	int wrong = 0;
	(void)state;
	for (int i = 0; i < 3; i++)
		for (int seed = 1; seed <= SEEDS; seed++) {
			wrong += write_under_way(zeros[i], "precision.dtype=fp32", true, seed);
			wrong += write_under_way(zeros[i], "precision.dtype=fp32", false, seed);
		}
	assert_int_equal(wrong, 0);
}

static void masters_that_are_copies_are_gathered_as_written(void **state)
{
	(void)state;
	assert_int_equal(write_under_way("parallel.zero=1", "precision.dtype=bf16", true, 1), 0);
	assert_int_equal(write_under_way("parallel.zero=1", "precision.dtype=bf16", false, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_gets_what_was_written_last),
		cmocka_unit_test(masters_that_are_copies_are_gathered_as_written),
	};
	return cmocka_run_group_tests_name("masters written during gathers", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"masters written during gathers")

#endif
