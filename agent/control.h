/*
 * control — the agent's end of the control channel.
 *
 * A thread of its own owns the socket: it sends what the trainer queues, beats
 * the heart, and acts at once on stop and abort, whatever the trainer is doing.
 * When the supervisor is gone or says abort, `on_abort` runs (the trainer's
 * communicators are aborted) and the process leaves by itself within a second:
 * no orphan stays behind, even when the trainer sits in a library that does not
 * come back.
 *
 * SIGTERM, SIGINT and SIGUSR1 do not end an agent: the supervisor is told of
 * them and decides. agent_control_block_signals is therefore a main's first call.
 */
#ifndef MUSTER_AGENT_CONTROL_H
#define MUSTER_AGENT_CONTROL_H

#include "base/err.h"
#include "base/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct control;
struct voucher; /* base/auth.h */

struct control_options {
	const char *address; /* of the supervisor */
	const char *secret;  /* hex */
	uint32_t generation;
	int rank, world;
	const char *node;
	/* the supervisor must have a MUNGE credential, too; NULL: the secret is enough */
	const struct voucher *voucher;
};

/* Before any thread is made: they inherit the mask. */
void agent_control_block_signals(void);

/* Connects, proves, says hello and waits for welcome: *welcome is its body, owned by the
 * control. */
int agent_control_open(const struct control_options *opt, struct control **out, json_t **welcome,
		       struct err *e);
/* Sends what is queued (at most a second), closes. When the agent must leave anyway it only
 * returns: the thread sees to the end of the process. Takes NULL. */
void agent_control_close(struct control *c);

/* This host's address (without port) on the way to the supervisor. */
const char *agent_control_local_address(const struct control *c);

/* fn is called once, when the agent must leave: on the control thread, or at once on the caller's
 * when that is already so. It may neither log nor send. NULL: nothing is called any more once this
 * has returned. */
void agent_control_on_abort(struct control *c, void (*fn)(const char *reason, void *arg),
			    void *arg);

/* fn writes the flight recorder, on the control thread, whenever the supervisor asks for it; it may
 * neither log nor send. NULL, as above. */
void agent_control_on_dump(struct control *c, int (*fn)(void *arg, struct err *e), void *arg);

/* Any thread. Steals the reference to body. Before "failed" goes where the trainer is. */
void agent_control_send(struct control *c, enum msg_type type, json_t *body);
/* Where the trainer is: cheap, no system call. The supervisor hears of it with every heartbeat and,
 * when it changes, up to ten times a second (less often in a world of more than 200 ranks). phase:
 * a literal such as "forward". */
void agent_control_progress(struct control *c, int64_t step, const char *phase);
/* It is still there, and has moved: work that takes long inside one phase calls this, on any
 * thread. */
void agent_control_moved(struct control *c);
/* Waits until the supervisor has all metrics and evaluations up to this step in the run folder,
 * which another rank may have sent: ERR_PROTO after `seconds`, ERR_ABORTED when the agent must
 * leave or agent_control_give_up was called. Any thread. */
int agent_control_await_recorded(struct control *c, int64_t step, double seconds, struct err *e);
/* This rank has failed: whoever waits above, now or later, waits no more. */
void agent_control_give_up(struct control *c);
/* A stop was asked for; *checkpoint says whether to write one first. */
bool agent_control_stopping(struct control *c, bool *checkpoint);

#endif
