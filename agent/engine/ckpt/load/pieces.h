/*
 * pieces — the plan of a load by all ranks: which rank reads which slice, and who needs which part
 * of it.
 *
 * The plan is a function of the manifest, the boxes of all ranks and what the providers can supply.
 * All ranks compute the same plan, so none has to be told what to send or to expect.
 *
 * One rank reads a slice, completely, because the digest covers the whole slice; nobody reads a
 * slice that nobody needs. The reader is a rank that needs the slice, if the provider lets one:
 * replicas then divide the slices among themselves, and a slice that one rank alone needs is never
 * sent. Among the possible readers it is the one with the fewest bytes so far. A file stays with
 * its reader while that one is at most 1/SLACK of a fair share ahead, so that few ranks open it.
 *
 * The ranks that need exactly the same part of a slice, such as the replicas of a layout, are a
 * group.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_PIECES_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_PIECES_H

#include "agent/engine/ckpt/load/provider.h"
#include "agent/engine/ckpt/load/wants.h"

/* A part of a slice, and the ranks that need it: ranks[first] to ranks[first + n - 1], in rising
 * order. Groups may share their ranks. */
struct piece_group {
	struct part cut;
	int64_t first, n;
};

/* This rank's box `index` needs the part. */
struct piece_own {
	struct part cut;
	int index;
};

struct piece_slice {
	struct slice_entry entry;
	struct part box;
	int64_t bytes;
	int64_t group, own; /* the first ones; the next slice's first ones end them */
	int provider;       /* its index */
	int reader;
	bool checks; /* of all ranks, the reader is the one that checks the slice's file */
};

struct pieces {
	int rank, size;
	struct piece_slice *slices; /* in the order of the manifest's tensors, then of rows */
	int64_t n_slices;
	struct piece_group *groups;
	int *ranks;
	int64_t n_ranks;
	struct piece_own *own;
	int64_t n_own, room_own;
	/* The slices that rank r reads are queue[queue_at[r]] to queue[queue_at[r + 1] - 1]. */
	int64_t *queue, *queue_at;
	int most_senders;                /* the largest number of ranks that send to one */
	int64_t turn_bytes, round_bytes; /* ckpt_turns_limit */
};

/* providers: in order of preference. ERR_CORRUPT: a slice that a rank needs is nowhere. */
int ckpt_pieces_init(struct pieces *p, const struct manifest *m, const struct wants *w, int rank,
		     int size, struct ckpt_provider *const *providers, int n_providers,
		     struct err *e);
void ckpt_pieces_fini(struct pieces *p);

/* The second half of ckpt_pieces_init (readers.c): chooses the readers and fills the queues. */
int ckpt_pieces_choose_readers(struct pieces *p, int64_t n_files,
			       struct ckpt_provider *const *providers, int n_providers,
			       struct err *e);

#endif
