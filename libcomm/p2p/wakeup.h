/*
 * bell — a pipe that wakes a sleeper which also polls sockets.
 *
 * A group that uses TCP sleeps in poll(2) on its sockets and its bell. The
 * ranks of the same host reach the bell through /proc/<pid>/fd, so it has no
 * name; the threads of this process ring it for an arrived connection or an
 * abort.
 */
#ifndef MUSTER_LIBCOMM_P2P_WAKEUP_H
#define MUSTER_LIBCOMM_P2P_WAKEUP_H

#include "base/err.h"

#include <sys/types.h>

struct wakeup_pipe {
	int rx, tx; /* -1: no bell */
};

#define WAKEUP_NONE \
	{ \
		-1, -1 \
	}

int comm_wakeup_open(struct wakeup_pipe *b, struct err *e);
void comm_wakeup_close(struct wakeup_pipe *b);
/* Opens the bell whose tx is descriptor `tx` in process `pid`: *fd is for comm_wakeup_signal. */
int comm_wakeup_open_remote(pid_t pid, int tx, int *fd, struct err *e);
void comm_wakeup_signal(int fd);
/* Takes all rings out. */
void comm_wakeup_drain(const struct wakeup_pipe *b);

#endif
