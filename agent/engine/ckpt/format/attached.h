/*
 * attached — small files that belong to a model: its tokenizer, its generation settings, its
 * licence.
 *
 * An import puts them into its checkpoint, next to the shards. A run that resumes from a checkpoint
 * reads them on world rank 0, keeps them in memory, so that pruning a checkpoint does not lose
 * them, and writes them into every checkpoint of its own, within the same attempt: they are durable
 * before the manifest is written. The manifest lists the size and digest of each, and both are
 * verified whenever a file is read. The importer decides which names are attached
 * (agent/engine/hf/side.h); this module takes every name that a manifest may hold.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_ATTACHED_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_ATTACHED_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/ckpt/storage/storage.h"

#include <stdbool.h>
#include <stddef.h>

struct attached_file {
	char name[MANIFEST_FILE_NAME];
	char *data; /* followed by a NUL */
	size_t size;
};

struct attached {
	struct attached_file files[MANIFEST_ATTACHED_MAX];
	int n;
	/* the model's name at its origin, such as "openai-community/gpt2"; "": unknown */
	char from[MANIFEST_FROM];
};

void ckpt_attached_fini(struct attached *a);

/* Reads FOLDER/NAME, a file of this machine of at most `most` bytes. 1: added; 0: there is no such
 * file. Symbolic links are followed. What is not a regular file is ERR_UNSUPPORTED, and opening it
 * does not block; a link whose target does not exist is ERR_CORRUPT. */
int ckpt_attached_add(struct attached *a, const char *folder, const char *name, size_t most,
		      struct err *e);

/* Whether FOLDER/NAME is a symbolic link to a file outside of the folder and outside of the Hugging
 * Face cache that the folder belongs to, whose files are links into models--NAME/blobs. Attached
 * files are published with the model, so such a link could publish a private file. */
bool ckpt_attached_leads_out(const char *folder, const char *name);

/* NULL if no file has this name. */
const struct attached_file *ckpt_attached_find(const struct attached *a, const char *name);

/* Reads the attached files of the checkpoint `path` and verifies their digests. ERR_CORRUPT: a file
 * is missing or has changed. *out is overwritten, and is empty after a failure. */
int ckpt_attached_load(const char *path, const struct manifest *m, struct attached *out,
		       struct err *e);

/* Writes the files into the attempt, durable, and lists them in the manifest. Their names are not
 * synced. */
int ckpt_attached_write(const struct attached *a, const struct ckpt_storage *storage,
			const char *attempt, struct manifest *m, struct err *e);

#endif
