/*
 * commit — turns the snapshots of all ranks into one checkpoint, or into nothing.
 *
 *  1. Rank 0 draws a nonce, begins the attempt in the storage and broadcasts its name; every rank
 *     then begins it too, because its client may not see it yet.
 *  2. Every rank writes its shard into the attempt, computes the digests from memory, and makes the
 *     file and its name durable.
 *  3. Every rank sends rank 0 the sizes and digests of its shard, or the cause of its failure.
 *  4. Rank 0 writes the attached files, proves that the slices cover every tensor exactly once,
 *     calls the gate (ckpt.h) if there is one, and lets the storage publish the attempt as
 *     step-N with its manifest, atomically and durably (storage.h). In folders: MANIFEST is written
 *     to a temporary file, synced and renamed, the folder synced, the attempt renamed to step-N and
 *     DIR synced. An older step-N is renamed to step-N.NONCE first and stays valid, so that a
 *     checkpoint of the step exists at every moment.
 *  5. Rank 0 broadcasts the result. After a success it removes the replaced checkpoint, those
 *     beyond checkpoint.keep, and the attempts of dead writers.
 *
 * After a failed sync the attempt is abandoned; nothing is retried.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_SAVE_COMMIT_H
#define MUSTER_AGENT_ENGINE_CKPT_SAVE_COMMIT_H

#include "agent/engine/ckpt/save/snapshot.h"
#include "libcomm/comm.h"

#include <limits.h>

/* The inputs of a commit. */
struct commit {
	struct comm *group;
	const struct ckpt_storage *storage;
	const char *dir;
	const char *node; /* of this rank, for messages */
	int64_t keep, keep_every;
	const struct upload_rules *uploads; /* NULL: none */
	uint32_t generation;
	json_t *model, *layout;
	const struct ckpt_tensor *expect;
	int n_expect;
	const struct attached *attached; /* NULL: none */
	struct ckpt_state state;
	const struct ckpt_gate *gate;    /* NULL: none */
	const struct snapshot *snapshot; /* if taking it failed, the commit fails */
	/* what is linked from one save to the next (still.h): in `dir`, and on the nodes; NULL:
	 * nothing */
	struct ckpt_still *still, *still_local;
};

/* A checkpoint that is being written. */
struct attempt {
	char name[64]; /* "": it could not be made */
	char path[PATH_MAX];
	uint64_t nonce;
};

/* Draws a nonce and sets nonce and name. */
int ckpt_attempt_name(int64_t step, uint32_t generation, struct attempt *a, struct err *e);
/* Draws a nonce and begins the attempt in `dir`. */
int ckpt_attempt_make(const struct ckpt_storage *s, const char *dir, int64_t step,
		      uint32_t generation, struct attempt *a, struct err *e);
/* The end of step 4, for an attempt whose shards are durable: proves the manifest and publishes the
 * attempt as step-N. Sets the checkpoint's path. */
int ckpt_attempt_publish(const struct ckpt_storage *s, const char *dir, const struct attempt *a,
			 const struct manifest *m, char path[1024], struct err *e);

/* Steps 2 and 3, collective: every rank writes its shard into the attempt. made: the error with
 * which beginning the attempt has failed on this rank. On rank 0, *all holds the reports of all
 * ranks, one after the other, of counts[rank] bytes. The caller frees both, also after a failure,
 * which is one of the group. */
int ckpt_commit_write(const struct commit *c, const struct attempt *a, const struct err *made,
		      char **all, size_t **counts, struct err *e);
/* The begin of step 4, on rank 0, up to the gate: merges the reports into a manifest and writes the
 * attached files. *culprit: the rank whose shard failed; unchanged if all of them are written. The
 * caller frees the manifest in any case. */
int ckpt_commit_merge(const struct commit *c, const struct attempt *a, const char *all,
		      const size_t *counts, struct manifest *m, int *culprit, struct err *e);

/* Collective; every rank gets the same result, except for errors of the group itself. On rank 0 it
 * fills path, bytes, step and note of the report. *culprit: the rank that failed; -1: the group
 * did. */
int ckpt_commit_snapshots(const struct commit *c, struct ckpt_report *report, int *culprit,
			  struct err *e);

/* Broadcasts the result of the rank `from`: each rank returns it. Collective. */
int ckpt_commit_share_result(struct comm *group, int from, int rc, struct err *e);

/* No further collective of the group can succeed after this error. */
bool ckpt_group_is_lost(enum err_code code);

/* Proves that all ranks see one DIR: rank 0 makes a new entry in it, and every rank looks for it
 * (shared.c). Otherwise each node would keep its own shards, and no checkpoint would be whole. Only
 * folders are tried: other storages are shared by their nature. Collective; results as above. */
int ckpt_commit_check_shared(const struct commit *c, int *culprit, struct err *e);

#endif
