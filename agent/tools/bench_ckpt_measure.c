/* bench_ckpt: what the ranks do. */
#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/storage/pages.h"
#include "agent/engine/ckpt/storage/storage.h"
#include "agent/tools/bench_ckpt.h"
#include "agent/tools/rank_job.h"
#include "base/clock.h"
#include "base/numbers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COLUMNS = 1024, ROWS_MOST = 4096, TIMEOUT_S = 600 };

/* The state of one rank. */
struct saver {
	struct bench_ckpt *b;
	struct comm *world;
	float *data, *other; /* the state, and what is copied or loaded */
	struct ckpt_tensor *tensors, *back;
	int n;
	json_t *model, *layout;
	struct ckpt_writer *writer;
	struct ckpt_state state;
	double *seconds; /* of this round */
	char plain[PATH_MAX + 32];
	char path[1024]; /* of the checkpoint */
};

struct bench_ckpt *bench_ckpt_shared(void)
{
	void *p = mmap(NULL, sizeof(struct bench_ckpt), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void bench_ckpt_unshared(struct bench_ckpt *b)
{
	if (b)
		munmap(b, sizeof *b);
}

/* --- the state --- */

/* Finite numbers of which nothing repeats: no storage can compress them or leave them out. */
static void fill(float *data, int64_t n, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
	for (int64_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		uint32_t bits = ((uint32_t)(x >> 32) & 0x80ffffff) | 0x3e000000;
		memcpy(&data[i], &bits, sizeof bits);
	}
}

static void list_tensors(struct ckpt_tensor *list, int n, int64_t rows, int rank, float *data)
{
	for (int i = 0; i < n; i++) {
		int64_t count = min_int64(ROWS_MOST, rows - (int64_t)i * ROWS_MOST);
		list[i] = (struct ckpt_tensor){ .dims = 2,
						.shape = { count, COLUMNS },
						.hi = { count, COLUMNS },
						.data = data + (int64_t)i * ROWS_MOST * COLUMNS };
		snprintf(list[i].name, sizeof list[i].name, "bench.%d.%d", rank, i);
	}
}

static int make_state(struct saver *s, struct err *e)
{
	int64_t rows = s->b->bytes / (int64_t)(COLUMNS * sizeof(float));
	int rank = comm_rank(s->world);
	s->n = (int)((rows + ROWS_MOST - 1) / ROWS_MOST);
	s->data = ckpt_pages_alloc((size_t)s->b->bytes);
	s->other = ckpt_pages_alloc((size_t)s->b->bytes);
	s->tensors = calloc((size_t)s->n, sizeof *s->tensors);
	s->back = calloc((size_t)s->n, sizeof *s->back);
	s->model = json_pack("{s:s}", "family", "bench");
	s->layout = json_object();
	if (!s->data || !s->other || !s->tensors || !s->back || !s->model || !s->layout)
		return err_set(e, ERR_NOMEM,
			       "no memory for a state of %" PRId64 " bytes; use a smaller --size",
			       s->b->bytes);
	fill(s->data, rows * COLUMNS, (uint64_t)rank + 1);
	memset(s->other, 1, (size_t)s->b->bytes);
	list_tensors(s->tensors, s->n, rows, rank, s->data);
	list_tensors(s->back, s->n, rows, rank, s->other);
	snprintf(s->plain, sizeof s->plain, "%s/plain-%d", s->b->dir, rank);
	return 0;
}

static int open_writer(struct saver *s, struct err *e)
{
	const struct ckpt_options opt = {
		.dir = s->b->dir, .generation = 1, .model = s->model, .layout = s->layout
	};
	return ckpt_writer_open(s->world, &opt, &s->writer, e);
}

static void close_saver(struct saver *s)
{
	ckpt_writer_close(s->writer);
	json_decref(s->model);
	json_decref(s->layout);
	free(s->tensors);
	free(s->back);
	free(s->data);
	free(s->other);
}

/* --- the measurements --- */

/* Sets the longest time of all ranks. */
static int note(struct saver *s, enum bench_ckpt_what what, double seconds, struct err *e)
{
	if (comm_all_reduce(s->world, &seconds, &seconds, 1, COMM_F64, COMM_MAX, e))
		return -1;
	if (comm_rank(s->world) == 0)
		s->seconds[what] = seconds;
	return 0;
}

static int save(struct saver *s, struct err *e)
{
	struct ckpt_report report = { 0 };
	s->state.step++;
	for (int i = 0; i < s->n; i++) /* or it would be linked to the checkpoint before */
		s->tensors[i].data[0] = (float)s->state.step;
	double began = clock_s();
	if (ckpt_save(s->writer, &s->state, s->tensors, s->n, e))
		return -1;
	double stalled = clock_s();
	if (ckpt_wait(s->writer, e))
		return -1;
	double ended = clock_s();
	ckpt_committed(s->writer, &report);
	if (note(s, BENCH_STALL, stalled - began, e) ||
	    note(s, BENCH_WRITE_SAVE, ended - stalled, e))
		return -1;
	return comm_broadcast(s->world, report.path, sizeof report.path, COMM_U8, 0, e) ||
			       snprintf(s->path, sizeof s->path, "%s", report.path) < 0
		       ? -1
		       : 0;
}

static int write_plain(struct saver *s, bool direct, struct err *e)
{
	double began = clock_s();
	int rc = bench_ckpt_plain_write(s->plain, direct, (const char *)s->data, s->b->bytes, e);
	if (rc < 0)
		return -1;
	return note(s, direct ? BENCH_WRITE_DIRECT : BENCH_WRITE_BUFFERED,
		    rc ? 0 : clock_s() - began, e);
}

static int write_buffered(struct saver *s, struct err *e)
{
	return write_plain(s, false, e);
}

static int write_direct(struct saver *s, struct err *e)
{
	return write_plain(s, true, e);
}

/* What has been loaded must be what was saved. */
static int load(struct saver *s, struct err *e)
{
	const struct ckpt_load_options opt = { .path = s->path, .model = s->model };
	struct ckpt_state state;
	int culprit = -1;
	char shard[PATH_MAX];
	snprintf(shard, sizeof shard, "%s/shard-%05d.safetensors", s->path, comm_rank(s->world));
	if (s->b->plain)
		bench_ckpt_plain_drop(shard);
	if (comm_barrier(s->world, e))
		return -1;
	double began = clock_s();
	if (ckpt_load_all(s->world, &opt, &state, s->back, s->n, &culprit, e))
		return -1;
	double seconds = clock_s() - began;
	if (memcmp(s->data, s->other, (size_t)s->b->bytes))
		return err_set(e, ERR_CORRUPT, "%s: what was loaded is not what was saved",
			       s->path);
	return note(s, BENCH_READ_LOAD, seconds, e);
}

static int read_plain(struct saver *s, bool direct, struct err *e)
{
	bench_ckpt_plain_drop(s->plain);
	if (comm_barrier(s->world, e))
		return -1;
	double began = clock_s();
	int rc = bench_ckpt_plain_read(s->plain, direct, (char *)s->other, s->b->bytes, e);
	if (rc < 0)
		return -1;
	return note(s, direct ? BENCH_READ_DIRECT : BENCH_READ_BUFFERED, rc ? 0 : clock_s() - began,
		    e);
}

static int read_buffered(struct saver *s, struct err *e)
{
	return read_plain(s, false, e);
}

static int read_direct(struct saver *s, struct err *e)
{
	return read_plain(s, true, e);
}

static int copy(struct saver *s, struct err *e)
{
	double began = clock_s();
	memcpy(s->other, s->data, (size_t)s->b->bytes);
	return note(s, BENCH_COPY, clock_s() - began, e);
}

/* --- rounds --- */

struct measurement {
	int (*measure)(struct saver *s, struct err *e);
	bool plain;
};

/* A row is done in turns: each round begins with the next measurement of it. */
static const struct measurement writes[] = { { save, false },
					     { write_buffered, true },
					     { write_direct, true },
					     { copy, false } },
				reads[] = { { load, false },
					    { read_buffered, true },
					    { read_direct, true } };

static int do_row(struct saver *s, const struct measurement *row, int n, int round, struct err *e)
{
	for (int i = 0; i < n; i++) {
		const struct measurement *m = &row[(i + round) % n];
		if (m->plain && !s->b->plain)
			continue;
		if (comm_barrier(s->world, e) || m->measure(s, e))
			return -1;
	}
	return 0;
}

static int remove_files(struct saver *s, struct err *e)
{
	const struct ckpt_storage *storage = ckpt_storage_of(s->path);
	if (s->b->plain)
		unlink(s->plain);
	if (comm_barrier(s->world, e))
		return -1;
	return comm_rank(s->world) == 0 ? storage->ops->remove(storage, s->path, e) : 0;
}

/* The first round is not counted, but for the stall of its save. */
static int measure_rounds(struct saver *s, struct err *e)
{
	double warmup[BENCH_CKPT_WHATS] = { 0 };
	for (int round = -1; round < s->b->rounds; round++) {
		s->seconds = round < 0 ? warmup : s->b->seconds[round];
		if (do_row(s, writes, sizeof writes / sizeof *writes, round + 1, e) ||
		    do_row(s, reads, sizeof reads / sizeof *reads, round + 1, e) ||
		    remove_files(s, e))
			return -1;
		if (round < 0 && comm_rank(s->world) == 0)
			s->b->first_stall = warmup[BENCH_STALL];
	}
	return 0;
}

static int work(struct comm *world, void *arg, struct err *e)
{
	struct saver *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory to measure checkpoints");
	s->b = arg;
	s->world = world;
	s->state.total_steps = BENCH_CKPT_ROUNDS;
	int rc = make_state(s, e) || open_writer(s, e);
	if (!rc) {
		/* Training has time for this before its first save. */
		ckpt_writer_prepare(s->writer, s->tensors, s->n);
		rc = ckpt_wait(s->writer, e) || measure_rounds(s, e);
	}
	close_saver(s);
	free(s);
	return rc ? -1 : 0;
}

int bench_ckpt_run(struct bench_ckpt *b, struct err *e)
{
	const struct rank_job job = {
		.ranks = b->ranks, .comm = { .timeout_s = TIMEOUT_S }, .work = work, .arg = b
	};
	return tool_rank_job_fork(&job, e);
}
