/*
 * ledger_lines — the lines of ledger.jsonl. The tables below list all fields.
 *
 *     head    The first line of each file; files of older versions of muster have none.
 *     start   A generation begins at a step and a number of consumed samples, with an order of
 *             samples and a layout. Its position in the order is samples + skipped.
 *     skip    The generation does not read the positions [first, first + count). These lines follow
 *             the start line. A skip counts once steps have passed it.
 *     steps   The steps [from, to) were done. They read (to - from) global sample positions from
 *             `first` on, without those that the generation skips. In each of these steps a replica
 *             read `share` samples, beginning at the batch's position `offset`. The digest (32 hex
 *             digits) is a chain over the steps:
 *             D = XXH3-128(D, digest of the share in that step (feed.h)), from zeros.
 *
 * A steps line with `pieces` was merged from several steps lines that continued each other
 * (ledger_merge.h). Each piece is one of these lines. The digest is then a chain over the digests of
 * the pieces: D = XXH3-128(D, digest of the piece), from zeros. So it proves what the digests of the
 * pieces proved. A restart may undo the last pieces; the digest still covers them.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LEDGER_LINES_H
#define MUSTER_AGENT_ENGINE_DATA_LEDGER_LINES_H

#include "agent/engine/ckpt/format/digest.h"
#include "agent/engine/data/data.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/fields.h"
#include "base/ranges.h"
#include "base/run_paths.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LEDGER_NAME   RUN_LEDGER
#define LEDGER_FORMAT "muster/ledger"

/* A change that an older reader would misread increments it; new fields do not. */
enum { LEDGER_VERSION = 1 };

/* clang-format off */

#define LEDGER_HEAD_FIELDS(F) \
	F(format,     TEXT,   REQUIRED, "muster/ledger") \
	F(version,    INT,    REQUIRED, "the version of the format; a reader refuses a higher one than it knows") \
	F(time,       NUMBER, REQUIRED, "when the file began or its lines were merged, in seconds since 1970") \
	F(mono,       NUMBER, REQUIRED, "the same in seconds of the monotonic clock") \
	F(generation, COUNT,  REQUIRED, "the generation that wrote the line") \
	F(holds,      COUNT,  OPTIONAL, "of a part whose lines are merged: it holds the lines of the parts from this number to its own; " \
	                                "skip these parts if they still exist")

#define LEDGER_START_FIELDS(F) \
	F(event,      TEXT,  REQUIRED, "start") \
	F(generation, COUNT, REQUIRED, "the generation") \
	F(step,       COUNT, REQUIRED, "finished steps where it begins; it undoes all steps of earlier lines beyond it") \
	F(samples,    COUNT, REQUIRED, "samples that were consumed before") \
	F(skipped,    COUNT, OPTIONAL, "samples that were skipped before; absent: none") \
	F(order,      JSON,  REQUIRED, "the order of the samples: `seed` (text), `seq`, `validation`, and `sources`, a list of objects with " \
	                               "`path`, `weight`, `tokens` and `samples`") \
	F(layout,     JSON,  REQUIRED, "the layout of the generation")

#define LEDGER_SKIP_FIELDS(F) \
	F(event,      TEXT,  REQUIRED, "skip") \
	F(generation, COUNT, REQUIRED, "the generation") \
	F(first,      COUNT, REQUIRED, "the first position of the order that it does not read") \
	F(count,      COUNT, REQUIRED, "how many positions") \
	F(reason,     LINE,  REQUIRED, "why")

#define LEDGER_STEPS_FIELDS(F) \
	F(event,      TEXT,  REQUIRED, "steps") \
	F(generation, COUNT, REQUIRED, "the generation") \
	F(from,       COUNT, REQUIRED, "finished steps before the line") \
	F(to,         COUNT, REQUIRED, "finished steps after it") \
	F(first,      COUNT, REQUIRED, "the position in the order of the first sample") \
	F(global,     COUNT, REQUIRED, "samples of a batch") \
	F(pieces,     JSON,  OPTIONAL, "of a merged line: a list of `[steps, count]`: `count` lines of so many steps, in their order") \
	F(replicas,   JSON,  REQUIRED, "a list of `[offset, share, digest]`: of each batch the replica read `share` samples from `offset` on; " \
	                               "the digest proves their tokens")

/* clang-format on */

struct ledger_head {
	LEDGER_HEAD_FIELDS(FIELDS_MEMBER)
};

struct ledger_start {
	LEDGER_START_FIELDS(FIELDS_MEMBER)
};

struct ledger_skip_line {
	LEDGER_SKIP_FIELDS(FIELDS_MEMBER)
};

enum { LEDGER_SOURCES_MAX = 1024, LEDGER_REPLICAS_MAX = 1 << 20, LEDGER_PIECES_MAX = 1 << 16 };

struct ledger_replica {
	int64_t offset, share;
	struct digest digest;
};

struct ledger_piece {
	int64_t steps, count; /* `count` pieces of so many steps each */
};

enum ledger_kind { LEDGER_HEAD, LEDGER_START, LEDGER_SKIP, LEDGER_STEPS };

struct ledger_line {
	enum ledger_kind kind;
	int64_t version, holds; /* head; holds: 0 if the line has none */
	int64_t generation;
	int64_t step, samples, skipped; /* start */
	json_t *order, *layout;         /* start; the order is checked: see data_ledger_sources */
	int64_t first;                  /* steps, skip */
	int64_t count;                  /* skip */
	char *reason;                   /* skip */
	int64_t from, to, global;       /* steps */
	int64_t end;   /* steps: the position after the last sample; an audit sets it */
	int64_t whole; /* steps: `to` as in the line; an audit lowers `to` if pieces are undone */
	struct ledger_replica *replicas;
	int n;
	struct ledger_piece *pieces; /* steps; NULL: the line was not merged */
	int n_pieces;
};

/* Parses one line. ERR_CORRUPT names the field that is missing or out of range. */
int data_ledger_parse(const char *text, size_t size, struct ledger_line *out, struct err *e);
void data_ledger_line_fini(struct ledger_line *l);
/* ERR_UNSUPPORTED: a newer muster wrote the file that has this head. */
int data_ledger_check(const struct ledger_line *head, struct err *e);
/* The last end of a piece of a steps line that is not beyond the step; `from` if there is none. */
int64_t data_ledger_cut(const struct ledger_line *l, int64_t step);
/* Lists the sources of an order that data_ledger_parse accepted and returns their number.
 * list[i].path is borrowed; tokens and samples may be NULL. */
int data_ledger_sources(const json_t *order, struct blend_source *list, int64_t *tokens,
			int64_t *samples);
/* Adds the digest of a step, or of a piece, to the chain. */
void data_ledger_chain(struct digest *chain, const struct digest *next);

/* Appends a line with its newline. ERR_NOMEM. The head gets the version and the time; holds: 0 if it
 * has none. */
int data_ledger_write_head(struct buf *out, int64_t generation, int64_t holds, struct err *e);
int data_ledger_write_start(struct buf *out, struct ledger_start *start, struct err *e);
int data_ledger_write_skip(struct buf *out, struct ledger_skip_line *skip, struct err *e);
/* Writes generation, from, to, first, global, replicas and pieces. */
int data_ledger_write_steps(struct buf *out, const struct ledger_line *l, struct err *e);

#endif
