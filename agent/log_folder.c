#include "agent/log_folder.h"

#include "base/file.h"
#include "plan/spec/job/node_path.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool is_old(const struct stat *st, double now)
{
	return now - (double)st->st_mtim.tv_sec > LOG_FOLDER_DAYS * 86400.0;
}

/* An agent holds a lock on the log that it writes (log_parts.c), however rarely that is. */
static bool is_locked(const char *path)
{
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	if (fd < 0)
		return false;
	bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
	return locked;
}

/* Whether nothing in the folder was changed for that long, and nobody writes there. */
static bool is_unused(const char *folder, double now)
{
	char path[RUN_PATH];
	struct stat st;
	struct dirent *at;
	bool unused = !lstat(folder, &st) && S_ISDIR(st.st_mode) && is_old(&st, now);
	DIR *d = unused ? file_list_open(folder) : NULL;
	while (d && unused && file_list_next(d, &at) > 0) {
		run_path(path, folder, at->d_name);
		unused = !lstat(path, &st) && is_old(&st, now) && !is_locked(path);
	}
	if (d)
		closedir(d);
	return unused;
}

void agent_log_folder_sweep(const char *parent, const char *own, double now)
{
	char path[RUN_PATH];
	struct dirent *at;
	DIR *d = file_list_open(parent);
	while (d && file_list_next(d, &at) > 0) {
		run_path(path, parent, at->d_name);
		if (strcmp(path, own) && is_unused(path, now))
			file_remove_tree(path);
	}
	if (d)
		closedir(d);
}

int agent_log_folder_make(const struct msg_welcome *w, const struct job *job, char out[RUN_PATH],
			  struct err *e)
{
	char parent[PATH_MAX];
	bool ours = job_logs_auto(job);
	if (job_logs_folder(job, w->run, w->node, parent, out, e) ||
	    (ours ? file_make_private_dir(parent, e) : file_make_dirs(parent, e)) ||
	    file_make_private_dir(out, e))
		return -1;
	if (ours && w->rank == w->leader)
		agent_log_folder_sweep(parent, out, (double)time(NULL));
	return 0;
}
