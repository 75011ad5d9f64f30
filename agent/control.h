/*
 * control — the agent's end of the control channel.
 *
 * A thread of its own owns the socket: it sends what the trainer queues, beats
 * the heart, and acts at once on stop and abort, whatever the trainer is doing.
 * When the supervisor is gone or says abort, `on_abort` runs (the trainer's
 * communicators are aborted) and the process leaves by itself within a second:
 * no orphan stays behind.
 */
#ifndef MUSTER_AGENT_CONTROL_H
#define MUSTER_AGENT_CONTROL_H

#include "base/err.h"
#include "base/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct control;

struct control_options {
	const char *address;   /* of the supervisor */
	const char *secret;    /* hex */
	uint32_t generation;
	int rank, world;
	const char *node;
};

/* Connects, proves, says hello and waits for welcome: *welcome is its body, owned by the control. */
int control_open(const struct control_options *opt, struct control **out, json_t **welcome, struct err *e);
/* Sends what is queued (at most a second), closes. */
void control_close(struct control *c);

/* Called on the control thread, once, when the agent must leave. */
void control_on_abort(struct control *c, void (*fn)(const char *reason, void *arg), void *arg);

/* Any thread. Steals the reference to body. */
void control_send(struct control *c, enum msg_type type, json_t *body);
/* What the heartbeat tells: cheap, no system call. phase: a literal such as "forward". */
void control_progress(struct control *c, int64_t step, const char *phase);
/* A stop was asked for; *checkpoint says whether to write one first. */
bool control_stopping(struct control *c, bool *checkpoint);

#endif
