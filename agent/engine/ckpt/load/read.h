/*
 * read — reads the shards of a checkpoint slice by slice and verifies each digest.
 *
 * A file is checked when it is first used: its size, and its header against the manifest
 * (header.h).
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_READ_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_READ_H

#include "agent/engine/ckpt/format/manifest.h"

struct ckpt_reader; /* borrows path, manifest and watch; one thread */

/* watch may be NULL. */
int ckpt_reader_open(const char *path, const struct manifest *m, const struct ckpt_watch *watch,
		     struct ckpt_reader **out, struct err *e);
void ckpt_reader_close(struct ckpt_reader *r);
/* Opens a file of the manifest and checks it, unless that was done before. Without `header` only its
 * size is checked. */
int ckpt_reader_file(struct ckpt_reader *r, int64_t file, bool header, struct err *e);
/* Reads bytes [at, at + n) of a slice, whose file is open. */
int ckpt_reader_bytes(struct ckpt_reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, int64_t at, void *data, size_t n,
		      struct err *e);
/* Sets the error of a slice whose bytes do not have its digest; returns -1. */
int ckpt_reader_differs(const struct ckpt_reader *r, const struct manifest_tensor *t,
			const struct manifest_slice *s, struct err *e);
/* Reads a whole slice in pieces and verifies its digest. Copies the elements that lie in each of
 * the n_into boxes to the box's data. */
int ckpt_reader_slice(struct ckpt_reader *r, const struct manifest_tensor *t,
		      const struct manifest_slice *s, const struct ckpt_tensor *into, int n_into,
		      struct err *e);
/* Like ckpt_reader_slice without boxes, and adds the sums of the slice (sum.h). */
int ckpt_reader_sums(struct ckpt_reader *r, const struct manifest_tensor *t,
		     const struct manifest_slice *s, struct ckpt_sums *sums, struct err *e);
/* Whether the slice and the box have an element in common. */
bool ckpt_boxes_touch(int dims, const struct manifest_slice *s, const struct ckpt_tensor *t);

#endif
