/*
 * local — checkpoints in folders that only one node sees: its own disk, or its memory.
 *
 * The entry DIR/step-00000400 of a node holds the shards that its own ranks wrote, and the manifest
 * of the whole checkpoint. No node has all files (unless it is the only one), so a checkpoint here
 * is valid if the nodes of the world have all files of one manifest together. Entries of one step
 * whose manifests differ belong to different checkpoints.
 *
 * Commit, over all ranks:
 *  1. Rank 0 draws the name of the attempt and broadcasts it; every rank begins it in the folder of
 *     its node.
 *  2. Every rank writes its shard and makes it durable; rank 0 gets the reports, proves coverage
 *     and calls the gate, as in commit.h. It writes the attached files into the folder of its node.
 *  3. Rank 0 broadcasts the manifest. The first rank of each node (its leader) publishes the attempt
 *     in the folder of its node.
 *  4. The ranks agree on the result. Only after all nodes have published it, each leader removes
 *     older entries. If one could not, the others remove what they published.
 * If a rank dies in step 3, some nodes have the new entry and the others do not: the new one is
 * then not valid, and the older one is still there. If one dies in step 4, some leaders may know
 * the result and others may not: these keep both entries, since the older one may be gone
 * elsewhere.
 *
 * A failure here ends no run. checkpoint.dir is the tier that counts.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_LOCAL_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_LOCAL_H

#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/places/folder.h"
#include "libcomm/comm.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct commit;

/* What each rank knows of its node's folder. */
struct ckpt_local {
	char dir[PATH_MAX]; /* "": there is no local tier */
	int node;           /* the same number on all ranks of a node */
	int64_t keep;       /* 1 or more */
	const char *owner;  /* the only run that may write here; NULL: not checked. Borrowed. */
	const struct ckpt_storage *storage; /* of `dir`; NULL: the one that its scheme names */
};

/* Collective. Each leader makes the folder and removes the attempts of dead writers. Then proves
 * that no two nodes have one folder. ERR_USAGE on all ranks if they do, or if it belongs to another
 * run; any other error (the same on all ranks) means that the tier cannot be used now. */
int ckpt_local_open(struct comm *group, const struct ckpt_local *l, uint32_t generation,
		    struct err *e);

struct ckpt_report;
/* Collective. `c` describes the checkpoint (commit.h; its dir, storage and keep are not used). Every
 * rank gets the same result, except for errors of the group itself. Fills the report on rank 0. */
int ckpt_local_commit(const struct commit *c, const struct ckpt_local *l,
		      struct ckpt_report *report, struct err *e);

/* Whether this rank is the first one of its node, or of those with the same number. Collective. */
int ckpt_local_lead(struct comm *group, int node, bool *leads, struct err *e);

/* Keeps the last `keep` entries with a manifest and those of step `committed`; removes the older
 * ones, and those that `committed` replaced. For the folder of one node. */
int ckpt_local_prune(const struct ckpt_storage *s, const char *dir, int64_t keep, int64_t committed,
		     struct err *e);

/* A valid checkpoint of this tier. */
struct ckpt_local_found {
	struct manifest manifest;
	char name[64];       /* of the entry, on every node that has it */
	char path[PATH_MAX]; /* in the folder of this node */
	/* for each of the files of the manifest, then for each attached one: the first rank of the
	 * first node that has it */
	int32_t *holder;
	/* the ranks, those of one node together and rising; the ranks of the node whose first rank
	 * is r are by_node[first[r]] to by_node[first[r] + count[r] - 1] */
	int *by_node, *first, *count;
};

/* Collective. Finds the valid checkpoint of the highest step: 1 and *out on all ranks, 0 if there is
 * none, -1. A folder that cannot be read counts as empty. */
int ckpt_local_latest(struct comm *world, const struct ckpt_local *l, const struct ckpt_wish *wish,
		      struct ckpt_local_found *out, struct err *e);
void ckpt_local_found_fini(struct ckpt_local_found *f);
/* The ranks of a node that has the file, rising; returns their number. The same on all ranks. */
int ckpt_local_holders(const struct ckpt_local_found *f, int64_t file, const int **ranks);

/* Collective. Reads the attached files of the checkpoint and verifies their digests. Rank 0 gets
 * them in *out, which it overwrites; the other ranks may pass NULL. */
int ckpt_local_attached(struct comm *world, const struct ckpt_local_found *f, struct attached *out,
			struct err *e);

/* Removes the entries of this node that `stays` rejects. For leaders. */
int ckpt_local_remove(const struct ckpt_local *l,
		      bool (*stays)(const void *arg, int64_t step, uint32_t generation),
		      const void *arg, struct err *e);

#endif
