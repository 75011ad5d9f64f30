/*
 * ledger_parts — the files of a ledger: ledger.<n>.jsonl and ledger.jsonl (base/segments.h).
 *
 * Whoever appends to ledger.jsonl holds a shared lock on it. Only who holds it alone may make it the
 * next part: agents of a dead generation may still write, and their lines must not get lost. Where
 * the file system has no locks, the file is never split.
 *
 * Complete parts are merged (ledger_merge.h), one at a time: the new part also takes in the lines of
 * the merged part before it, unless that one is long. Its head names the parts that it holds. It is
 * written beside the old one, synced, and put in its place by one rename; only then the parts that it
 * holds are removed. So after a crash each line is in the parts that count exactly once. A part is
 * locked while it is merged, so two processes never merge the same one.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LEDGER_PARTS_H
#define MUSTER_AGENT_ENGINE_DATA_LEDGER_PARTS_H

#include "agent/engine/data/ledger_lines.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Opens ledger.jsonl of the run folder to append to it, and creates it if it is missing. *locked:
 * whether the file system has locks. ERR_UNSUPPORTED: a newer muster wrote it. */
int data_ledger_open_file(const char *run, int *fd, bool *locked, struct err *e);
/* Makes the file that is open as `fd` the next part. `fd` then is a new ledger.jsonl, which is
 * locked as well. Everything is durable. Returns false, and leaves everything as it was, if it
 * cannot. */
bool data_ledger_split(const char *run, int fd);

struct ledger_merging {
	const char *run; /* borrowed */
	int64_t generation;
	off_t most;       /* a merged part that is longer takes no more lines */
	atomic_bool stop; /* set by another thread: data_ledger_merge_parts() returns soon */
	int merged;       /* parts */
};

/* Merges the complete parts that are not merged yet. Any thread. On an error the old parts are
 * there still. */
int data_ledger_merge_parts(struct ledger_merging *m, struct err *e);

/* Appends the lines of all parts and of ledger.jsonl. Another process may write, split and merge
 * meanwhile. ERR_NOTFOUND: there is no ledger. */
int data_ledger_slurp(const char *run, size_t most, struct buf *out, struct err *e);

#endif
