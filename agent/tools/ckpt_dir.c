#include "agent/tools/ckpt_dir.h"

#include "base/run_paths.h"
#include "plan/spec/job/job.h"
#include "plan/spec/job/node_path.h"

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

/* The job of the run in the folder `run`, until the next call. NULL: an error. */
static const struct job *load_run_job(const char *run, struct err *e)
{
	static struct job job; /* too large for a small stack */
	char ini[PATH_MAX];
	if (snprintf(ini, sizeof ini, "%s/" RUN_JOB, run) >= (int)sizeof ini) {
		err_set(e, ERR_USAGE, "%s: the path is too long", run);
		return NULL;
	}
	return job_load(ini, NULL, 0, &job, e) ? NULL : &job;
}

/* Sets the folder in which the run keeps its checkpoints, or the place of their copies. */
static int set_run_dir(struct ckpt_dir *d, const char *run, bool remote, struct err *e)
{
	const struct job *job = load_run_job(run, e);
	if (!job)
		return -1;
	d->uploads = job->checkpoint.remote[0] != '\0';
	d->rules = (struct upload_rules){ .every = job->checkpoint.remote_every,
					  .last = job->job.steps,
					  .keep = job->checkpoint.remote_keep,
					  .keep_every = job->checkpoint.keep_every };
	if (remote && !job->checkpoint.remote[0])
		return err_set(e, ERR_USAGE, "%s/" RUN_JOB ": the run has no checkpoint.remote",
			       run);
	if (remote)
		return set_dir(d, job->checkpoint.remote, NULL, e);
	return job->checkpoint.dir[0] ? set_dir(d, job->checkpoint.dir, NULL, e)
				      : set_dir(d, run, RUN_CKPT, e);
}

/* Whether PATH is the ckpt folder in a run's folder; *run is then the run's. */
static bool is_run_ckpt(const char *path, char run[PATH_MAX])
{
	char *slash = realpath(path, run) ? strrchr(run, '/') : NULL;
	if (!slash || strcmp(slash + 1, RUN_CKPT))
		return false;
	*slash = '\0';
	return exists(run, RUN_JOB);
}

/* Sets the folder of checkpoints `path`, and what the run says about it. */
static int set_folder(struct ckpt_dir *d, const char *path, struct err *e)
{
	char run[PATH_MAX];
	if (exists(path, RUN_JOB))
		return set_run_dir(d, path, false, e);
	if (is_run_ckpt(path, run))
		set_run_dir(d, run, false, NULL); /* its other folders do not matter here */
	return set_dir(d, path, NULL, e);
}

void tool_node_name(char out[HOST_NAME_MAX + 1])
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

int tool_ckpt_dir_tiers(const char *path, char *local, char *remote)
{
	char node[HOST_NAME_MAX + 1];
	const struct job *job = exists(path, RUN_JOB) ? load_run_job(path, NULL) : NULL;
	*local = *remote = '\0';
	if (!job)
		return -1;
	tool_node_name(node);
	if (job_node_path("checkpoint.local", job->checkpoint.local, node, local, NULL))
		*local = '\0';
	snprintf(remote, PATH_MAX, "%s", job->checkpoint.remote);
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

/* A path of a storage other than folders: a checkpoint if its name says so or it has a manifest. */
static int open_stored(struct ckpt_dir *d, const char *path, struct err *e)
{
	const struct ckpt_storage *s = ckpt_storage_of(path);
	struct manifest m;
	if (set_dir(d, path, NULL, e))
		return -1;
	for (size_t n = strlen(d->dir); n > strlen(s->ops->scheme) && d->dir[n - 1] == '/';)
		d->dir[--n] = '\0';
	char *slash = strrchr(d->dir, '/');
	bool named = slash && !strncmp(slash + 1, "step-", 5);
	int one = named ? 1 : ckpt_storage_has(s, d->dir, MANIFEST_NAME, e);
	if (one <= 0)
		return one < 0 ? -1 : ckpt_folder_list(s, d->dir, &d->list, &d->n, e);
	d->list = calloc(1, sizeof *d->list);
	if (!d->list || strlen(slash + 1) >= sizeof d->list->name)
		return err_set(e, d->list ? ERR_USAGE : ERR_NOMEM,
			       "%s: not a checkpoint's name, or no memory for it", path);
	strcpy(d->list->name, slash + 1);
	if (!ckpt_manifest_load(d->dir, &m, NULL)) {
		d->list->step = m.state.step;
		ckpt_manifest_fini(&m);
	}
	*slash = '\0';
	d->n = 1;
	d->one = true;
	return 0;
}

/* Whether jansson can write the path; the manifests and --json have paths. */
static bool is_utf8(const char *path)
{
	json_t *text = json_string(path);
	json_decref(text);
	return text;
}

/* A checkpoint in a folder of this machine, or a folder of checkpoints. */
static int open_folder(struct ckpt_dir *d, const char *path, struct err *e)
{
	struct stat st;
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
		return open_one(d, path, e);
	return set_folder(d, path, e) ||
			       ckpt_folder_list(ckpt_storage_of(d->dir), d->dir, &d->list, &d->n, e)
		       ? -1
		       : 0;
}

int tool_ckpt_dir_open(const char *path, struct ckpt_dir *out, struct err *e)
{
	struct ckpt_dir d = { 0 };
	if (!is_utf8(path))
		return err_set(e, ERR_USAGE, "%s: the path is not UTF-8; rename the folder", path);
	int rc = *ckpt_storage_of(path)->ops->scheme ? open_stored(&d, path, e)
						     : open_folder(&d, path, e);
	if (rc) {
		tool_ckpt_dir_close(&d);
		return -1;
	}
	*out = d;
	return 0;
}

int tool_ckpt_dir_open_remote(const char *run, struct ckpt_dir *out, struct err *e)
{
	struct ckpt_dir d = { 0 };
	if (!exists(run, RUN_JOB))
		return err_set(e, ERR_USAGE,
			       "%s: this is not a run's folder; name one, or the place of the "
			       "copies itself without --remote",
			       run);
	if (set_run_dir(&d, run, true, e) ||
	    ckpt_folder_list(ckpt_storage_of(d.dir), d.dir, &d.list, &d.n, e))
		return -1;
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

int tool_ckpt_dir_check_target(const char *dir, struct err *e)
{
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	const char *slash = memrchr(dir, '/', n), *name = slash ? slash + 1 : dir;
	bool stored = *ckpt_storage_of(dir)->ops->scheme;
	if (strncmp(name, "step-", 5) && (stored || !exists(dir, MANIFEST_NAME)))
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: this is a checkpoint, or has the name of one; name the folder above it",
		       dir);
}
