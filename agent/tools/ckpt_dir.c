#include "agent/tools/ckpt_dir.h"

#include "agent/engine/ckpt/local.h"
#include "base/run_paths.h"
#include "plan/spec/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool exists(const char *dir, const char *name)
{
	char path[PATH_MAX];
	return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path &&
	       access(path, F_OK) == 0;
}

static int set_dir(struct ckpt_dir *d, const char *dir, const char *name, struct err *e)
{
	if (snprintf(d->dir, sizeof d->dir, name ? "%s/%s" : "%s", dir, name) >= (int)sizeof d->dir)
		return err_set(e, ERR_USAGE, "%s: the path is too long", dir);
	return 0;
}

/* Sets the folder in which the run keeps its checkpoints. */
__attribute__((noinline)) static int set_run_dir(struct ckpt_dir *d, const char *run, struct err *e)
{
	static struct job job; /* too large for a small stack */
	char ini[PATH_MAX];
	if (snprintf(ini, sizeof ini, "%s/" RUN_JOB, run) >= (int)sizeof ini)
		return err_set(e, ERR_USAGE, "%s: the path is too long", run);
	if (job_load(ini, NULL, 0, &job, e))
		return -1;
	return job.checkpoint.dir[0] ? set_dir(d, job.checkpoint.dir, NULL, e)
				     : set_dir(d, run, RUN_CKPT, e);
}

/* The name of this node as muster uses it for %N. */
static void name_node(char out[HOST_NAME_MAX + 1])
{
	const char *slurm = getenv("SLURMD_NODENAME");
	if (slurm && *slurm) {
		snprintf(out, HOST_NAME_MAX + 1, "%s", slurm);
		return;
	}
	if (gethostname(out, HOST_NAME_MAX + 1))
		out[0] = '\0';
	out[HOST_NAME_MAX] = '\0';
	out[strcspn(out, ".")] = '\0';
}

__attribute__((noinline)) int tool_ckpt_dir_tiers(const char *path, char *local, char *remote)
{
	static struct job job; /* too large for a small stack */
	char ini[PATH_MAX], node[HOST_NAME_MAX + 1];
	*local = *remote = '\0';
	if (!exists(path, RUN_JOB) ||
	    snprintf(ini, sizeof ini, "%s/" RUN_JOB, path) >= (int)sizeof ini ||
	    job_load(ini, NULL, 0, &job, NULL))
		return -1;
	name_node(node);
	if (ckpt_local_expand(job.checkpoint.local, node, local, NULL))
		*local = '\0';
	snprintf(remote, PATH_MAX, "%s", job.checkpoint.remote);
	return 0;
}

/* PATH is itself a checkpoint: its parent folder is the DIR, and its last component is the only
 * entry. */
static int open_one(struct ckpt_dir *d, const char *path, struct err *e)
{
	char real[PATH_MAX];
	struct manifest m;
	if (!realpath(path, real))
		return err_errno(e, ERR_IO, "%s: cannot resolve", path);
	char *slash = strrchr(real, '/');
	if (strlen(slash + 1) >= sizeof d->list->name)
		return err_set(e, ERR_USAGE, "%s: not a checkpoint's name", path);
	d->list = calloc(1, sizeof *d->list);
	if (!d->list)
		return err_set(e, ERR_NOMEM, "%s: no memory for its name", path);
	strcpy(d->list->name, slash + 1);
	if (!ckpt_manifest_load(real, &m, NULL)) {
		d->list->step = m.state.step;
		ckpt_manifest_fini(&m);
	}
	*slash = '\0';
	d->n = 1;
	d->one = true;
	return set_dir(d, real[0] ? real : "/", NULL, e);
}

/* An object store has no folders: the last component of the path tells a checkpoint from a DIR. */
static int open_remote(struct ckpt_dir *d, const char *path, struct err *e)
{
	struct manifest m;
	if (set_dir(d, path, NULL, e))
		return -1;
	size_t n = strlen(d->dir);
	while (n && d->dir[n - 1] == '/')
		d->dir[--n] = '\0';
	char *last = strrchr(d->dir, '/') + 1;
	bool named = !strncmp(last, "step-", 5) && strlen(last) < sizeof d->list->name;
	if (!named)
		return ckpt_folder_list(ckpt_storage_of(d->dir), d->dir, &d->list, &d->n, e);
	d->list = calloc(1, sizeof *d->list);
	if (!d->list)
		return err_set(e, ERR_NOMEM, "%s: no memory for its name", path);
	strcpy(d->list->name, last);
	if (!ckpt_manifest_load(d->dir, &m, NULL)) {
		d->list->step = m.state.step;
		ckpt_manifest_fini(&m);
	}
	last[-1] = '\0';
	d->n = 1;
	d->one = true;
	return 0;
}

static int open_address(const char *path, struct ckpt_dir *out, struct err *e)
{
	struct ckpt_dir d = { 0 };
	if (open_remote(&d, path, e)) {
		tool_ckpt_dir_close(&d);
		return -1;
	}
	*out = d;
	return 0;
}

int tool_ckpt_dir_open(const char *path, struct ckpt_dir *out, struct err *e)
{
	struct ckpt_dir d = { 0 };
	struct stat st;
	int rc;
	if (job_path_is_address(path))
		return open_address(path, out, e);
	if (stat(path, &st))
		return errno == ENOENT ? err_set(e, ERR_NOTFOUND,
						 "%s: no such file; name a checkpoint, or a folder "
						 "that contains checkpoints",
						 path)
				       : err_errno(e, ERR_NOTFOUND, "%s: cannot be read", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE,
			       "%s: this is not a folder; name a run's folder, its ckpt folder, or "
			       "a checkpoint",
			       path);
	const char *slash = strrchr(path, '/'), *last = slash && slash[1] ? slash + 1 : path;
	if (exists(path, MANIFEST_NAME) || !strncmp(last, "step-", 5))
		rc = open_one(&d, path, e);
	else
		rc = (exists(path, "job.ini") ? set_run_dir(&d, path, e)
					      : set_dir(&d, path, NULL, e)) ||
		     ckpt_folder_list(ckpt_storage_of(d.dir), d.dir, &d.list, &d.n, e);
	if (rc) {
		tool_ckpt_dir_close(&d);
		return -1;
	}
	*out = d;
	return 0;
}

void tool_ckpt_dir_close(struct ckpt_dir *d)
{
	free(d->list);
	d->list = NULL;
}

void tool_ckpt_dir_path(const struct ckpt_dir *d, int64_t i, char *out)
{
	snprintf(out, PATH_MAX, "%.*s/%s", (int)(PATH_MAX - sizeof d->list->name - 2), d->dir,
		 d->list[i].name);
}

int tool_ckpt_dir_choose(const struct ckpt_dir *d, char *path, struct manifest *m, struct err *e)
{
	for (int64_t i = 0; i < d->n; i++) {
		tool_ckpt_dir_path(d, i, path);
		if (d->one)
			return ckpt_manifest_load(path, m, e);
		if (!ckpt_folder_check(ckpt_storage_of(d->dir), d->dir, &d->list[i], m, e))
			return 0;
	}
	if (d->n == 0)
		return err_set(e, ERR_NOTFOUND, "%s: no checkpoints", d->dir);
	return err_prefix(e, "%s: none is valid", d->dir);
}
