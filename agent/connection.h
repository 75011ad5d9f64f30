/*
 * connection — one agent's connection to the supervisor, a socket and a channel (base/auth.h).
 *
 * It has no thread. Calls come from one thread at a time; control.c holds a lock around them.
 */
#ifndef MUSTER_AGENT_CONNECTION_H
#define MUSTER_AGENT_CONNECTION_H

#include "agent/control.h"
#include "base/err.h"
#include "base/msg.h"
#include "base/net.h"

#include <stddef.h>

struct connection;

/* Connects and queues hello. */
int agent_connection_open(const struct control_options *opt, struct connection **out,
			  struct err *e);
void agent_connection_close(struct connection *c); /* takes NULL */

/* Waits for the supervisor's welcome, the answer to hello. *welcome is its body, a new
 * reference. */
int agent_connection_await_welcome(struct connection *c, json_t **welcome, struct err *e);

/* Sends and receives without waiting. 1: *m is the next message. 0: there is none. Messages that
 * came before the connection closed are still delivered, because an abort's reason is more useful
 * than "closed". */
int agent_connection_receive(struct connection *c, struct msg *m, struct err *e);
/* Queues a message; borrows body. */
int agent_connection_send(struct connection *c, enum msg_type type, json_t *body, struct err *e);
/* From now on messages are of this generation. */
void agent_connection_renew(struct connection *c, uint32_t generation);
/* When the newest of the bytes that the supervisor's host has acknowledged were sent, at the latest
 * (base/clock.h). It is renewed by agent_connection_receive() while the connection is whole. */
double agent_connection_heard(const struct connection *c);
/* Bytes that are queued. */
size_t agent_connection_backlog(struct connection *c);
/* Ends the sending direction. */
void agent_connection_shut(struct connection *c);

int agent_connection_fd(const struct connection *c);
/* The address, without port, of the interface that leads to the supervisor. */
const char *agent_connection_local_address(const struct connection *c);

#endif
