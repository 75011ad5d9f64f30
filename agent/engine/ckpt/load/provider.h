/*
 * provider — where the bytes of slices come from when all ranks load together (rounds.h): one table
 * of operations for each source.
 *
 * A provider is this rank's end of the source. Which ranks can supply a slice must be known to all
 * ranks, and equal on all of them, because each computes the plan by itself (pieces.h). A slice is
 * read by one rank, from its first byte to its last; slices follow each other.
 *
 * To add a provider, there are 2 things to do:
 *  1. ckpt/load/provider_NAME.c: the operations, and ckpt_provider_NAME_open;
 *  2. here: the declaration of ckpt_provider_NAME_open.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_PROVIDER_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_PROVIDER_H

#include "agent/engine/ckpt/format/header.h"
#include "agent/engine/ckpt/format/manifest.h"

struct ckpt_provider;

struct ckpt_provider_ops {
	const char *name;
	/* Sets *ranks to those that can supply the slice, in rising order, and returns their
	 * number. They are borrowed until the next call. NULL: every rank can supply every slice. */
	int (*holders)(const struct ckpt_provider *p, const struct slice_entry *slice,
		       const int **ranks);
	/* Called on the reader before the first read of a slice. check: this rank checks the file
	 * that holds it; no other one does. */
	int (*begin)(struct ckpt_provider *p, const struct slice_entry *slice, bool check,
		     struct err *e);
	/* Reads exactly n bytes of the slice at the offset `at`. */
	int (*read)(struct ckpt_provider *p, const struct slice_entry *slice, int64_t at,
		    void *data, size_t n, struct err *e);
	/* Sets the error of a slice whose bytes do not have its digest; returns -1. */
	int (*differs)(const struct ckpt_provider *p, const struct slice_entry *slice,
		       struct err *e);
	void (*close)(struct ckpt_provider *p);
};

/* Each provider embeds it as the first member of its own type. */
struct ckpt_provider {
	const struct ckpt_provider_ops *ops;
};

/* Takes NULL. */
void ckpt_provider_close(struct ckpt_provider *p);

/* The shards of the checkpoint `path` in its storage. Borrows all; watch may be NULL. */
int ckpt_provider_storage_open(const char *path, const struct manifest *m,
			       const struct ckpt_watch *watch, struct ckpt_provider **out,
			       struct err *e);

struct ckpt_local_found;
/* The shards of a checkpoint in the folders of the nodes (local.h): the ranks of one node that has a
 * file can supply its slices. m: the manifest of the checkpoint, as the exchange has it. */
int ckpt_provider_local_open(const struct ckpt_local_found *found, const struct manifest *m,
			     const struct ckpt_watch *watch, struct ckpt_provider **out,
			     struct err *e);

struct copies;
struct ckpt_store;
/* Copies of the shards in the memory of the ranks (copies.h), of which `store` has this rank's; NULL:
 * it has none. Borrows the manifest and the store. */
int ckpt_provider_memory_open(const struct manifest *m, const struct copies *copies,
			      const struct ckpt_store *store, int rank, struct ckpt_provider **out,
			      struct err *e);

#endif
