#include "libcomm/link/bell.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int comm_bell_open(struct bell *b, struct err *e)
{
	int fd[2];
	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_errno(e, ERR_NOMEM, "cannot make a pipe");
	*b = (struct bell){ fd[0], fd[1] };
	return 0;
}

void comm_bell_close(struct bell *b)
{
	if (b->rx >= 0) {
		close(b->rx);
		close(b->tx);
	}
	*b = (struct bell)BELL_NONE;
}

int comm_bell_reach(pid_t pid, int tx, int *fd, struct err *e)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, tx);
	/* For reading too: a pipe without a reader would raise SIGPIPE. */
	int got = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (got < 0)
		return err_errno(e, ERR_PEER, "cannot open the bell %s", path);
	if (fstat(got, &st) < 0 || !S_ISFIFO(st.st_mode)) {
		close(got);
		return err_set(e, ERR_PEER, "%s is not a bell: that process has ended", path);
	}
	*fd = got;
	return 0;
}

void comm_bell_ring(int fd)
{
	/* A full pipe rings already. */
	if (write(fd, "", 1) < 0)
		return;
}

void comm_bell_hush(const struct bell *b)
{
	char rings[256];
	while (read(b->rx, rings, sizeof rings) == (ssize_t)sizeof rings)
		continue;
}
