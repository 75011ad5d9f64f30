/*
 * link — one agent's connection to the supervisor: a socket, a channel, no thread.
 *
 * Calls come from one thread at a time; control.c holds a lock around them.
 */
#ifndef MUSTER_AGENT_LINK_H
#define MUSTER_AGENT_LINK_H

#include "agent/control.h"
#include "base/err.h"
#include "base/msg.h"
#include "base/net.h"

#include <stddef.h>

struct link;

/* Connects and queues hello. */
int agent_link_open(const struct control_options *opt, struct link **out, struct err *e);
void agent_link_close(struct link *l);

/* Waits for the supervisor's welcome, however long the slowest rank takes; *welcome is a new
 * reference. */
int agent_link_await_welcome(struct link *l, json_t **welcome, struct err *e);

/* Moves bytes both ways without waiting; the next message that is here: 1 and *m, 0 when there is
 * none. What came before the connection's end is still heard: an abort's reason tells more than
 * "closed". */
int agent_link_receive(struct link *l, struct msg *m, struct err *e);
/* Queues a message; borrows body. */
int agent_link_send(struct link *l, enum msg_type type, json_t *body, struct err *e);
/* Bytes that wait to be sent. */
size_t agent_link_backlog(struct link *l);
/* Nothing more will be sent. */
void agent_link_shut(struct link *l);

int agent_link_fd(const struct link *l);
/* This host's address, without port, on the way to the supervisor. */
const char *agent_link_local_address(const struct link *l);

#endif
