/*
 * Prints nccl-tests' table, with a line per size as soon as it is measured, or one JSON object at
 * the end.
 */
#include "agent/tools/bench_comm.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_report {
	const struct bench_comm *b;
	int ranks;
	const char *backend;
	json_t *rows;   /* NULL without --json */
	const char *op; /* of the last line */
	double bus;     /* sum of the bus bandwidths of so many lines */
	int lines;
	uint64_t wrong;
};

int bench_report_open(const struct bench_comm *b, struct comm *world, struct bench_report **out,
		      struct err *e)
{
	struct bench_report *r = calloc(1, sizeof *r);
	if (!r || (b->json && !(r->rows = json_array()))) {
		free(r);
		return err_set(e, ERR_NOMEM, "no memory for the report");
	}
	r->b = b;
	r->ranks = comm_size(world);
	r->backend = comm_backend(world);
	if (!b->json)
		printf("# muster bench comm: %d rank%s, %s%s%s; times are medians of %d blocks, of "
		       "each the slowest rank\n",
		       r->ranks, human_s(r->ranks), r->backend, b->shared ? ", shared buffers" : "",
		       b->async ? ", asynchronous" : "", BENCH_BLOCKS);
	fflush(stdout);
	*out = r;
	return 0;
}

static double rate(double bytes, double seconds)
{
	return seconds > 0 ? bytes / seconds : 0;
}

/* --- The table --- */

static void print_head(const struct bench_report *r, const struct bench_row *row)
{
	if (r->op)
		printf("#\n");
	printf("# %s\n", row->op->name);
	printf("# %11s  %12s  %8s  %5s  %4s  %35s  %35s\n", "", "", "", "", "",
	       "out-of-place            ", "in-place              ");
	printf("# %11s  %12s  %8s  %5s  %4s  %9s %8s %8s %6s   %9s %8s %8s %6s\n", "size", "count",
	       "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
	       "busbw", "#wrong");
	printf("# %11s  %12s  %8s  %5s  %4s  %9s %8s %8s %6s   %9s %8s %8s %6s\n", "(B)",
	       "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
	       "");
}

static void print_place(const struct bench_report *r, const struct bench_row *row,
			const struct bench_time *t)
{
	double alg = rate((double)row->bytes, t->median) / 1e9, us = t->median * 1e6;
	if (t->ran)
		printf("  %9.*f %8.2f %8.2f %6" PRIu64 " ",
		       us < 1e4   ? 2
		       : us < 1e6 ? 1
				  : 0,
		       us, alg, alg * bench_bus_factor(row->op, r->ranks), t->wrong);
	else
		printf("  %9s %8s %8s %6s ", "-", "-", "-", "-");
}

static void print_row(struct bench_report *r, const struct bench_row *row)
{
	if (r->op != row->op->name)
		print_head(r, row);
	r->op = row->op->name;
	printf("%13zu  %12zu  %8s  %5s  %4d", row->bytes, row->count, bench_type_word(r->b->type),
	       row->op->reduces ? bench_redop_word(r->b->redop) : "none", row->root);
	print_place(r, row, &row->apart);
	print_place(r, row, &row->in_place);
	printf("\n");
	fflush(stdout);
}

/* --- JSON --- */

static json_t *json_place(const struct bench_report *r, const struct bench_row *row,
			  const struct bench_time *t)
{
	double alg = rate((double)row->bytes, t->median);
	if (!t->ran)
		return json_null();
	return json_pack("{s:f, s:f, s:f, s:f, s:i, s:I}", "time_s", t->median, "best_s", t->best,
			 "algbw", alg, "busbw", alg * bench_bus_factor(row->op, r->ranks),
			 "iterations", t->iters, "wrong", (json_int_t)t->wrong);
}

static json_t *json_row(const struct bench_report *r, const struct bench_row *row)
{
	return json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:o, s:o}", "op", row->op->name, "bytes",
			 (json_int_t)row->bytes, "count", (json_int_t)row->count, "type",
			 bench_type_word(r->b->type), "redop",
			 row->op->reduces ? bench_redop_word(r->b->redop) : "none", "root",
			 row->root, "out_of_place", json_place(r, row, &row->apart), "in_place",
			 json_place(r, row, &row->in_place));
}

/* --- Both --- */

static void count_place(struct bench_report *r, const struct bench_row *row,
			const struct bench_time *t)
{
	if (!t->ran)
		return;
	r->wrong += t->wrong;
	if (!row->bytes) /* a barrier has no bandwidth */
		return;
	r->bus += rate((double)row->bytes, t->median) * bench_bus_factor(row->op, r->ranks);
	r->lines++;
}

void bench_report_row(void *report, const struct bench_row *row)
{
	struct bench_report *r = report;
	count_place(r, row, &row->apart);
	count_place(r, row, &row->in_place);
	if (r->rows)
		json_array_append_new(r->rows, json_row(r, row));
	else
		print_row(r, row);
}

int bench_report_end(struct bench_report *r, uint64_t *wrong, struct err *e)
{
	double mean = r->lines ? r->bus / r->lines : 0;
	*wrong = r->wrong;
	if (r->rows)
		return tool_print_json(&tool_bench_comm,
				       json_pack("{s:i, s:i, s:s, s:b, s:b, s:O, s:I, s:f}",
						 "version", 1, "ranks", r->ranks, "backend",
						 r->backend, "shared", (int)r->b->shared, "async",
						 (int)r->b->async, "results", r->rows, "wrong",
						 (json_int_t)r->wrong, "mean_busbw", mean)) ==
				       TOOL_OK
			       ? 0
			       : err_set(e, ERR_IO, "the report could not be printed");
	printf("# wrong elements: %" PRIu64 "%s\n# mean bus bandwidth: %.3f GB/s\n", r->wrong,
	       r->wrong ? " FAILED" : " OK", mean / 1e9);
	return fflush(stdout) || ferror(stdout)
		       ? err_errno(e, ERR_IO, "the table could not be printed")
		       : 0;
}

void bench_report_close(struct bench_report *r)
{
	if (!r)
		return;
	json_decref(r->rows);
	free(r);
}
