/*
 * bench_comm — the parts of `muster bench comm`.
 *
 *     bench_comm.c         the command line; starts the ranks
 *     bench_comm_ops.c     the table of operations: how each is called, what its buffers hold, its
 *                          bus factor
 *     bench_comm_values.c  what the ranks put in, and what must come out
 *     bench_comm_loop.c    sizes, iterations, times: all ranks together
 *     bench_comm_print.c   nccl-tests' table, and JSON
 *     bench_comm_cross.c   --calibrate: where the fastest algorithm changes
 *     bench_comm_fit.c     --calibrate
 *
 * Every rank runs the same code with the same settings; all that steers a loop is agreed on by an
 * all-reduce.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_COMM_H
#define MUSTER_AGENT_TOOLS_BENCH_COMM_H

#include "agent/tools/crew.h"
#include "libcomm/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* --- Operations --- */

/* One call. Which fields count is the operation's matter. */
struct bench_call {
	struct comm *comm;
	const void *in;
	void *out;
	size_t count;
	enum comm_type type;
	enum comm_op redop;
	int root;
	bool async; /* started, and waited for */
};

/* a buffer of count elements; of count for each rank */
enum bench_shape { SHAPE_NONE, SHAPE_ONE, SHAPE_ALL };
enum { RANK_NONE = -2, RANK_ALL = -1 }; /* beside a rank: nobody's, everybody's reduced */

/* What a block of a rank's result is made of: the stream (values, below) of `rank`, from element
 * `offset` on. */
struct bench_source {
	int rank;
	size_t offset;
};

struct bench_op {
	const char *name;
	enum bench_shape in, out;
	bool reduces, rooted;
	bool apart, in_place; /* whether it can be called with two buffers, with one */
	double bus;           /* bus bandwidth = bus × bytes / time, */
	bool bus_share;       /* × (n - 1) / n: nccl-tests' doc/PERFORMANCE.md */
	int least_ranks;
	/* one after the other in a call, whose time is cut by them: a ping-pong has two */
	int messages;
	/* Where block `block` of the result comes from; every block of SHAPE_ALL is asked for,
	 * and block 0 of SHAPE_ONE. */
	struct bench_source (*source)(const struct bench_call *k, int block);
	int (*call)(const struct bench_call *k, struct err *e);
	int (*start)(const struct bench_call *k, struct comm_request **req, struct err *e);
};

extern const struct bench_op bench_ops[];
extern const int bench_n_ops;

/* One call, to its end. */
int bench_run(const struct bench_op *op, const struct bench_call *k, struct err *e);
double bench_bus_factor(const struct bench_op *op, int ranks);

/* nccl-tests' words. -1: no such word. */
int bench_type(const char *word);
int bench_redop(const char *word);
const char *bench_type_word(enum comm_type type);
const char *bench_redop_word(enum comm_op op);

/* --- Values --- */

/* Each rank has an endless stream of numbers, small enough that every type adds them up without
 * rounding (as long as there are at most 256 ranks) and that repeats after BENCH_PERIOD elements, a
 * prime: no block of any algorithm begins where another one does. */
enum { BENCH_PERIOD = 4093 };

struct bench_values {
	enum comm_type type;
	enum comm_op redop;
	int ranks;
};

/* data[count] = the stream of `rank` (RANK_ALL: the reduction of all streams) from element
 * `offset` on. */
void bench_fill(const struct bench_values *v, int rank, size_t offset, void *data, size_t count);
/* How many elements of data[count] are not that. */
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
	int iters, warmup;    /* iters 0: as many as `seconds` take */
	double seconds;       /* for each size and place */
	bool shared, async;   /* buffers by comm_alloc; the asynchronous forms */
	bool apart, in_place; /* which places */
	bool json;
};

enum { BENCH_BLOCKS = 5, BENCH_ITERS_MOST = 1000000 };

/* Each block's time is the slowest rank's mean over its iterations. */
struct bench_time {
	bool ran;
	double median, best; /* seconds of one operation, over blocks */
	int iters;
	uint64_t wrong; /* elements, over all ranks */
};

struct bench_row {
	const struct bench_op *op;
	size_t bytes, count;
	int root; /* -1: none */
	struct bench_time apart, in_place;
};

/* Collective. tell: called on rank 0 after each size. */
int bench_comm_loop(struct comm *world, const struct bench_comm *b,
		    void (*tell)(void *arg, const struct bench_row *row), void *arg, struct err *e);

/* --- The report --- */

struct bench_report; /* rank 0's */

int bench_report_open(const struct bench_comm *b, struct comm *world, struct bench_report **out,
		      struct err *e);
void bench_report_row(void *report, const struct bench_row *row);
/* Ends table or JSON; *wrong: how many elements were, in all. */
int bench_report_end(struct bench_report *r, uint64_t *wrong, struct err *e);
void bench_report_close(struct bench_report *r);

/* --- Calibration --- */

/* Measures with this crew's ranks and options, prints, and writes the file (NULL: the default
 * one). */
int bench_calibrate(const struct crew *crew, const char *file, struct err *e);
/* Measures each algorithm over crew's backend, and prints where the fastest one changes. */
int bench_crossovers(const struct crew *crew, struct err *e);

#endif
