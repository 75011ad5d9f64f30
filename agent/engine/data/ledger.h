/*
 * ledger — the samples that a run has consumed: ledger.jsonl in its run folder, one file for all
 * generations.
 *
 * There are three kinds of lines; each is an object:
 *     start   A generation begins at a step and a number of consumed samples, with an order of
 *             samples and a layout:
 *             {"event": "start", "generation", "step", "samples", "skipped", "order": {"seed":
 *             text, "seq", "validation", "sources": [{"path", "weight", "tokens", "samples"}]},
 *             "layout": {…}}
 *             Its position in the order is samples + skipped. "skipped" may be absent: none.
 *     skip    The generation does not read the positions [first, first + count):
 *             {"event": "skip", "generation", "first", "count", "reason": text}
 *             These lines follow the start line. A skip counts once steps have passed it.
 *     steps   The steps [from, to) were done. They read (to - from) global sample positions from
 *             `first` on, without those that the generation skips:
 *             {"event": "steps", "generation", "from", "to", "first", "global",
 *             "replicas": [[offset, share, digest]…]}
 *             In each of these steps a replica read `share` samples, beginning at the batch's
 *             position `offset`. The digest (32 hex digits) is a chain over the steps:
 *             D = XXH3-128(D, digest of the share in that step (feed.h)), from zeros.
 *
 * Every rank keeps the digest of the samples that it read. Before a checkpoint, world rank 0
 * gathers the digests, fails if two ranks of a replica read different samples, and writes and syncs
 * the line. So the ledger has every step that a checkpoint holds, and a step that is missing in the
 * ledger was undone. A restart continues from a checkpoint, so a start line undoes every earlier
 * line beyond its step. Each line is appended with one write. A truncated line (after a kill, or on
 * a full disk) is ignored, and the next one begins on a new line.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LEDGER_H
#define MUSTER_AGENT_ENGINE_DATA_LEDGER_H

#include "agent/engine/ckpt/format/digest.h"
#include "agent/engine/data/data.h"
#include "base/err.h"
#include "base/ranges.h"
#include "libcomm/comm.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LEDGER_NAME "ledger.jsonl"

struct ledger_skip {
	int64_t first, count; /* positions */
	const char *reason;   /* for people; UTF-8 */
};

struct ledger_options {
	struct comm *world; /* borrowed, like every pointer here */
	const char *dir;    /* the run's folder */
	uint32_t generation;
	int64_t step, samples;           /* where the generation begins */
	int64_t skipped;                 /* samples that were skipped before */
	const struct ledger_skip *skips; /* of the generation; of data.skip and of rollbacks */
	int n_skips;
	const struct dataset *data;
	uint64_t seed;
	json_t *layout;
	int replica;           /* of this rank; -1: it reads no samples */
	int64_t offset, share; /* its part of each batch */
	int64_t global;
};

struct ledger; /* one per rank; called from one thread */

/* Opens the file on world rank 0 and writes the start line. Not collective. */
int data_ledger_open(const struct ledger_options *opt, struct ledger **out, struct err *e);
/* Retries the lines that could not be written. Takes NULL. */
void data_ledger_close(struct ledger *l);
/* Adds a finished step, whose share has this digest. */
void data_ledger_add(struct ledger *l, const struct digest *share);
/* Collective. Writes the steps that were added since the last call, on rank 0; sync: it also makes them
 * durable. A line that
 * cannot be written is kept for the next call or the close, and is no error (data_ledger_note
 * explains it). ERR_CORRUPT: two ranks of a replica read different samples. */
int data_ledger_flush(struct ledger *l, bool sync, struct err *e);
/* Makes what was written durable. Any thread, until the close. */
int data_ledger_sync(const struct ledger *l, struct err *e);
/* Why lines could not be written, once; otherwise "". */
const char *data_ledger_note(struct ledger *l);

/* --- reading --- */

enum { LEDGER_SOURCES_MAX = 1024, LEDGER_REPLICAS_MAX = 1 << 20 };

struct ledger_replica {
	int64_t offset, share;
	struct digest digest;
};

enum ledger_kind { LEDGER_START, LEDGER_SKIP, LEDGER_STEPS };

struct ledger_line {
	enum ledger_kind kind;
	int64_t generation;
	int64_t step, samples, skipped; /* start */
	json_t *order, *layout;         /* start; the order is checked: see data_ledger_sources */
	int64_t first;                  /* steps, skip */
	int64_t count;                  /* skip */
	char *reason;                   /* skip */
	int64_t from, to, global;       /* steps */
	int64_t end; /* steps: the position after the last sample; an audit sets it */
	struct ledger_replica *replicas;
	int n;
};

/* Parses one line. ERR_CORRUPT names the field that is missing or out of range. */
int data_ledger_parse(const char *text, size_t size, struct ledger_line *out, struct err *e);
void data_ledger_line_fini(struct ledger_line *l);
/* Lists the sources of an order that data_ledger_parse accepted and returns their number.
 * list[i].path is borrowed; tokens and samples may be NULL. */
int data_ledger_sources(const json_t *order, struct blend_source *list, int64_t *tokens,
			int64_t *samples);
/* Adds a step's digest to the chain. */
void data_ledger_chain(struct digest *chain, const struct digest *step);

#endif
