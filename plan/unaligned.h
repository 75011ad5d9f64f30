/*
 * ragged — sizes that make matrix products slow on GPUs.
 *
 * Tensor cores read 16 bytes at a time: rows of 2-byte numbers whose length is no multiple of 8 are
 * not aligned, and cuBLASLt takes other kernels for them, several times slower (NVIDIA, "Matrix
 * Multiplication Background User's Guide", section 2.1).
 */
#ifndef MUSTER_PLAN_RAGGED_H
#define MUSTER_PLAN_RAGGED_H

#include "base/buf.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

/* Appends what of the model is ragged on some tp rank, each with the next good value: "…; …".
 * Nothing where all is well, or the device is a CPU. */
void plan_unaligned_print(const struct job *job, const struct model_shape *m,
			  const struct layout *l, struct buf *out);

#endif
