/*
 * device — libcomm's half of the device that a rank computes on.
 *
 * backend_open_device takes the operations out of libmuster-cuda.so; the groups whose tensors lie
 * in the device's memory need libcomm's table out of the same library (backend_cuda_symbol).
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_DEVICE_H
#define MUSTER_AGENT_ENGINE_PARALLEL_DEVICE_H

#include "base/err.h"
#include "libcomm/comm.h"

/* The table; stays good for the life of the process. ERR_UNSUPPORTED: there is no such library,
 * or it is another version's. */
int parallel_device_table(const struct comm_device **out, struct err *e);

/* The one to compute on, of those that this process sees, when the launcher has dealt it the
 * slot-th of the node: Slurm may show a task only its own, and more ranks than there are devices
 * share them in turn. */
int parallel_device_of_slot(int slot);

#endif
