/*
 * copy — copies a checkpoint from one DIR to another, between any two storages.
 *
 * The copy has the manifest of the original, byte for byte. Every byte is compared with the digests
 * of that manifest on its way, so a damaged original is never copied. The manifest is published
 * last, so that the copy is a checkpoint only when all of its files are durable. The original is held
 * meanwhile (hold.h), so that nobody prunes it.
 *
 * A copy that was interrupted continues: its attempt is named after the digest of the manifest, so
 * the next copy of the same checkpoint finds it. Files there are read back, and those whose digests
 * are right are not sent again. A failed copy therefore leaves its attempt in place, unless the
 * original is damaged. The next copy completes it, or a run that saves there, or uploads to there,
 * removes it (ckpt_folder_remove_attempts).
 *
 * One process copies a checkpoint into a DIR at a time. If two do so anyway, one of them fails, and
 * what is published is complete, because sizes are checked again before publication.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_COPY_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_COPY_H

#include "agent/engine/ckpt/ckpt.h"
#include "agent/engine/ckpt/storage/storage.h"

#include <stdatomic.h>

struct ckpt_copy_progress {
	const char *file;    /* being copied */
	int64_t done, total; /* bytes of the files, the reused ones included */
};

struct ckpt_copy_result {
	char path[1024]; /* of the copy */
	int64_t step;
	int64_t bytes, files; /* of the checkpoint, without its manifest */
	int64_t sent, reused; /* bytes copied now; files that were there already */
	bool there_already;   /* the checkpoint was complete before; only sizes were checked */
	double seconds;
};

/* Zeroed options copy as fast as possible. All pointers are borrowed for the call. */
struct ckpt_copy_options {
	const struct ckpt_storage *from, *to; /* NULL: those that the paths' schemes name */
	int64_t bytes_per_s;                  /* limit of the copy's speed; 0: none */
	/* a different checkpoint of the step in to_dir is replaced; otherwise it is an error */
	bool replace;
	const struct ckpt_watch *watch;                                    /* NULL: none */
	void (*progress)(void *arg, const struct ckpt_copy_progress *now); /* NULL: none */
	void *progress_arg;
	/* any thread sets it to end the copy with ERR_ABORTED; NULL: none */
	const atomic_bool *cancel;
	struct ckpt_copy_result *result; /* set on success; NULL: not wanted */
};

/* Copies the checkpoint from_entry into to_dir, which is made if it does not exist, as its
 * step-entry. opt may be NULL. ERR_CORRUPT: the original is damaged; ERR_USAGE: to_dir has another
 * checkpoint of this step; ERR_ABORTED; otherwise the storage's error. */
int ckpt_copy(const char *from_entry, const char *to_dir, const struct ckpt_copy_options *opt,
	      struct err *e);

#endif
