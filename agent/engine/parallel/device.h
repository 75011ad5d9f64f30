/*
 * device — libcomm's table for the device that a rank computes on.
 *
 * backend_open_device loads the operations from libmuster-cuda.so. Groups whose tensors are in the
 * device's memory need libcomm's table from the same library (backend_cuda_symbol).
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_DEVICE_H
#define MUSTER_AGENT_ENGINE_PARALLEL_DEVICE_H

#include "base/err.h"
#include "kernels/source.h"
#include "libcomm/comm.h"

/* Sets *out to the table, which stays valid until the process ends. ERR_UNSUPPORTED: the library is
 * missing, or has another version. */
int parallel_device_table(const struct comm_device **out, struct err *e);

/* The index of the device to compute on, among those that this process sees, for the rank that the
 * launcher has put into slot `slot` of the node. Slurm may show a task only its own devices. If there
 * are more ranks than devices, they share devices round-robin. */
int parallel_device_of_slot(int slot);

/* Opens a source of the device's memory that its library of collectives can use without copies
 * once it is registered (comm_register). It has none if the library has none; a failure is
 * logged once. To be closed after its memory is freed. */
int parallel_memory_open(const struct comm_device_options *device, struct backend_source *out,
			 struct err *e);
/* Accepts a source of zeros. */
void parallel_memory_close(struct backend_source *s);

/* A piece of memory of the backend, for parallel_memory_register. */
struct comm_memory parallel_memory_piece(const struct backend *k, void *at, size_t bytes);
/* Collective over each of the groups; NULL: one rank. Registers the n pieces with each of them
 * (comm_register). Operations copy through buffers of the library where that is impossible, which is
 * logged once. what: the contents, as in "%s are copied". */
int parallel_memory_register(struct comm *const groups[], int n_groups,
			     const struct comm_memory *list, int n, const char *what,
			     struct err *e);

#endif
