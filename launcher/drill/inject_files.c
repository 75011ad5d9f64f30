/* inject_files: faults of checkpoints, of the disk and of the job's files. */
#include "base/clock.h"
#include "base/file.h"
#include "launcher/drill/injections.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WARN_SECONDS = 60 };

static void ckpt_folder(const struct drill_run *r, char out[RUN_PATH])
{
	run_path(out, r->path, RUN_CKPT);
}

int drill_delete_checkpoints(struct drill_run *r, struct err *e)
{
	char path[RUN_PATH];
	ckpt_folder(r, path);
	file_remove_tree(path);
	return drill_kill_agent(r, e);
}

int drill_check_begins_again(const struct drill_run *r, struct err *e)
{
	if (r->story.ready_step == 0)
		return 0;
	return err_set(e, ERR_CORRUPT, "it continued from step %lld, although ckpt/ was deleted",
		       (long long)r->story.ready_step);
}

/* The largest shard of the last checkpoint. */
static int find_shard(const struct drill_run *r, char out[RUN_PATH], off_t *size, struct err *e)
{
	DIR *d = opendir(r->story.ckpt_path);
	*size = 0;
	for (struct dirent *at; d && (at = readdir(d));) {
		char path[RUN_PATH];
		struct stat st;
		run_path(path, r->story.ckpt_path, at->d_name);
		if (strncmp(at->d_name, "shard-", 6) || lstat(path, &st) || !S_ISREG(st.st_mode) ||
		    st.st_size <= *size)
			continue;
		*size = st.st_size;
		memcpy(out, path, RUN_PATH);
	}
	if (d)
		closedir(d);
	return *size ? 0
		     : err_set(e, ERR_NOTFOUND, "%s: it has no shard, or is gone already",
			       r->story.ckpt_path);
}

/* The last byte belongs to a tensor: a shard begins with its header. */
int drill_corrupt_checkpoint(struct drill_run *r, struct err *e)
{
	char path[RUN_PATH];
	unsigned char byte;
	off_t size;
	if (find_shard(r, path, &size, e))
		return -1;
	int fd = file_open(path, O_RDWR, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int rc = pread(fd, &byte, 1, size - 1) == 1 ? 0 : -1;
	byte ^= 0x01;
	r->corrupted = r->story.ckpt_step;
	if (rc || pwrite(fd, &byte, 1, size - 1) != 1)
		rc = err_errno(e, ERR_IO, "%s: cannot change a byte", path);
	close(fd);
	return rc ? -1 : drill_kill_agent(r, e);
}

int drill_check_skips_corrupted(const struct drill_run *r, struct err *e)
{
	if (r->story.ready_step < r->corrupted)
		return 0;
	if (r->story.ready_step > r->corrupted)
		return err_set(e, ERR_UNSUPPORTED,
			       "another checkpoint was committed before the agent ended; use more "
			       "--steps");
	return err_set(e, ERR_CORRUPT, "it continued from the damaged checkpoint of step %lld",
		       (long long)r->corrupted);
}

int drill_deny_checkpoints(struct drill_run *r, struct err *e)
{
	char path[RUN_PATH];
	ckpt_folder(r, path);
	r->injected = clock_s();
	return chmod(path, 0500) ? err_errno(e, ERR_IO, "%s: cannot set its mode", path) : 0;
}

void drill_permit_checkpoints(struct drill_run *r)
{
	char path[RUN_PATH];
	ckpt_folder(r, path);
	chmod(path, 0700);
}

/* Limits the size of the files that the generation's agents write. bytes 0: no longer. */
static int limit_files(const struct drill_run *r, rlim_t bytes, struct err *e)
{
	for (int i = 0; i < r->story.n_agents; i++) {
		const struct drill_agent *a = &r->story.agents[i];
		struct rlimit limit;
		if (a->generation != r->story.generation)
			continue;
		if (!drill_mark_has(a->pid, r->mark) && bytes)
			return err_set(e, ERR_UNSUPPORTED,
				       "the agent of rank %d is not on this host", a->rank);
		if (!drill_mark_has(a->pid, r->mark))
			continue;
		if (prlimit(a->pid, RLIMIT_FSIZE, NULL, &limit))
			return err_errno(e, ERR_UNSUPPORTED, "the agent's limit of file sizes");
		/* The hard limit stays, so that the limit can be raised again. */
		limit.rlim_cur = bytes && bytes < limit.rlim_max ? bytes : limit.rlim_max;
		if (prlimit(a->pid, RLIMIT_FSIZE, &limit, NULL))
			return err_errno(e, ERR_UNSUPPORTED, "the agent's limit of file sizes");
	}
	return 0;
}

static bool has_warned(const struct drill_run *r)
{
	return r->story.warnings > 0;
}

/* Larger than the ledger, smaller than a shard. */
int drill_fill_disk(struct drill_run *r, struct err *e)
{
	char path[RUN_PATH];
	off_t size;
	if (find_shard(r, path, &size, e) || limit_files(r, (rlim_t)size / 2, e))
		return -1;
	r->injected = clock_s();
	int rc = drill_run_wait(r, has_warned, WARN_SECONDS, "a warning", e);
	return limit_files(r, 0, NULL) || rc ? -1 : 0;
}

int drill_check_warned(const struct drill_run *r, struct err *e)
{
	return r->story.launches == 1
		       ? 0
		       : err_set(e, ERR_CORRUPT, "the run started again, although it could wait");
}

int drill_remove_data(struct drill_run *r, struct err *e)
{
	(void)e;
	drill_run_word(r, "data.path=%s/no-such-data", r->path);
	r->injected = clock_s();
	return 0;
}
