/*
 * diff — compares the tensors of two checkpoints, of whatever layouts.
 *
 * What is equal is not read: tensors whose block sums are equal (sum.h), slices of one box with
 * equal digests, and slices that touch only blocks of equal sums. The other slices are read and
 * verified, and their elements are compared bit by bit. Of each tensor, the slices of the
 * checkpoint that has fewer of them are read one after the other, so the largest of them must fit
 * into memory twice.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_DIFF_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_DIFF_H

#include "agent/engine/ckpt/format/manifest.h"

enum ckpt_diff_kind { CKPT_DIFF_VALUES, CKPT_DIFF_SHAPE, CKPT_DIFF_ONLY_A, CKPT_DIFF_ONLY_B };

/* A tensor that differs. Everything after `dims` is of CKPT_DIFF_VALUES. */
struct ckpt_diff_tensor {
	const char *name;
	enum ckpt_diff_kind kind;
	int dims;
	int64_t elements, count; /* of the tensor; those whose bits differ */
	int64_t first[2];        /* the first of them in row-major order */
	int64_t not_finite;      /* how many of them are NaN or infinite in A or B */
	double max_abs;          /* the largest |a - b| of the finite ones */
	/* |a - b| / |a|, norms over the finite elements that were read; infinite if |a| is 0 */
	double relative;
};

struct ckpt_diff {
	int64_t tensors, differing;
	int64_t read, skipped; /* bytes of both checkpoints */
};

/* Calls visit for each tensor that differs, in the order of A, then those that only B has; its
 * error ends the comparison. ma, mb: the manifests of the checkpoints a and b. ERR_CORRUPT: one of
 * them is damaged. */
int ckpt_diff(const char *a, const struct manifest *ma, const char *b, const struct manifest *mb,
	      int (*visit)(void *arg, const struct ckpt_diff_tensor *t, struct err *e), void *arg,
	      struct ckpt_diff *out, struct err *e);

#endif
