/*
 * away — updates of what lies in the host's memory while the backend's is a device's
 * (offload.optimizer).
 *
 * Moments, and masters that are away too (store.h), pass through two places in the device's memory
 * in turn: while one part is updated the next one comes and the last one goes. ZeRO-Offload's idea
 * (Ren et al., arXiv 2101.06840) with the update left on the device.
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_AWAY_H
#define MUSTER_AGENT_ENGINE_OPTIM_AWAY_H

#include "base/err.h"
#include "kernels/ops.h"

#include <stdbool.h>
#include <stdint.h>

struct optim_offload;

/* moments: of each update, 1 or 2; masters: whether p is away as well. */
int optim_away_open(struct backend *k, int moments, bool masters, struct optim_offload **out, struct err *e);
/* Takes NULL. */
void optim_away_close(struct optim_offload *a);

/* Queues n updates, whose m and v (and p) are memory of backend_host_alloc: `apply` is called
 * with each part, where those are the device's. */
void optim_away_update(struct optim_offload *a, const struct update *u, int n,
		       void (*apply)(const struct update *part, void *arg), void *arg);
/* Until what was updated is back in the host's memory. */
int optim_away_settle(struct optim_offload *a, struct err *e);

#endif
