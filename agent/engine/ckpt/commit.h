/*
 * commit — how the ranks make one checkpoint of their snapshots, or none.
 *
 *  1. rank 0 draws a nonce, makes the attempt's folder and tells its name; every rank makes it too
 *     (its client may not see it yet).
 *  2. every rank writes its shard into it (O_EXCL), digests it from memory, fsyncs the file and the
 *     folder.
 *  3. sizes and digests go to rank 0 over the group, or the cause of a failure.
 *  4. rank 0 writes and syncs the files that are carried, proves that the slices cover every tensor
 *     once, passes the gate (ckpt.h) if there is one, writes MANIFEST (temporary, fsync, rename,
 *     fsync of the folder), renames the attempt to step-N, fsyncs DIR. A step-N that is there
 *     already is first renamed to step-N.NONCE, which is as good a checkpoint as before, so that at
 *     no moment there is none.
 *  5. rank 0 tells the outcome to all; after a success it removes what is replaced, retired and
 *     left by dead writers.
 *
 * After a failed fsync the attempt is given up; nothing is tried again.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_COMMIT_H
#define MUSTER_AGENT_ENGINE_CKPT_COMMIT_H

#include "agent/engine/ckpt/snapshot.h"
#include "libcomm/comm.h"

#include <limits.h>

struct commit {
	struct comm *group;
	const struct ckpt_io *io;
	const char *dir;
	int64_t keep;
	uint32_t generation;
	json_t *model, *layout;
	const struct ckpt_tensor *expect;
	int n_expect;
	const struct attached *carry; /* NULL: none */
	struct ckpt_state state;
	const struct ckpt_gate *gate;    /* NULL: none */
	const struct snapshot *snapshot; /* one whose take failed fails the commit */
};

/* A checkpoint that is being written. */
struct attempt {
	char name[64]; /* "" when it could not be made */
	char path[PATH_MAX];
	uint64_t nonce;
};

/* Draws a nonce and makes the attempt's folder in `dir`. */
int ckpt_attempt_make(const struct ckpt_io *io, const char *dir, int64_t step, uint32_t generation,
		      struct attempt *a, struct err *e);
/* Step 4 for an attempt whose shards are there, synced: proves the manifest, writes it, renames
 * the attempt to step-N. */
int ckpt_attempt_publish(const struct ckpt_io *io, const char *dir, const struct attempt *a,
			 const struct manifest *m, char path[1024], struct err *e);

/* Collective; the same result on every rank, but for the errors of the group itself. On rank 0
 * fills path, bytes, step and note of the report. */
int ckpt_commit_snapshots(const struct commit *c, struct ckpt_report *report, struct err *e);

/* Tells rank 0's outcome to all: each rank returns it. Collective. */
int ckpt_commit_share_result(struct comm *group, int rc, struct err *e);

#endif
