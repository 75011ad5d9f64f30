/*
 * limit — the time that a command or a host has for its answer.
 *
 * It is counted in slices, each by a turn of the loop: if this process does not run for seconds,
 * as on a busy host, only one slice passes, and what has arrived meanwhile is read before the
 * limit is over.
 */
#ifndef MUSTER_LAUNCHER_SLURM_LIMIT_H
#define MUSTER_LAUNCHER_SLURM_LIMIT_H

#include <uv.h>

/* It must stay where it is until slurm_limit_close() has called back. */
struct slurm_limit {
	uv_timer_t timer;
	int slices; /* left */
	void (*over)(void *arg);
	void *arg;
};

void slurm_limit_init(struct slurm_limit *l, uv_loop_t *loop);
/* Calls `over` once, on the loop and never within this call, `ms` milliseconds from now, rounded
 * down to whole slices. A limit that runs already is replaced. */
void slurm_limit_start(struct slurm_limit *l, int ms, void (*over)(void *arg), void *arg);
void slurm_limit_stop(struct slurm_limit *l);
/* `over` is not called any more; `closed` is, on the loop. The limit must have been initialized. */
void slurm_limit_close(struct slurm_limit *l, void (*closed)(void *arg), void *arg);

#endif
