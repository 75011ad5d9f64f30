#include "libcomm/p2p/wakeup.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int comm_wakeup_open(struct wakeup_pipe *b, struct err *e)
{
	int fd[2];
	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_errno(e, ERR_NOMEM, "cannot create a pipe");
	*b = (struct wakeup_pipe){ fd[0], fd[1] };
	return 0;
}

void comm_wakeup_close(struct wakeup_pipe *b)
{
	if (b->rx >= 0) {
		close(b->rx);
		close(b->tx);
	}
	*b = (struct wakeup_pipe)WAKEUP_NONE;
}

int comm_wakeup_open_remote(pid_t pid, int tx, int *fd, struct err *e)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, tx);
	/* Also for reading: a pipe without a reader would raise SIGPIPE. */
	int got = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (got < 0)
		return err_errno(e, ERR_PEER, "cannot open the wake-up pipe %s", path);
	if (fstat(got, &st) < 0 || !S_ISFIFO(st.st_mode)) {
		close(got);
		return err_set(e, ERR_PEER, "%s is not a wake-up pipe: its process has ended",
			       path);
	}
	*fd = got;
	return 0;
}

void comm_wakeup_signal(int fd)
{
	/* A full pipe already wakes the sleeper. */
	if (write(fd, "", 1) < 0)
		return;
}

void comm_wakeup_drain(const struct wakeup_pipe *b)
{
	char rings[256];
	while (read(b->rx, rings, sizeof rings) == (ssize_t)sizeof rings)
		continue;
}
