/*
 * cuda_course — a run of training over emulated devices, or on the CPU, that keeps what it
 * computed.
 *
 * course_of gives a course of some steps, which the test may change before course_go: the steps,
 * the folder of a checkpoint, the run folder with choices. course_go trains it in forked ranks,
 * which write into it; course_drop frees it.
 */
#ifndef MUSTER_TESTS_GPU_CUDA_COURSE_H
#define MUSTER_TESTS_GPU_CUDA_COURSE_H

#include "plan/spec/job/job.h"
#include "tests/unit/agent/tiny.h"

#include <stdbool.h>
#include <stdint.h>

enum { COURSE_STEPS = 20, COURSE_WORDS = 16 };

/* What is computed, also on the CPU, and how the device does it. */
struct cell {
	const char *name;
	const struct tiny *model;
	int steps;
	double tolerance;
	const char *math[COURSE_WORDS], *how[COURSE_WORDS];
};

struct course {
	const struct tiny *model;
	struct job job;
	const char *backend_name;
	int from, to; /* steps */
	bool late; /* steps are judged on the device, and their numbers are read one step later */
	/* where a checkpoint is written at the end, or loaded from; NULL: neither */
	const char *dir;
	double loss[COURSE_STEPS], norm[COURSE_STEPS], eval;
	double predicted, taken; /* bytes of device memory */
	/* bytes of the first rank's gradients, and those that its last step zeroed */
	int64_t gradients, zeroed;
	int64_t waits; /* of the host in that step */
	/* the run folder with choices; NULL: nothing is chosen */
	const char *run_dir;
	int fastest[2]; /* algorithm of products, on the first rank and on others */
	/* that ran on the first rank: products, and backward passes of attention by cuDNN */
	int products, by_cudnn, in_any_order;
};

/* A course of the cell on the backend "cpu" or "cuda", in memory that the ranks share. more:
 * another word of the job; NULL: none. */
struct course *course_of(const struct cell *cell, const char *backend_name, const char *more);
void course_go(struct course *c);
/* Whether losses and norms from step `from` on, and the evaluation, are the same bits. */
bool course_same_bits(const struct course *a, const struct course *b, int from);
void course_drop(struct course *c);

#endif
