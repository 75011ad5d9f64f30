/*
 * folder — the checkpoints in a DIR: listing, ranking, checking and pruning them.
 *
 *     step-00000400            a checkpoint
 *     step-00000400.NONCE      a checkpoint that step-00000400 is replacing; valid until it is
 *                              removed
 *     .attempt-…               a checkpoint that is being written, or whose writer died
 *     damaged-…                a checkpoint that could not be read; muster does not use it again
 *     UPLOADS                  what has been copied to a remote place (upload.h)
 *     RUN                      the name of the run that writes here, if several runs could
 *
 * An entry counts as a checkpoint if its manifest is valid and of the step in its name, and if its
 * files have the sizes in the manifest. Checkpoints are ordered by step; times and pointer files do
 * not matter.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_FOLDER_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_FOLDER_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/ckpt/storage/storage.h"

#include <stdbool.h>
#include <stdint.h>

struct folder_entry {
	char name[64];
	int64_t step;
};

/* Lists the step- entries of `dir`, highest step first; the caller frees *out. A DIR that does not
 * exist is empty. */
int ckpt_folder_list(const struct ckpt_storage *s, const char *dir, struct folder_entry **out,
		     int64_t *n, struct err *e);

/* Reads and proves the manifest of an entry, and checks its step and the sizes of its files. */
int ckpt_folder_check(const struct ckpt_storage *s, const char *dir,
		      const struct folder_entry *entry, struct manifest *out, struct err *e);
/* Checks the sizes of the files of the checkpoint `path` against its manifest. */
int ckpt_folder_check_sizes(const struct ckpt_storage *s, const char *path,
			    const struct manifest *m, struct err *e);

/* Makes the run the owner of `dir` by writing its name to DIR/RUN. ERR_USAGE if another run owns
 * it, because two runs would remove each other's checkpoints. key: what the user may set to another
 * folder, "checkpoint.dir". */
int ckpt_folder_set_owner(const struct ckpt_storage *s, const char *dir, const char *run,
			  const char *key, struct err *e);

/* The same without making it so: a DIR without an owner is a success. */
int ckpt_folder_check_owner(const struct ckpt_storage *s, const char *dir, const char *run,
			    const char *key, struct err *e);

/* Removes the attempts of this generation and of earlier ones; none of them may be in progress.
 * Attempts of later generations stay, because then the caller itself is obsolete. Continues after
 * an entry that cannot be removed, and then fails with the last cause. */
int ckpt_folder_remove_attempts(const struct ckpt_storage *s, const char *dir, uint32_t generation,
				struct err *e);

enum folder_verdict { FOLDER_COUNTS, FOLDER_STAYS, FOLDER_GOES };

/* Decides what becomes of each entry of a DIR. */
struct folder_judge {
	/* counted: how many entries of higher steps have got FOLDER_COUNTS. */
	enum folder_verdict (*judge)(const void *arg, const struct folder_entry *entry,
				     int64_t counted);
	const void *arg;
	bool spares_readers; /* an entry that is being read stays until the next call (hold.h) */
};

/* Judges the step- entries of `dir`, highest step first, and removes those that go. Continues after
 * one that cannot be removed, and then fails with the last cause. */
int ckpt_folder_sweep(const struct ckpt_storage *s, const char *dir, const struct folder_judge *j,
		      struct err *e);

/* Which checkpoints a DIR keeps. */
struct folder_keep {
	int64_t last;      /* the valid ones of the highest steps; 0: all */
	int64_t every;     /* those of its multiples; 0: none */
	int64_t committed; /* the one of this step, which has just been committed */
	/* more to keep; NULL: none */
	bool (*needs)(const void *arg, const struct folder_entry *entry);
	const void *arg;
};

/* Removes the checkpoints that are not to be kept, valid or damaged, and the one that the committed
 * checkpoint replaced. One that is being read stays until the next call (hold.h). */
int ckpt_folder_prune(const struct ckpt_storage *s, const char *dir, const struct folder_keep *keep,
		      struct err *e);

#endif
