/*
 * wakeup — a pipe that wakes a sleeper that also polls sockets.
 *
 * A group that uses TCP sleeps in poll(2) on its sockets and its wake-up pipe. The ranks of the
 * same host reach the pipe through /proc/<pid>/fd, so it has no name. The threads of this process
 * signal it when a connection has arrived or the world fails.
 */
#ifndef MUSTER_LIBCOMM_P2P_WAKEUP_H
#define MUSTER_LIBCOMM_P2P_WAKEUP_H

#include "base/err.h"

#include <sys/types.h>

struct wakeup_pipe {
	int rx, tx; /* -1: no pipe */
};

#define WAKEUP_NONE \
	{ \
		-1, -1 \
	}

int comm_wakeup_open(struct wakeup_pipe *b, struct err *e);
void comm_wakeup_close(struct wakeup_pipe *b);
/* Opens the pipe whose tx is descriptor `tx` of process `pid`; *fd is for comm_wakeup_signal. */
int comm_wakeup_open_remote(pid_t pid, int tx, int *fd, struct err *e);
void comm_wakeup_signal(int fd);
/* Removes all signals. */
void comm_wakeup_drain(const struct wakeup_pipe *b);

#endif
