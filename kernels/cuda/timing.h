/*
 * timing — how long queued work takes on the device, and whether a call can be measured. For those
 * who choose between ways to compute the same thing (blas_measure.c, attention_measure.c).
 */
#ifndef MUSTER_KERNELS_CUDA_TIMING_H
#define MUSTER_KERNELS_CUDA_TIMING_H

#include "kernels/cuda/cuda.h"

/* All zero before the first timing_open. */
struct timing {
	cudaEvent_t from, to;
};

/* Creates the events, unless they are there. false: the device has failed. */
bool timing_open(struct backend *k, struct timing *t);
void timing_close(struct timing *t);

/* Begins to measure what is queued on the backend's stream. where: as for cuda_fail. */
bool timing_begin(struct backend *k, const struct timing *t, const char *where);
/* Waits for it, and returns its seconds; INFINITY: the device has failed. */
double timing_end(struct backend *k, const struct timing *t, const char *where);
/* Sorts the values. */
double timing_median(double *values, int n);

/* Whether bytes in the middle of an array are not all zero. Waits for the device. */
bool timing_has_numbers(struct backend *k, const void *at, size_t bytes);
/* Whether two arrays have bytes in common; NULL has none. */
bool timing_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes);

#endif
