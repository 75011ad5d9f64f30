/*
 * bench_rig — the kernels' operations as training calls them, with their arrays, for those who time
 * them: bench_ops.c on processors, bench_chip.c on GPUs.
 *
 * Operands follow one another through `arena` bytes of each kind of memory, and then begin again.
 * So they come partly from beyond the caches, as in a training step. Inputs are never written, so
 * their numbers stay what they were: infinite and subnormal numbers, which training does not
 * produce, can take longer.
 *
 * Where an op has several forms, the first call of a size chooses by measurement, as training does
 * (base/choices.h).
 *
 * To measure an op, add its call and its row to the table of bench_rig.c, and its sizes to the
 * tables of bench_ops.c and bench_chip_ops.c.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_RIG_H
#define MUSTER_AGENT_TOOLS_BENCH_RIG_H

#include "kernels/ops.h"
#include "plan/cost/measured.h"

enum bench_arena { BENCH_INPUT, BENCH_OUTPUT, BENCH_INPUT_FP32, BENCH_OUTPUT_FP32, BENCH_ARENAS };
enum { BENCH_ROPE_DIM = 32 };

struct bench_rig {
	struct backend *backend;
	const struct ops *ops;
	int64_t width;
	size_t arena; /* bytes of each */
	char *arenas[BENCH_ARENAS];
	size_t at[BENCH_ARENAS];
	int64_t tokens; /* the most rows of rope and of cross-entropy */
	int32_t *ids;
	float *cos, *sin;             /* of angle 0 */
	double *sum;                  /* so that the results are used */
	struct step_numbers *numbers; /* of the optimizer and of cross-entropy */
	bool sets; /* weight gradients are set, as by the first micro-batch, and not added to */
	/* for products of 8-bit numbers; NULL: there are none */
	uint8_t *eight;
	struct fp8_scale *scale;
};

struct bench_rig_setup {
	const char *backend;
	int threads, device;
	size_t arena;
	int64_t tokens;
	bool eight;
	/* The pattern that fills all arenas. Its numbers are those of `fill`. */
	void (*fill)(float *x, int64_t n);
};

/* Close it in any case; r is zeroed before. */
int bench_rig_open(struct bench_rig *r, const struct bench_rig_setup *s, struct err *e);
void bench_rig_close(struct bench_rig *r);

/* Queues one operation and returns its work, as its class counts it. d: tokens, in, out; for
 * attention: heads, dim, length; for others: rows, columns. */
typedef double bench_run_fn(struct bench_rig *r, const int64_t *d);
bench_run_fn *bench_rig_run(enum rate_class class);
/* Products of 8-bit numbers in one of their three forms; their operands were cast before. */
double bench_rig_eight(struct bench_rig *r, enum rate_class form, const int64_t *d);

#endif
