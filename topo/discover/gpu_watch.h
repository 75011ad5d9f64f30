/*
 * gpu_watch — one GPU that is read again and again while a rank trains.
 *
 * gpu_state.h starts the library for each reading and reads all GPUs, which takes up to seconds.
 * Here the library stays open. The calls never return if the driver hangs, so make them on a thread
 * that nobody waits for.
 */
#ifndef MUSTER_TOPO_DISCOVER_GPU_WATCH_H
#define MUSTER_TOPO_DISCOVER_GPU_WATCH_H

#include "base/err.h"
#include "topo/discover/gpu_state.h"

struct gpu_watch;

/* bus: its PCI address. On failure *out is NULL. ERR_NOTFOUND: there is no library, or no such
 * GPU. */
int topo_gpu_watch_open(const char *library, const char *bus, struct gpu_watch **out,
			struct err *e);
void topo_gpu_watch_close(struct gpu_watch *w); /* takes NULL */

/* The clock of its multiprocessors in MHz; -1: unknown. */
int topo_gpu_watch_clock(const struct gpu_watch *w);
/* Bits of GPU_SLOW_… at this moment; -1: unknown. */
int topo_gpu_watch_slow(const struct gpu_watch *w);
/* The whole state, as topo_gpu_states_read() gives it. */
void topo_gpu_watch_read(const struct gpu_watch *w, struct gpu_state *out);
/* How many XID messages about errors of the GPU the driver has reported since it was opened; *last:
 * the number of the last one. Messages that blame the program that runs on the GPU do not count
 * (NVIDIA, "XID Errors": 13, 31, 43, 45, 68, 69). -1: unknown. */
int topo_gpu_watch_xids(struct gpu_watch *w, unsigned *last);

#endif
