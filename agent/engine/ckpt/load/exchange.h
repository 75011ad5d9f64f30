/*
 * exchange — all ranks load a checkpoint together, and share the reading.
 *
 * World rank 0 reads the manifest and hands it to the others. Each rank then says which boxes it
 * wants (wants.h). Every slice that anybody needs is read from storage once, by one rank, and sent
 * to the other ranks that need it (pieces.h, rounds.h). Each file's header is read once as well.
 * The storage thus delivers every byte once, however many replicas there are.
 *
 * Slices that are in the memory of some ranks (store.h) come from there. If a whole state is,
 * ckpt_recover_all needs no storage at all.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_EXCHANGE_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_EXCHANGE_H

#include "agent/engine/ckpt/ckpt.h"

struct ckpt_local_found; /* local.h */

struct ckpt_load_options {
	const char *path; /* of the checkpoint; equal on all ranks; ckpt_recover_all ignores it */
	/* This rank's copies; a rank without copies passes an empty store. NULL, on all ranks: read
	 * everything from storage. */
	const struct ckpt_store *store;
	/* The checkpoint is in the folders of the nodes, and `path` is where this rank's node has
	 * its part of it. NULL: every rank can read all of it. */
	const struct ckpt_local_found *local;
	json_t *model; /* as in ckpt_load */
	/* Called on rank 0 when the manifest is known and of this model, before anything else is
	 * read. A failure fails the load on all ranks. NULL: every state is accepted. */
	int (*accept)(void *arg, const struct ckpt_state *state, struct err *e);
	void *arg;
	/* rank 0's receives the attached files; NULL: nowhere. With `local` it must be NULL. */
	struct attached *attached;
	/* The boxes that this rank would save, in the memory that is loaded into: those of all ranks
	 * cover each tensor exactly once. When all are loaded, they are compared with the state
	 * digest (state_digest.h); ERR_CORRUPT on all ranks, *culprit -1. NULL on all ranks: they
	 * are not. */
	const struct ckpt_tensor *proof;
	int n_proof;
	const struct ckpt_watch *watch; /* NULL: none */
	const struct err *failure; /* this rank cannot load, which fails it on all; NULL: it can */
	/* The limits of a turn and of a round (turns.h), equal on all ranks. 0: TURN_BYTES and
	 * ROUND_BYTES; tests take less, so that small checkpoints need many rounds. */
	int64_t turn_bytes, round_bytes;
};

/* Collective. Like ckpt_load on every rank, but every rank returns the same result: after a failure
 * the error of one rank, *culprit, or -1 if the group has failed. */
int ckpt_load_all(struct comm *group, const struct ckpt_load_options *opt, struct ckpt_state *state,
		  struct ckpt_tensor *tensors, int n, int *culprit, struct err *e);

/* Collective. Finds the newest state of which a copy of every shard is in the memory of the ranks. 1, and
 * sets its step and generation; 0: there is none. */
int ckpt_recover_find(struct comm *group, const struct ckpt_store *store, int64_t *step,
		      uint32_t *generation, int *culprit, struct err *e);
/* Collective. Loads the newest state of which a copy of every shard is in the memory of the ranks.
 * 1: loaded; 0: there is no such state. Copies have no attached files. */
int ckpt_recover_all(struct comm *group, const struct ckpt_load_options *opt,
		     struct ckpt_state *state, struct ckpt_tensor *tensors, int n, int *culprit,
		     struct err *e);

#endif
