/*
 * landing — this rank's boxes while parts of slices arrive for them, in any order.
 *
 * A box in device memory takes each part at once if all its parts are consecutive in the slice and in
 * the box. Otherwise it is put together in host memory, and copied when it is complete.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_LANDING_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_LANDING_H

#include "agent/engine/ckpt/load/pieces.h"

struct landing_box {
	struct part box;
	bool gathers; /* it is put together in host memory */
	float *host;  /* NULL: no part has arrived yet */
	int64_t left; /* elements that have not arrived */
};

struct landing {
	const struct pieces *p;
	struct ckpt_tensor *tensors;
	struct landing_box *boxes;
	int n;
};

/* Borrows the pieces and the tensors, which are n. */
int ckpt_landing_init(struct landing *l, const struct pieces *p, struct ckpt_tensor *tensors, int n,
		      struct err *e);
void ckpt_landing_fini(struct landing *l);

/* Where element `at` of the cut, and all after it, can be received without a copy: in a box in host
 * memory that wants the cut. *own is that box's entry; NULL, and *own NULL: nowhere. */
float *ckpt_landing_place(const struct landing *l, const struct piece_slice *s,
			  const struct part *cut, int64_t at, const struct piece_own **own);

/* Copies the elements [first, first + n) of `from`, which are at data, into the boxes that want the
 * slice, or only its part `only` (NULL: any), except `done` (may be NULL). */
int ckpt_landing_take(struct landing *l, const struct piece_slice *s, const struct part *only,
		      const struct piece_own *done, const struct part *from, const float *data,
		      int64_t first, int64_t n, struct err *e);

#endif
