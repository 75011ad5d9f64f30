/*
 * offload — updates of tensors that are in the host's memory while the backend is a device
 * (offload.optimizer).
 *
 * The states, and the masters if they are offloaded too (param_store.h), pass through two buffers
 * in the device's memory in turn. While one part is updated, the next part is copied in and the
 * previous part is copied out. The idea is ZeRO-Offload's (Ren et al., arXiv 2101.06840), but the
 * update itself stays on the device.
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_OFFLOAD_H
#define MUSTER_AGENT_ENGINE_OPTIM_OFFLOAD_H

#include "base/err.h"
#include "kernels/ops.h"

#include <stdbool.h>
#include <stdint.h>

struct optim_offload;

/* states: how many an update has, 1 or 2; masters: whether u->p is in the host's memory too. */
int optim_offload_open(struct backend *k, int states, bool masters, struct optim_offload **out,
		       struct err *e);
/* Accepts NULL. */
void optim_offload_close(struct optim_offload *a);

/* Queues n updates whose m and v (and p) are memory of backend_host_alloc. Calls `apply` with each
 * part, in which these are pointers into the device's memory. */
void optim_offload_update(struct optim_offload *a, const struct update *u, int n,
			  void (*apply)(const struct update *part, void *arg), void *arg);
/* Waits until all updated parts are back in the host's memory. */
int optim_offload_wait(struct optim_offload *a, struct err *e);

#endif
