/*
 * carry — small files that came with a model and go with it: its tokenizer, the settings of
 * generation, its licence.
 *
 * An import puts them into its checkpoint, beside the shards. A run that goes on from a checkpoint
 * reads them on world rank 0, holds them in memory, so that no retired checkpoint takes them away,
 * and writes them into every checkpoint of its own, within the same attempt: they are synced before
 * the manifest is written and are there whole or the checkpoint is not. The manifest lists each
 * with its size and digest, and these are compared whenever a file is read. Which names there are
 * is the importer's to say (agent/engine/hf/side.h); this module takes any that a manifest may
 * hold.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_CARRY_H
#define MUSTER_AGENT_ENGINE_CKPT_CARRY_H

#include "agent/engine/ckpt/io.h"
#include "agent/engine/ckpt/manifest.h"

#include <stdbool.h>
#include <stddef.h>

struct attached_file {
	char name[MANIFEST_FILE_NAME];
	char *data; /* with a NUL behind it */
	size_t size;
};

struct attached {
	struct attached_file files[MANIFEST_ATTACHED_MOST];
	int n;
	/* the model's name where it came from, such as "openai-community/gpt2"; "": not known */
	char from[MANIFEST_FROM];
};

void ckpt_attached_fini(struct attached *c);

/* Reads FOLDER/NAME, at most `most` bytes. 1: taken, 0: there is no such file. A symbolic link is
 * followed; what is no regular file is refused without being waited for (ERR_UNSUPPORTED), and so
 * is a link that leads nowhere (ERR_CORRUPT). */
int ckpt_attached_add(struct attached *c, const char *folder, const char *name, size_t most,
		    struct err *e);

/* Whether FOLDER/NAME is a symbolic link to a file outside of the folder, and outside of the
 * Hugging Face cache that the folder belongs to, whose files are links into models--NAME/blobs.
 * What is carried gets published with the model, so such a link could publish a private file. */
bool ckpt_attached_leads_out(const char *folder, const char *name);

/* NULL: there is none. */
const struct attached_file *ckpt_attached_find(const struct attached *c, const char *name);

/* Reads what the manifest of the checkpoint `path` lists, held against its digests. ERR_CORRUPT: a
 * file is missing or has changed. *out is overwritten, and empty after a failure. Symbolic links
 * are not followed here. */
int ckpt_attached_load(const char *path, const struct manifest *m, struct attached *out, struct err *e);

/* Writes the files into the attempt's folder, each new and synced, and lists them in the
 * manifest. The folder is not synced. */
int ckpt_attached_write(const struct attached *c, const struct ckpt_io *io, const char *folder,
		     struct manifest *m, struct err *e);

#endif
