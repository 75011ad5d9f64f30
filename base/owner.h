/*
 * owner — whose process is at the other end of a connection.
 *
 * For connections inside this host the kernel says which user has made the other end: SO_PEERCRED
 * of a Unix socket, and netlink's sock_diag of a TCP one (sock_diag(7)). It cannot be forged,
 * unlike a user id that the peer sends.
 *
 * Processes in another user namespace than ours, on a network namespace that both share, count as
 * another user's.
 *
 * Both calls may come from any thread and take about 20 µs.
 */
#ifndef MUSTER_BASE_OWNER_H
#define MUSTER_BASE_OWNER_H

#include <stdbool.h>

enum owner {
	OWNER_UNKNOWN, /* on another host, or this kernel does not tell */
	OWNER_SELF,    /* a process of our own effective user */
	OWNER_OTHER,   /* another user's, or it has closed its end and nobody can tell any more */
};

/* fd is a connected socket. */
enum owner owner_of_peer(int fd);

/* Whether owner_of_peer can tell about TCP connections here: some sandboxes and kernels have no
 * sock_diag. */
bool owner_known_for_tcp(void);

#endif
