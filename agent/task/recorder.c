#include "agent/task/recorder.h"

#include "base/run_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder is the user's, so the path may be anything. A full FIFO holds requests enough. */
static int write_request(int fd, const char *path, struct err *e)
{
	struct stat st;
	if (fstat(fd, &st) || !S_ISFIFO(st.st_mode))
		return err_set(e, ERR_IO, "%s: it is no FIFO; remove it", path);
	if (write(fd, "1", 1) == 1 || errno == EAGAIN)
		return 0;
	return err_errno(e, errno == EPIPE ? ERR_NOTFOUND : ERR_IO, "%s: cannot write", path);
}

int task_recorder_request(const char *dir, int rank, struct err *e)
{
	char path[RUN_PATH];
	run_path_torch_pipe(path, dir, rank);
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	bool absent = fd < 0 && (errno == ENOENT || errno == ENXIO || errno == ENOTDIR);
	if (fd < 0)
		return err_errno(e, absent ? ERR_NOTFOUND : ERR_IO,
				 "%s: cannot ask PyTorch's flight recorder", path);
	int rc = write_request(fd, path, e);
	close(fd);
	return rc;
}
