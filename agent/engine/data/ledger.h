/*
 * ledger — what a run has consumed: ledger.jsonl in its run folder, one file for all of its
 * generations.
 *
 * Two kinds of lines, each an object:
 *     start   a generation begins, at a step and a number of samples consumed, with an order of
 *             samples and a layout {"event": "start", "generation", "step", "samples", "order":
 *             {"seed": text, "seq", "validation", "sources": [{"path", "weight", "tokens",
 *             "samples"}]}, "layout": {…}}
 *     steps   the steps [from, to) were done: sample positions [first, first + (to - from) global),
 *             and by whom {"event": "steps", "generation", "from", "to", "first", "global",
 *             "replicas": [[offset, share, digest]…]} A replica read, of each of these steps,
 *             `share` samples from the batch's position `offset` on; the digest (32 hex digits) is
 *             a chain over the steps: D = XXH3-128(D, digest of the share in that step (feed.h)),
 *             from zeros.
 *
 * Every rank keeps the digest of what it was itself fed. Before a checkpoint these come together on
 * world rank 0, which refuses to go on when two ranks of a replica were not fed the same, and
 * writes and syncs the line: whatever a checkpoint holds the ledger has, and what it does not have
 * was undone. A restart goes on from a checkpoint, so a start line takes back every line before it
 * that goes beyond its step. Lines are appended with one write each; a line that is cut (a kill, a
 * full disk) counts for nothing, and the next one begins on a line of its own.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LEDGER_H
#define MUSTER_AGENT_ENGINE_DATA_LEDGER_H

#include "agent/engine/ckpt/digest.h"
#include "agent/engine/data/data.h"
#include "base/err.h"
#include "libcomm/comm.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LEDGER_NAME "ledger.jsonl"

struct ledger_options {
	struct comm *world; /* borrowed, as is the rest */
	const char *dir;    /* the run's folder */
	uint32_t generation;
	int64_t step, samples; /* where the generation begins */
	const struct dataset *data;
	uint64_t seed;
	json_t *layout;
	int replica;           /* which this rank is of; -1: it reads nothing */
	int64_t offset, share; /* what it reads of each batch */
	int64_t global;
};

struct ledger; /* one a rank; called from one thread */

/* Opens the file on world rank 0 and writes the start line. Not collective. */
int data_ledger_open(const struct ledger_options *opt, struct ledger **out, struct err *e);
/* Tries once more to write what could not be. Takes NULL. */
void data_ledger_close(struct ledger *l);
/* A step is done, on what has this digest. */
void data_ledger_add(struct ledger *l, const struct digest *share);
/* Collective: what was added since the last time becomes durable, on rank 0. A line that cannot be
 * written is kept for the next time, or the close, and fails nothing (data_ledger_note tells);
 * ERR_CORRUPT when two ranks of a replica differ. */
int data_ledger_flush(struct ledger *l, struct err *e);
/* Why lines could not be written, once; else "". */
const char *data_ledger_note(struct ledger *l);

/* --- reading --- */

enum { LEDGER_SOURCES_MOST = 1024, LEDGER_REPLICAS_MOST = 1 << 20 };

struct ledger_replica {
	int64_t offset, share;
	struct digest digest;
};

struct ledger_line {
	bool start; /* else steps */
	int64_t generation;
	int64_t step, samples;  /* start */
	json_t *order, *layout; /* start; order has been checked: see data_ledger_sources */
	int64_t from, to, first, global; /* steps */
	struct ledger_replica *replicas;
	int n;
};

/* Reads one line. ERR_CORRUPT names the field that is missing or out of range. */
int data_ledger_parse(const char *text, size_t size, struct ledger_line *out, struct err *e);
void data_ledger_line_fini(struct ledger_line *l);
/* The sources of an order that data_ledger_parse took: how many; list[i].path borrowed. tokens
 * and samples may be NULL. */
int data_ledger_sources(const json_t *order, struct blend_source *list, int64_t *tokens,
			int64_t *samples);
/* The chain's next link. */
void data_ledger_chain(struct digest *chain, const struct digest *step);

#endif
