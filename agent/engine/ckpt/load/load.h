/*
 * load — fills the boxes of one rank from the slices of a checkpoint; the inner half of ckpt_load.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_LOAD_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_LOAD_H

#include "agent/engine/ckpt/format/manifest.h"

/* Finds the tensor of a box and checks the box against it. *have is NULL if the box keeps its data:
 * optimizer state that the checkpoint does not have. ERR_USAGE as ckpt_load. */
int ckpt_load_find(const struct manifest *m, const struct ckpt_tensor *want,
		   const struct manifest_tensor **have, struct err *e);

/* ckpt_load with the manifest of the checkpoint `path`. */
int ckpt_load_boxes(const char *path, const struct manifest *m, const struct ckpt_tensor *tensors,
		    int n, const struct ckpt_watch *watch, struct err *e);

#endif
