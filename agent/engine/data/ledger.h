/*
 * ledger — writes the samples that a run has consumed: ledger.jsonl in its run folder, for all
 * generations. ledger_lines.h describes its lines.
 *
 * Every rank keeps the digest of the samples that it read. Before a checkpoint, world rank 0
 * gathers the digests, fails if two ranks of a replica read different samples, and writes and syncs
 * the line. So the ledger has every step that a checkpoint holds, and a step that is missing in the
 * ledger was undone. A restart continues from a checkpoint, so a start line undoes every earlier
 * line beyond its step. Each line is appended with one write. A truncated line (after a kill, or on
 * a full disk) is ignored, and the next one begins on a new line.
 *
 * At `split` bytes the file becomes ledger.<n>.jsonl (base/segments.h), and a thread of rank 0 merges
 * the lines of the complete parts (ledger_parts.h). So the files stay small, however long the run is.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LEDGER_H
#define MUSTER_AGENT_ENGINE_DATA_LEDGER_H

#include "agent/engine/ckpt/format/digest.h"
#include "agent/engine/data/data.h"
#include "agent/engine/data/ledger_lines.h"
#include "base/err.h"
#include "libcomm/comm.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

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
	int64_t split; /* bytes; 0: LEDGER_SPLIT */
};

/* About a day of checkpoints every 10 minutes of 1,000 replicas. */
enum { LEDGER_SPLIT = 8 << 20 };

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

#endif
