/*
 * wants — the boxes that all ranks of a group want from one checkpoint.
 *
 * Each rank encodes its own boxes as numbers of 7 bits per byte, the lowest first, with the highest
 * bit set in all but the last byte. A box is: how far its index in the rank's list is beyond the
 * previous one's, its tensor's index in the manifest, first row, rows, first column, columns.
 * Empty boxes, and those that keep their data (load.h), are left out.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_WANTS_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_WANTS_H

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/ckpt/format/part.h"

struct want {
	struct part box;
	int64_t tensor; /* its index in the manifest */
	int rank;
	int index; /* in the rank's list of boxes */
};

struct wants {
	struct want *list; /* by rank */
	int64_t n, room;
};

/* Appends this rank's boxes to `out`. ERR_USAGE, ERR_INTERNAL as ckpt_load. */
int ckpt_wants_encode(const struct manifest *m, const struct ckpt_tensor *tensors, int n,
		      struct buf *out, struct err *e);
/* Adds the boxes of a rank. ERR_PROTO: they are not boxes of this manifest. */
int ckpt_wants_decode(const struct manifest *m, int rank, const void *data, size_t bytes,
		      struct wants *w, struct err *e);
void ckpt_wants_fini(struct wants *w);

#endif
