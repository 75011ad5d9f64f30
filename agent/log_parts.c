#include "agent/log_parts.h"

#include "base/file.h"
#include "base/segments.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 4 };

static int open_file(const struct agent_log *l, struct err *e)
{
	char path[RUN_PATH];
	segments_path(path, l->folder, l->name, 0);
	return file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
}

int agent_log_open(struct agent_log *l, const char *run, const char *node, int rank, int64_t keep,
		   struct err *e)
{
	char path[RUN_PATH];
	*l = (struct agent_log){ .fd = -1, .keep = keep };
	run_path(l->folder, run, RUN_LOGS);
	run_path_rank_log(path, run, node, rank);
	snprintf(l->name, sizeof l->name, "%s", strrchr(path, '/') + 1);
	l->fd = open_file(l, e);
	return l->fd < 0 ? -1 : 0;
}

void agent_log_close(struct agent_log *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

int64_t agent_log_most(const struct agent_log *l)
{
	int64_t most = l->keep / PARTS;
	return l->keep && !most ? 1 : most;
}

int64_t agent_log_size(const struct agent_log *l)
{
	struct stat st;
	return fstat(l->fd, &st) ? 0 : st.st_size;
}

/* Whether the name is that of the file which is written: an older agent may have split it. */
static bool is_current(const struct agent_log *l, const char *path)
{
	struct stat a, b;
	return !fstat(l->fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void remove_oldest(const struct agent_log *l)
{
	struct segments s;
	struct stat st;
	char path[RUN_PATH];
	int64_t sum = agent_log_most(l); /* of the file itself */
	if (segments_list(l->folder, l->name, &s, NULL))
		return;
	for (int i = s.n - 1; i >= 0; i--) {
		segments_path(path, l->folder, l->name, s.numbers[i]);
		sum += stat(path, &st) ? 0 : st.st_size;
		if (sum > l->keep)
			unlink(path);
	}
	segments_free(&s);
}

/* Gives the file the name of the next part. */
static bool rename_file(const struct agent_log *l, const char *path)
{
	struct segments s;
	struct stat st;
	char part[RUN_PATH];
	if (segments_list(l->folder, l->name, &s, NULL))
		return false;
	segments_path(part, l->folder, l->name, s.n ? s.numbers[s.n - 1] + 1 : 1);
	segments_free(&s);
	return lstat(part, &st) && !rename(path, part);
}

void agent_log_split(struct agent_log *l)
{
	char path[RUN_PATH];
	segments_path(path, l->folder, l->name, 0);
	if (is_current(l, path) && !rename_file(l, path))
		return;
	/* Until then lines go to the part. */
	int fd = open_file(l, NULL);
	if (fd < 0)
		return;
	dup3(fd, l->fd, O_CLOEXEC);
	close(fd);
	remove_oldest(l);
}
