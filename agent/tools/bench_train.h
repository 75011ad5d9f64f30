/*
 * bench_train — the timed steps of one job on several processes; `muster bench step` compares
 * them.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_TRAIN_H
#define MUSTER_AGENT_TOOLS_BENCH_TRAIN_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/step_time.h"

#include <stdint.h>

enum { BENCH_STEPS_MAX = 1000 };

struct bench_train {
	struct job job;
	int ranks;
	int64_t steps, warmup;
	/* Measured by rank 0; peak_bytes is that of the rank with the most memory. */
	double seconds[BENCH_STEPS_MAX], loss;
	int64_t peak_bytes;
	/* times per step: means over steps and ranks; the wait for the pipeline is the bubble */
	struct plan_time parts;
	double gemm; /* the result of bench_train_gemm */
};

/* `in` must be in memory that forked processes share (bench_train_shared). Trains on random tokens
 * of the job's vocabulary. */
int bench_train_run(struct bench_train *in, struct err *e);

/* Measures FLOP/s of square matrix products in one process of `threads` threads, into b->gemm. */
int bench_train_gemm(struct bench_train *b, int threads, int64_t size, double seconds,
		     struct err *e);

struct bench_train *bench_train_shared(int n); /* NULL: no memory */
void bench_train_unshared(struct bench_train *b, int n);

#endif
