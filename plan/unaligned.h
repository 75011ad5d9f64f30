/*
 * unaligned — sizes that make matrix products slow on GPUs.
 *
 * Tensor cores read 16 bytes at a time. Rows of 2-byte numbers whose length is not a multiple of 8
 * are not aligned, and cuBLASLt uses other kernels for them, which are several times slower
 * (NVIDIA, "Matrix Multiplication Background User's Guide", section 2.1). In 8 bits the sizes must be
 * multiples of 16: cuBLASLt has no other products, and muster's own are many times slower. The
 * number of tokens may be any, because transposed copies are padded (activations_fp8_row).
 */
#ifndef MUSTER_PLAN_UNALIGNED_H
#define MUSTER_PLAN_UNALIGNED_H

#include "base/buf.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

/* Appends a warning that names the sizes of the model that are unaligned on some tp rank, each with
 * the next aligned value. Appends nothing if all are aligned or the device is a CPU. */
void plan_unaligned_print(const struct job *job, const struct model_shape *m,
			  const struct layout *l, struct buf *out);

#endif
