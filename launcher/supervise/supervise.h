/*
 * supervise — keeps a run going, one generation after another, until it is done, is stopped, or a
 * restart is not worth trying.
 *
 * Everything runs on one libuv loop and one thread, except the writes to standard output
 * (terminal.h): their reader must not stop the loop. The supervisor learns about the agents from
 * their control connections (launcher/connections.h) and from the launch backend
 * (launcher/launch.h). One table of states and events (transitions.c) decides what it does. The
 * supervisor has no checkpoint code: after a loss the agents resume from the last checkpoint that
 * they find valid ("auto").
 *
 * On SIGINT, SIGTERM, SIGHUP or SIGUSR1 the agents finish the step, write a checkpoint and exit
 * together. A second SIGINT ends them at once.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_SUPERVISE_H
#define MUSTER_LAUNCHER_SUPERVISE_SUPERVISE_H

#include "base/err.h"
#include "launcher/connections.h"
#include "launcher/deployment.h"
#include "launcher/launch.h"
#include "launcher/status.h"
#include "launcher/rundir/rundir.h"
#include "launcher/suspects/suspects.h"
#include "launcher/supervise/terminal.h"

#include <stdbool.h>
#include <uv.h>

struct supervise_limits {  /* seconds, except heartbeats and strangers */
	double heartbeat;  /* between two messages progress of an agent, at least (heartbeat.h) */
	double heartbeats; /* that all agents of a large world together send per second */
	double silent;     /* without a message a rank counts as dead */
	double start;      /* until every rank has connected */
	/* for the agents to stop on request; at least [restart] hang_timeout and [slurm]
	 * signal_before */
	double stop;
	/* after a rank blamed another one, until its own loss counts, unless another rank is lost
	 * first */
	double settle;
	/* for the agents to write their flight recorders, and again to read these */
	double trace;
	/* for killed or finished processes to end; after that they are killed again */
	double drain;
	/* for agents of a program to end their tasks and leave; after that they are killed */
	double leave;
	double survey;    /* to find out the state of the nodes after the processes have ended */
	double look;      /* between two surveys while the run waits for a node */
	double handshake; /* for a connection to identify itself */
	int strangers;    /* unclaimed connections at a time, in addition to one per rank */
};

#define SUPERVISE_LIMITS \
	{ \
		.heartbeat = 0.5, .heartbeats = 4000, .silent = 15, .start = 120, .stop = 120, \
		.settle = 0.1, .trace = 1, .drain = 10, .leave = 3, .survey = 5, .look = 5, \
		.handshake = 10, .strangers = 32 \
	}

/* Everything is borrowed until supervise_close(), except the listener, which is taken over. */
struct supervise_options {
	uv_loop_t *loop;
	const struct job *job;          /* as it was asked for: keys may be open */
	const struct cluster *machines; /* all nodes that the run may use, spares included */
	const struct deployment *first; /* what the first generation runs */
	const struct launch_ops *ops;
	const char *agent; /* path of muster-agent */
	const char *needs; /* of the job, for struct check_request; NULL: no node is checked */
	struct rundir *run;
	struct terminal *term;
	const struct suspects_place *suspects; /* NULL: the list of suspect nodes is not kept */
	const char *cluster;                   /* of the machines, for that list */
	const bool *suspected; /* [machines->n_nodes] by earlier runs; NULL: none is */
	/* of the control channel; -1: none, connections come by supervise_adopt() */
	int listener;
	const char *address; /* of the listener; NULL: the run has none, and no console either */
	struct supervise_limits limits;
	double (*now)(void); /* a monotonic clock, in seconds */
	const char *root;    /* the folder that holds proc/ and sys/; NULL: "/" */
};

/* Runs the whole run: signals, ticks, generations. Returns the exit status. */
int supervise_run(const struct supervise_options *o);

/* The parts of supervise_run(), for tests: the caller runs the loop and calls supervise_tick()
 * whenever time has passed. */
struct supervisor;

int supervise_open(const struct supervise_options *o, struct supervisor **out, struct err *e);
/* Starts the first generation. If that fails, the supervisor is done at once. */
void supervise_start(struct supervisor *s);
void supervise_tick(struct supervisor *s);
/* The time of the next tick, at the latest: SUPERVISE_TICK_MOST seconds after the last one, or when
 * something is due. For a caller for whom ticks are expensive. */
#define SUPERVISE_TICK_MOST 0.5
double supervise_due(const struct supervisor *s);
void supervise_adopt(struct supervisor *s, int fd);
/* The same for an agent without a socket: launcher_connections_attach(). */
int supervise_attach(struct supervisor *s, const struct connection_carrier *by,
		     const unsigned char secret[AUTH_SECRET_BYTES], struct connection **out,
		     struct err *e);
/* now: do not wait until the agents have finished the step. */
void supervise_stop(struct supervisor *s, const char *reason, bool now);
bool supervise_done(const struct supervisor *s, int *status);
/* Call only when done. Afterwards the loop must run once more, to close its handles. */
void supervise_close(struct supervisor *s);

#endif
