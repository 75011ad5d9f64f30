/*
 * owner — the user of the process at the other end of a connection.
 *
 * For connections inside this host the kernel names the user that opened the other end: SO_PEERCRED
 * of a Unix socket, and netlink's sock_diag of a TCP one (sock_diag(7)). Unlike a user id that the
 * peer sends, it cannot be forged. launcher/connections.h and launcher/pmix/gate.h use
 * it.
 *
 * A process of another user namespace that shares our network namespace counts as another user's.
 *
 * Both functions may be called from any thread and take about 20 µs.
 */
#ifndef MUSTER_BASE_OWNER_H
#define MUSTER_BASE_OWNER_H

#include <stdbool.h>

enum owner {
	OWNER_UNKNOWN, /* it is on another host, or this kernel cannot name it */
	OWNER_SELF,    /* a process of our own effective user */
	OWNER_OTHER,   /* of another user, or it has closed its end, so that it cannot be found */
};

/* fd is a connected socket. */
enum owner owner_of_peer(int fd);

/* Whether owner_of_peer() works for TCP connections: some sandboxes and kernels have no
 * sock_diag. */
bool owner_known_for_tcp(void);

#endif
