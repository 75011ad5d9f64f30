/*
 * server — the PMIx server of one generation for the ranks of one node.
 *
 * It is a process of its own, forked from its owner (the launcher, or the helper of a node), because
 * libpmix's server can crash or hang if a client dies while it connects, and the owner has to survive
 * that. Each generation gets a new process and with it a new namespace, because PMIx cannot replace a
 * dead process of a namespace. At the end the process removes what its clients have asked it to remove,
 * and is killed if it is stuck; it dies with its owner. It listens on the loopback address only and
 * keeps its files in a folder of its own.
 *
 * If the namespace has ranks on several nodes, each node has such a server. The owners exchange what
 * their ranks put before each fence: local_server_receive() gives what those of this node have put,
 * and local_server_answer() takes what those of all nodes have put. On one node nothing comes.
 */
#ifndef MUSTER_LAUNCHER_PMIX_SERVER_H
#define MUSTER_LAUNCHER_PMIX_SERVER_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/pmix/register.h"

struct local_server;

/* Returns when the node's ranks may connect. dir: the server's folder, whose contents are removed;
 * local_server_close() removes it. The library prints to log_fd. ERR_PEER: the process was killed or
 * crashed before that; the caller may try again. */
int local_server_open(const struct local_group *g, const char *dir, int log_fd,
		      struct local_server **out, struct err *e);
void local_server_close(struct local_server *s);
/* The environment variables with which a rank finds the server; ends with NULL, owned by the
 * server. place: of the rank among those of the node, from 0. */
char *const *local_server_env(const struct local_server *s, int place);

/* A descriptor that is readable if local_server_receive() has something to do. */
int local_server_fd(const struct local_server *s);
/* 1: *put is what the node's ranks have put before their next fence. 0: there is nothing yet. -1: the
 * process has ended. */
int local_server_receive(struct local_server *s, struct buf *put, struct err *e);
/* Ends the oldest open fence of the node: `all` is what the ranks of all nodes have put, in any
 * order of the nodes. */
int local_server_answer(struct local_server *s, const struct buf *all, struct err *e);

#endif
