/* reduce — the arithmetic of NCCL's double. */
#ifndef MUSTER_TESTS_GPU_REDUCE_H
#define MUSTER_TESTS_GPU_REDUCE_H

#include <nccl.h>
#include <stddef.h>

size_t double_type_size(ncclDataType_t type);
/* out[i] = out[i] op in[i]. For an average, sums. */
void double_fold(ncclDataType_t type, ncclRedOp_t op, void *out, const void *in, size_t count);
/* Divides a sum by n; integers towards zero. */
void double_average(ncclDataType_t type, void *out, size_t count, int n);

#endif
