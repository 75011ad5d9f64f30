/*
 * ckpt_dir — what a person may name to mean checkpoints: a checkpoint, a folder of them, or a run's
 * folder.
 */
#ifndef MUSTER_AGENT_TOOLS_CKPT_DIR_H
#define MUSTER_AGENT_TOOLS_CKPT_DIR_H

#include "agent/engine/ckpt/folder.h"

#include <limits.h>

struct ckpt_dir {
	char dir[PATH_MAX];        /* that holds the step- folders */
	struct folder_entry *list; /* the checkpoint named, or all of them, newest first */
	int64_t n;
	bool one; /* a checkpoint was named */
};

/* A run's folder is known by its job.ini, which may say that its checkpoints lie elsewhere.
 * ERR_NOTFOUND when there is no such folder; a folder without checkpoints is an empty list. */
int tool_ckpt_dir_open(const char *path, struct ckpt_dir *out, struct err *e);
void tool_ckpt_dir_close(struct ckpt_dir *d);
/* DIR/NAME of an entry, into `out` of PATH_MAX bytes. */
void tool_ckpt_dir_path(const struct ckpt_dir *d, int64_t i, char *out);
/* The one that was named, whatever is wrong with it; of several the newest that is sound. Its
 * folder, into `path` of PATH_MAX bytes, and its manifest. */
int tool_ckpt_dir_choose(const struct ckpt_dir *d, char *path, struct manifest *m, struct err *e);

#endif
