/*
 * reach — connects to many hosts at once, to learn which of them are alive.
 *
 * A connection is closed as soon as it exists; nothing is sent. All run in parallel on the loop,
 * name lookups included.
 */
#ifndef MUSTER_LAUNCHER_SLURM_REACH_H
#define MUSTER_LAUNCHER_SLURM_REACH_H

#include "base/err.h"

#include <uv.h>

enum reach_result {
	REACH_UNKNOWN, /* nothing was tried: its name is not known, or was not looked up in time */
	REACH_SILENT,  /* no answer within the time, or no route */
	REACH_REFUSED, /* the host is alive, but nobody listens on the port */
	REACH_CONNECTED
};

struct reach_target {
	const char *host; /* a name or an address; copied */
	int port;
};

struct reach;

/* `done` is called once, on the loop, with the n results in the order of the targets; they are
 * valid during the call. It is called after at most limit_ms, which count only while the loop runs
 * (limit.h). n may be 0. The reach is freed after it. */
int slurm_reach_start(uv_loop_t *loop, const struct reach_target *targets, int n, int limit_ms,
		      void (*done)(void *arg, const enum reach_result *results), void *arg,
		      struct reach **out, struct err *e);
/* `done` will not be called. */
void slurm_reach_stop(struct reach *r);

#endif
