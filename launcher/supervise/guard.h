/*
 * guard — the supervisor's side of the guard (launcher/slurm/guard.h): starts it on another node,
 * sends it a sign of life every second, and replaces it if it is lost.
 *
 * The guard runs on a node without ranks if there is one, otherwise on the last node, never on the
 * supervisor's own node. Among several, the node whose guard was lost longest ago is taken. An
 * allocation of one node, a local run and a supervisor outside the allocation's nodes (salloc on a
 * login node) have no guard: when their supervisor is gone, so is the job, or a person is there.
 *
 * Guards have a listener and a secret of their own, which last for the whole run, because the
 * agents' secret is new in each generation.
 *
 * The loss of a guard never disturbs training. A guard that cannot be started is tried again after
 * a second, then after twice as long, up to a minute.
 *
 * The first guard starts when the run has finished its first step, so that it does not delay it, or
 * after 10 seconds.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_GUARD_H
#define MUSTER_LAUNCHER_SUPERVISE_GUARD_H

#include "base/auth.h"
#include "launcher/launch.h"
#include "launcher/supervise/pool.h"

struct supervise_guard;

struct supervise_guard_options {
	uv_loop_t *loop;
	const struct launch_ops *ops;
	const struct job *job;
	const char *run_dir;
	const char *address; /* of the agents' listener: guards get another port of its host */
	const char *auth;    /* value of AGENT_ENV_AUTH */
	const struct voucher *voucher; /* as of struct connections_options */
	double (*now)(void);
	/* Something about the guard, for events and people. node: "" if none is concerned. */
	void (*report)(void *arg, const char *node, const char *text);
	void *arg;
};

/* The strings and objects of `o` are borrowed. *out is NULL if this run needs no guard. */
int supervise_guard_open(const struct supervise_guard_options *o, struct supervise_guard **out,
			 struct err *e);

/* Sets the nodes that guards may run on: those of the pool that can be used. used: what the ranks
 * run on. A guard on a node that cannot be used is replaced. Nothing is borrowed. Takes NULL for
 * g. */
void supervise_guard_nodes(struct supervise_guard *g, const struct pool *pool,
			   const struct deployment *used);
/* To be called several times per second. stepped: the run has finished a step. Takes NULL. */
void supervise_guard_tick(struct supervise_guard *g, bool stepped);
/* Releases the guard. The loop must run once more. Takes NULL. */
void supervise_guard_close(struct supervise_guard *g);

#endif
