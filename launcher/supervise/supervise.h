/*
 * supervise — keeps a run going: one generation after another until it is
 * done, stopped, or not worth trying.
 *
 * All of it happens on one libuv loop and one thread. What is known of the
 * agents comes from their control connections (launcher/supervise/connections.h)
 * and from the launch backend (launcher/launch.h); what to do about it is in
 * one table of states and events (states.c). The supervisor has no checkpoint
 * code: after a loss it tells the agents to resume from the newest checkpoint
 * that they find valid ("auto").
 *
 * A person's stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1) lets the agents finish the
 * step, write a checkpoint and leave together; a second SIGINT ends them at once.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_SUPERVISE_H
#define MUSTER_LAUNCHER_SUPERVISE_SUPERVISE_H

#include "base/err.h"
#include "launcher/launch.h"
#include "launcher/status.h"
#include "launcher/rundir/rundir.h"
#include "launcher/supervise/terminal.h"
#include "plan/plan.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

struct supervise_limits { /* seconds, but for strangers */
	double heartbeat; /* asked of the agents */
	double silent;    /* without a message: a rank is taken for dead */
	double start;     /* until every rank has said hello */
	/* for the agents to stop on request, at least; as long as [restart] hang_timeout and
	 * [slurm] signal_before */
	double stop;
	/* a rank that blames another one is believed after this, unless the culprit shows itself
	 * first */
	double settle;
	/* for the agents to write their flight recorders, and again for these to be read */
	double trace;
	/* for killed or finished processes to be gone, then they are killed again */
	double drain;
	double handshake; /* for a connection to say who it is */
	int strangers;    /* unclaimed connections at a time, above one for each rank */
};

#define SUPERVISE_LIMITS \
	{ \
		.heartbeat = 0.5, .silent = 15, .start = 120, .stop = 120, .settle = 0.1, \
		.trace = 1, .drain = 10, .handshake = 10, .strangers = 32 \
	}

/* Everything is borrowed until supervisor_close, but for the listener, which is taken over. */
struct supervise_options {
	uv_loop_t *loop;
	const struct job *job;
	const struct cluster *cluster;
	const struct plan *plan;
	const char *job_text; /* the resolved job */
	json_t *plan_doc;     /* plan_json */
	const struct launch_ops *ops;
	const char *agent; /* path of muster-agent */
	struct rundir *run;
	struct terminal *term;
	/* of the control channel; -1: none, connections come by supervisor_adopt */
	int listener;
	const char *address; /* where it listens */
	struct supervise_limits limits;
	double (*now)(void); /* a clock that goes forward, in seconds */
};

/* Runs it all: signals, ticks, generations. Returns the exit status. */
int supervise_run(const struct supervise_options *o);

/* The parts, for tests: the caller runs the loop and calls supervisor_tick whenever time has
 * gone by. */
struct supervisor;

int supervisor_open(const struct supervise_options *o, struct supervisor **out, struct err *e);
/* Starts the first generation; when even that fails, the supervisor is done at once. */
void supervisor_start(struct supervisor *s);
void supervisor_tick(struct supervisor *s);
void supervisor_adopt(struct supervisor *s, int fd);
/* now: do not wait for the agents to finish what they do. */
void supervisor_stop(struct supervisor *s, const char *reason, bool now);
bool supervisor_done(const struct supervisor *s, int *status);
/* Only when done. The loop must run once more, for the closing of its handles. */
void supervisor_close(struct supervisor *s);

#endif
