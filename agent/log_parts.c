#include "agent/log_parts.h"

#include "base/file.h"
#include "base/segments.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 4 };

/* The lock keeps log_folder.c from removing a log of the node that is seldom written. */
static int open_file(const struct agent_log *l, struct err *e)
{
	char path[RUN_PATH];
	segments_path(path, l->folder, l->name, 0);
	int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
	if (fd >= 0 && *l->shared)
		flock(fd, LOCK_SH | LOCK_NB);
	return fd;
}

void agent_log_name(char out[AGENT_LOG_NAME], const struct agent_log_place *at)
{
	char path[RUN_PATH];
	run_path_rank_log(path, at->run, at->node, at->rank);
	snprintf(out, AGENT_LOG_NAME, "%.299s", strrchr(path, '/') + 1);
}

bool agent_log_is_shared(const struct agent_log_place *at)
{
	char path[RUN_PATH];
	run_path_rank_log(path, at->run, at->node, at->rank);
	return file_exists(path);
}

int agent_log_open(struct agent_log *l, const struct agent_log_place *at, int64_t keep,
		   struct err *e)
{
	*l = (struct agent_log){ .fd = -1, .keep = keep };
	agent_log_name(l->name, at);
	run_path(l->folder, at->run, RUN_LOGS);
	if (at->local && !agent_log_is_shared(at)) {
		memcpy(l->shared, l->folder, sizeof l->shared);
		snprintf(l->folder, sizeof l->folder, "%s", at->local);
	}
	if (*l->shared)
		agent_log_recover(l);
	l->fd = open_file(l, e);
	if (l->fd < 0)
		return -1;
	pthread_mutex_init(&l->lock, NULL);
	return 0;
}

void agent_log_close(struct agent_log *l)
{
	if (l->fd < 0)
		return;
	close(l->fd);
	l->fd = -1;
	pthread_mutex_destroy(&l->lock);
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

int64_t agent_log_whole_size(const struct agent_log *l)
{
	struct segments s;
	struct stat st;
	char path[RUN_PATH];
	int64_t sum = agent_log_size(l);
	if (segments_list(l->folder, l->name, &s, NULL))
		return sum;
	for (int i = 0; i < s.n; i++) {
		segments_path(path, l->folder, l->name, s.numbers[i]);
		sum += stat(path, &st) ? 0 : st.st_size;
	}
	segments_free(&s);
	return sum;
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

uint32_t agent_log_last_part(const char *folder, const char *name)
{
	struct segments s;
	if (segments_list(folder, name, &s, NULL))
		return 0;
	uint32_t last = s.n ? s.numbers[s.n - 1] : 0;
	segments_free(&s);
	return last;
}

/* Gives the file the name of the next part: also after those that have moved, so that a number names one text. */
static bool rename_file(const struct agent_log *l, const char *path)
{
	char part[RUN_PATH];
	uint32_t last = agent_log_last_part(l->folder, l->name);
	uint32_t shared = *l->shared ? agent_log_last_part(l->shared, l->name) : 0;
	segments_path(part, l->folder, l->name, (last > shared ? last : shared) + 1);
	return !file_exists(part) && !rename(path, part);
}

static void split(struct agent_log *l)
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

/* A thread that logs does not wait while the log is collected. */
void agent_log_split(struct agent_log *l)
{
	if (pthread_mutex_trylock(&l->lock))
		return;
	split(l);
	pthread_mutex_unlock(&l->lock);
}
