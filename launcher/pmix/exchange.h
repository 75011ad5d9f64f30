/*
 * exchange — the fences of a namespace that has ranks on several nodes, in the process of the PMIx
 * server (server.h).
 *
 * libpmix calls local_exchange_fence() on its own thread, once the ranks of this node have entered a
 * fence. It gets what they have put. The process's main thread, in local_exchange_serve(), hands
 * that to the owner as a frame, and hands the owner's answer to libpmix. The owner answers the fences
 * in their order, so there are fences of all ranks only.
 */
#ifndef MUSTER_LAUNCHER_PMIX_EXCHANGE_H
#define MUSTER_LAUNCHER_PMIX_EXCHANGE_H

#include "base/err.h"

#include <pmix_server.h>

/* Call before the server may get clients. */
int local_exchange_open(struct err *e);

/* The entry fence_nb of the server's module. */
pmix_status_t local_exchange_fence(const pmix_proc_t procs[], size_t n_procs,
				   const pmix_info_t info[], size_t n_info, char *data, size_t len,
				   pmix_modex_cbfunc_t done, void *arg);

/* Exchanges frames with the owner until it closes the socket. */
void local_exchange_serve(int fd);

#endif
