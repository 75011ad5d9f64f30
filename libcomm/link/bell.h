/*
 * bell — a pipe that wakes a sleeper which also polls sockets.
 *
 * A group that uses TCP sleeps in poll(2) on its sockets and its bell. The
 * ranks of the same host reach the bell through /proc/<pid>/fd, so it has no
 * name; the threads of this process ring it for an arrived connection or an
 * abort.
 */
#ifndef MUSTER_LIBCOMM_LINK_BELL_H
#define MUSTER_LIBCOMM_LINK_BELL_H

#include "base/err.h"

#include <sys/types.h>

struct bell {
	int rx, tx; /* -1: no bell */
};

#define BELL_NONE \
	{ \
		-1, -1 \
	}

int comm_bell_open(struct bell *b, struct err *e);
void comm_bell_close(struct bell *b);
/* Opens the bell whose tx is descriptor `tx` in process `pid`: *fd is for comm_bell_ring. */
int comm_bell_reach(pid_t pid, int tx, int *fd, struct err *e);
void comm_bell_ring(int fd);
/* Takes all rings out. */
void comm_bell_hush(const struct bell *b);

#endif
