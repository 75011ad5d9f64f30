/*
 * read — the shards of a checkpoint, read slice by slice, each held against its digest.
 *
 * A file is checked when it is first read: its size, and its header against the manifest
 * (header.h).
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_READ_H
#define MUSTER_AGENT_ENGINE_CKPT_READ_H

#include "agent/engine/ckpt/manifest.h"

struct reader; /* borrows path, manifest and watch; files are opened when first read */

/* watch may be NULL. */
int ckpt_reader_open(const char *path, const struct manifest *m, const struct ckpt_watch *watch,
		     struct reader **out, struct err *e);
void ckpt_reader_close(struct reader *r);
/* The descriptor of a file, owned by the reader; -1 on error. */
int ckpt_reader_file(struct reader *r, int64_t file, struct err *e);
/* Reads a slice whole, in pieces, and compares its digest; copies what lies in each of into's
 * n_into boxes to its data. */
int ckpt_reader_slice(struct reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		      struct err *e);
bool ckpt_boxes_touch(int dims, const struct manifest_slice *s, const struct ckpt_tensor *t);

#endif
