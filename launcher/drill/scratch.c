#include "launcher/drill/scratch.h"

#include "base/file.h"
#include "base/run_paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK_FILE "drill"

static bool is_run(const char *name)
{
	return strcmp(name, ".") && strcmp(name, "..") && strcmp(name, MARK_FILE);
}

/* Calls remove for each run if it is set. Returns the number of runs. */
static int each_run(const struct drill_scratch *s,
		    void (*remove)(const struct drill_scratch *s, const char *run))
{
	DIR *d = opendir(s->path);
	int n = 0;
	for (struct dirent *at; d && (at = readdir(d));) {
		if (!is_run(at->d_name))
			continue;
		n++;
		if (remove)
			remove(s, at->d_name);
	}
	if (d)
		closedir(d);
	return n;
}

void drill_scratch_remove(const struct drill_scratch *s, const char *run)
{
	char path[RUN_PATH], ckpt[RUN_PATH];
	run_path(path, s->path, run);
	run_path(ckpt, path, RUN_CKPT);
	int fd = open(ckpt, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		chmod(ckpt, 0700); /* a folder of this drill, as its parents are */
	else if (fd >= 0)
		fchmod(fd, 0700);
	if (fd >= 0)
		close(fd);
	file_remove_tree(path);
	unlink(path); /* it may be a file */
}

/* A folder that others may write to could contain anything. */
static int check_own(const char *path, struct err *e)
{
	struct stat st;
	if (lstat(path, &st))
		return err_errno(e, ERR_IO, "%s: cannot read the folder's owner", path);
	if (st.st_uid != geteuid() || st.st_mode & 022)
		return err_set(e, ERR_AUTH,
			       "%s: the folder belongs to another user, or others may write to it; "
			       "choose another [job] run_dir or name",
			       path);
	return 0;
}

static int open_lock(struct drill_scratch *s, struct err *e)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	run_path(path, s->path, MARK_FILE);
	s->lock = file_open(path, O_RDWR, FILE_OWN, &why);
	if (s->lock < 0 && why.code != ERR_NOTFOUND)
		return err_set(e, why.code, "%s", why.text);
	if (s->lock < 0 && each_run(s, NULL))
		return err_set(e, ERR_USAGE,
			       "%s: the folder has no file \"" MARK_FILE "\", so it belongs to no "
			       "drill; move it elsewhere, or choose another [job] name",
			       s->path);
	if (s->lock < 0 && (s->lock = file_open(path, O_RDWR | O_CREAT, FILE_OWN, e)) < 0)
		return -1;
	if (flock(s->lock, LOCK_EX | LOCK_NB)) {
		close(s->lock);
		s->lock = -1;
		return err_set(e, ERR_ABORTED,
			       "%s: another drill of this job runs; wait for its end, or choose "
			       "another [job] name",
			       s->path);
	}
	return 0;
}

int drill_scratch_open(const struct job *job, struct drill_scratch *s, struct err *e)
{
	char path[PATH_MAX];
	s->lock = -1;
	if (strlen(job->job.name) + strlen("drill-") > NAME_MAX)
		return err_set(e, ERR_USAGE,
			       "[job] name: too long for the folder drill-NAME; choose a shorter "
			       "one");
	if (snprintf(path, sizeof path, "%s/drill-%s", job->job.run_dir, job->job.name) >=
	    (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter run_dir",
			       job->job.run_dir);
	if (file_make_dirs(job->job.run_dir, e) || file_make_own_dir(path, e))
		return -1;
	if (!realpath(path, s->path))
		return err_errno(e, ERR_IO, "%s: cannot resolve the path", path);
	if (check_own(s->path, e) || open_lock(s, e))
		return -1;
	each_run(s, drill_scratch_remove);
	return 0;
}

int drill_scratch_close(struct drill_scratch *s)
{
	char path[RUN_PATH];
	if (s->lock < 0)
		return 0;
	int left = each_run(s, NULL);
	run_path(path, s->path, MARK_FILE);
	if (!left && !unlink(path))
		rmdir(s->path);
	close(s->lock);
	s->lock = -1;
	return left;
}
