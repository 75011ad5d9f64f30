/*
 * bench_ckpt — the files of `muster bench ckpt`, which compares checkpoints with plain files and
 * with a memory copy.
 *
 *     bench_ckpt.c          the command line, the places, and the tables
 *     bench_ckpt_measure.c  what the ranks do: saves, loads and copies, in turns
 *     bench_ckpt_plain.c    plain files
 *
 * The ranks are processes of this host. Each has a state of the same size, of which nothing repeats.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_CKPT_H
#define MUSTER_AGENT_TOOLS_BENCH_CKPT_H

#include "base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { BENCH_CKPT_ROUNDS = 99, BENCH_CKPT_PIECE = 4 << 20 };

/* What a round measures, each from the start of the first rank to the end of the last one. */
enum bench_ckpt_what {
	BENCH_WRITE_SAVE,     /* from the end of the stall to the commit */
	BENCH_WRITE_BUFFERED, /* plain files, through the page cache, and fsync */
	BENCH_WRITE_DIRECT,   /* plain files, O_DIRECT, and fsync */
	BENCH_READ_LOAD,
	BENCH_READ_BUFFERED,
	BENCH_READ_DIRECT,
	BENCH_STALL, /* of a save */
	BENCH_COPY,  /* a memcpy of the state into memory that is in use already */
	BENCH_CKPT_WHATS
};

/* In memory that the ranks share. */
struct bench_ckpt {
	char dir[PATH_MAX]; /* new and empty; the ranks leave nothing in it if they succeed */
	bool plain;         /* dir is a folder, so that there can be plain files */
	int ranks, rounds;
	int64_t bytes; /* of each rank; a multiple of 4096 */
	/* Results, in seconds; 0: not possible here. */
	double seconds[BENCH_CKPT_ROUNDS][BENCH_CKPT_WHATS];
	double first_stall;
};

struct bench_ckpt *bench_ckpt_shared(void); /* NULL: no memory */
void bench_ckpt_unshared(struct bench_ckpt *b);

/* Measures b->dir. */
int bench_ckpt_run(struct bench_ckpt *b, struct err *e);

/* Plain files: n bytes from or into aligned memory, in pieces of BENCH_CKPT_PIECE. A file that is
 * written is new and made durable. 1: the file system refuses O_DIRECT. */
int bench_ckpt_plain_write(const char *path, bool direct, const char *data, int64_t n,
			   struct err *e);
int bench_ckpt_plain_read(const char *path, bool direct, char *data, int64_t n, struct err *e);
/* Takes a file that is durable out of the page cache. */
void bench_ckpt_plain_drop(const char *path);

#endif
