/*
 * folder — the checkpoints in a DIR: found, ranked, named, retired.
 *
 *     step-00000400            a checkpoint
 *     step-00000400.NONCE      the one that it replaces, for the moment between two renames; as
 *                              good as any
 *     .attempt-…               somebody is writing it, or died while writing
 *     RUN                      the name of the run that writes here, where several could
 *
 * A folder counts as a checkpoint when its manifest is valid and of the step that its name says,
 * and its files have the sizes that the manifest says. Order: by step; times and pointers do not
 * matter.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FOLDER_H
#define MUSTER_AGENT_ENGINE_CKPT_FOLDER_H

#include "agent/engine/ckpt/io.h"
#include "agent/engine/ckpt/manifest.h"

#include <stdint.h>

#define ATTEMPT_PREFIX ".attempt-"

struct folder_entry {
	char name[64];
	int64_t step;
};

/* The step- folders of `dir`, newest step first; *out is to be freed. A folder that is not there
 * is empty. */
int ckpt_folder_list(const char *dir, struct folder_entry **out, int64_t *n, struct err *e);

/* Reads and proves the manifest of DIR/NAME, checks its step and the files' sizes. */
int ckpt_folder_check(const char *dir, const struct folder_entry *entry, struct manifest *out,
		      struct err *e);
/* Sizes only, of a folder whose manifest is known. */
int ckpt_folder_check_sizes(const char *folder, const struct manifest *m, struct err *e);

/* Makes `dir` the run's, by name, in DIR/RUN. ERR_USAGE when it is another's: two runs would
 * retire each other's checkpoints. */
int ckpt_folder_set_owner(const char *dir, const char *run, struct err *e);

/* Removes what dead writers left: the attempts of generations up to this one, whose own is not
 * under way. Those of later ones stay, as the caller is then the one that should be dead. Goes on
 * over what cannot be removed, and then fails with the last cause. */
int ckpt_folder_remove_attempts(const struct ckpt_io *io, const char *dir, uint32_t generation,
				struct err *e);

/* Keeps the newest `keep` valid checkpoints (0: all) and the one of step `committed`, which has
 * just been committed; removes what is older than them, damaged or not, and what the committed one
 * replaced. */
int ckpt_folder_prune(const struct ckpt_io *io, const char *dir, int64_t keep, int64_t committed,
		       struct err *e);

#endif
