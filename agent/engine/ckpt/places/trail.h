/*
 * trail — follows the bytes of a checkpoint's file from first to last, and compares each part with
 * its digest in the manifest: a shard's header and slices, or an attached file.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_TRAIL_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_TRAIL_H

#include "agent/engine/ckpt/format/header.h"

struct ckpt_trail;

struct ckpt_trail *ckpt_trail_open(void); /* NULL: no memory */
void ckpt_trail_close(struct ckpt_trail *t);

/* Begins with a shard, or with an attached file. What they point to is borrowed. */
void ckpt_trail_shard(struct ckpt_trail *t, const struct manifest *m, const struct slice_index *x,
		      int64_t file);
void ckpt_trail_attached(struct ckpt_trail *t, const struct manifest_attached *a);

/* The next n bytes of the file, of which there are at most as many as the manifest says. path: in
 * the error, ERR_CORRUPT. */
int ckpt_trail_add(struct ckpt_trail *t, const char *path, const void *data, size_t n,
		   struct err *e);

#endif
