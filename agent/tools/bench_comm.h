/*
 * bench_comm — the files of `muster bench comm`.
 *
 *     bench_comm.c         the command line; starts the ranks
 *     bench_comm_ops.c     the table of operations: how each is called, what its buffers hold, its
 *                          bus factor
 *     bench_comm_values.c  the ranks' inputs, and the expected results
 *     bench_comm_loop.c    sizes, iterations, times: all ranks together
 *     bench_comm_print.c   nccl-tests' table, and JSON
 *     bench_comm_cross.c   --calibrate: the sizes at which the fastest algorithm changes
 *     bench_comm_fit.c     --calibrate: the fit of the planner's model
 *
 * Every rank runs the same code with the same settings. The ranks agree by an all-reduce on
 * everything that controls a loop.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_COMM_H
#define MUSTER_AGENT_TOOLS_BENCH_COMM_H

#include "agent/tools/rank_job.h"
#include "libcomm/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* --- Operations --- */

/* One call. Each operation uses only some of the fields. */
struct bench_call {
	struct comm *comm;
	const void *in;
	void *out;
	size_t count;
	enum comm_type type;
	enum comm_op redop;
	int root;
	bool async; /* started, then waited for */
};

/* a buffer of count elements; one of count elements for each rank */
enum bench_shape { SHAPE_NONE, SHAPE_ONE, SHAPE_ALL };
enum { RANK_NONE = -2, RANK_ALL = -1 }; /* instead of a rank: none; all, reduced */

/* The expected contents of a block of a rank's result: the stream (values, below) of `rank`, from
 * element `offset` on. */
struct bench_source {
	int rank;
	size_t offset;
};

struct bench_op {
	const char *name;
	enum bench_shape in, out;
	bool reduces, rooted;
	bool apart, in_place; /* whether it can be called with two buffers; with one */
	double bus;           /* bus bandwidth = bus × bytes / time, */
	bool bus_share;       /* × (n - 1) / n: nccl-tests' doc/PERFORMANCE.md */
	int least_ranks;
	/* consecutive messages in a call; its time is divided by them (2 in a ping-pong) */
	int messages;
	/* Returns the expected contents of block `block` of the result. It is called for every
	 * block of SHAPE_ALL, and for block 0 of SHAPE_ONE. */
	struct bench_source (*source)(const struct bench_call *k, int block);
	int (*call)(const struct bench_call *k, struct err *e);
	int (*start)(const struct bench_call *k, struct comm_request **req, struct err *e);
};

extern const struct bench_op bench_ops[];
extern const int bench_n_ops;

/* Runs one call until it is complete. */
int bench_run(const struct bench_op *op, const struct bench_call *k, struct err *e);
double bench_bus_factor(const struct bench_op *op, int ranks);

/* Returns the type that nccl-tests calls by this word; -1: no such type. */
int bench_type(const char *word);
int bench_redop(const char *word);
const char *bench_type_word(enum comm_type type);
const char *bench_redop_word(enum comm_op op);

/* --- Values --- */

/* Each rank has an endless stream of numbers. The numbers are so small that every type sums them
 * without rounding, for at most 256 ranks. The stream repeats after BENCH_PERIOD elements. That is
 * a prime, so the blocks of an algorithm do not begin at the same place in the stream. */
enum { BENCH_PERIOD = 4093 };

struct bench_values {
	enum comm_type type;
	enum comm_op redop;
	int ranks;
};

/* Sets data[count] to the stream of `rank` from element `offset` on. RANK_ALL: the reduction of all
 * streams. */
void bench_fill(const struct bench_values *v, int rank, size_t offset, void *data, size_t count);
/* Returns how many elements of data[count] differ from what bench_fill sets. */
size_t bench_wrong(const struct bench_values *v, int rank, size_t offset, const void *data,
		   size_t count);

/* --- The loop --- */

struct bench_comm {
	uint32_t ops;       /* a bit for each of bench_ops */
	size_t least, most; /* bytes */
	double factor;
	enum comm_type type;
	enum comm_op redop;
	int root;
	int iters, warmup;    /* iters 0: as many as fit into `seconds` */
	double seconds;       /* for each size, out of place or in place */
	bool shared, async;   /* shared: buffers by comm_alloc; async: the asynchronous forms */
	bool apart, in_place; /* whether to measure with two buffers; with one */
	bool json;
};

enum { BENCH_BLOCKS = 5, BENCH_ITERS_MAX = 1000000 };

/* Each block's time is the slowest rank's mean over its iterations. */
struct bench_time {
	bool ran;
	double median, best; /* seconds of one operation: the median and the minimum over blocks */
	int iters;
	uint64_t wrong; /* wrong elements, summed over all ranks */
};

struct bench_row {
	const struct bench_op *op;
	size_t bytes, count;
	int root; /* -1: none */
	struct bench_time apart, in_place;
};

/* Collective. report: called on rank 0 after each size. */
int bench_comm_loop(struct comm *world, const struct bench_comm *b,
		    void (*report)(void *arg, const struct bench_row *row), void *arg,
		    struct err *e);

/* --- The report --- */

struct bench_report; /* only on rank 0 */

int bench_report_open(const struct bench_comm *b, struct comm *world, struct bench_report **out,
		      struct err *e);
void bench_report_row(void *report, const struct bench_row *row);
/* Ends the table or the JSON object. Sets *wrong to the total number of wrong elements. */
int bench_report_end(struct bench_report *r, uint64_t *wrong, struct err *e);
void bench_report_close(struct bench_report *r);

/* --- Calibration --- */

/* Measures with the job's ranks and options, prints the results, and writes the file (NULL: the
 * default file). */
int bench_calibrate(const struct rank_job *job, const char *file, struct err *e);
/* Measures each algorithm over the job's backend, and prints the sizes at which the fastest
 * algorithm changes. */
int bench_crossovers(const struct rank_job *job, struct err *e);

#endif
