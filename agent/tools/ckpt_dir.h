/*
 * ckpt_dir — resolves the path that a user names to checkpoints: a checkpoint, a folder of
 * checkpoints, or a run's folder; also a checkpoint or a DIR in another storage, such as
 * s3://bucket/prefix (agent/engine/ckpt/storage/storage.h).
 */
#ifndef MUSTER_AGENT_TOOLS_CKPT_DIR_H
#define MUSTER_AGENT_TOOLS_CKPT_DIR_H

#include "agent/engine/ckpt/places/upload.h"

#include <limits.h>

struct ckpt_dir {
	char dir[PATH_MAX];        /* holds the step- entries */
	struct folder_entry *list; /* the checkpoint named, or all, the last step first */
	int64_t n;
	bool one; /* a checkpoint was named */
	/* Of a run's folder, or of its ckpt folder: whether, and which of, its checkpoints are copied
	 * to its checkpoint.remote. */
	bool uploads;
	struct upload_rules rules;
};

/* A run's folder is recognized by its job.ini, whose checkpoint.dir is then used. ERR_NOTFOUND if
 * there is no such folder; a folder without checkpoints is an empty list. */
int tool_ckpt_dir_open(const char *path, struct ckpt_dir *out, struct err *e);
/* The checkpoints in the checkpoint.remote of a run, given by its folder. */
int tool_ckpt_dir_open_remote(const char *run, struct ckpt_dir *out, struct err *e);
/* If `path` is a run's folder, sets its checkpoint.local on this node and its checkpoint.remote, of
 * PATH_MAX bytes each; "": it has none. -1: it is no run's folder. */
int tool_ckpt_dir_tiers(const char *path, char *local, char *remote);
/* The name of this node as muster uses it for %N. */
void tool_node_name(char out[HOST_NAME_MAX + 1]);
void tool_ckpt_dir_close(struct ckpt_dir *d);
/* Writes DIR/NAME of an entry to `out`, of PATH_MAX bytes. */
void tool_ckpt_dir_path(const struct ckpt_dir *d, int64_t i, char *out);
/* Chooses the checkpoint that was named, even if it is damaged. Otherwise chooses the last valid
 * checkpoint. Writes its path to `path`, of PATH_MAX bytes, and reads its manifest. */
int tool_ckpt_dir_choose(const struct ckpt_dir *d, char *path, struct manifest *m, struct err *e);
/* ERR_USAGE if `dir`, into which checkpoints are to be copied, is itself a checkpoint: an entry in it
 * would damage it. */
int tool_ckpt_dir_check_target(const char *dir, struct err *e);

#endif
