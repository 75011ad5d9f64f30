#include "launcher/rundir/rundir.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/rundir/output.h"
#include "plan/spec/job/node_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct rundir {
	char path[PATH_MAX];
	int lock;
	struct rundir_output files[RUNDIR_FILE_COUNT];
	int64_t keep;
	uint32_t generation; /* of the last line */
	bool thin;           /* a file was split, or had been when the folder was opened */
	int lost;
	bool gone;  /* the folder was deleted, and that has been said */
	bool fresh; /* nobody has read the trouble yet */
	char trouble[PATH_MAX + 200];
	struct rundir_watch watch;
};

/* Whoever may write to the folder could put links and logs in it, so it is refused. Whoever may
 * only read it loses that permission. */
static int check_private(const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st))
		return err_errno(e, ERR_IO, "%s: cannot read the folder's owner and permissions",
				 path);
	if (st.st_uid != geteuid())
		return err_set(e, ERR_AUTH,
			       "%s: the folder belongs to another user (uid %u); choose another "
			       "[job] run_dir or name",
			       path, (unsigned)st.st_uid);
	if (st.st_mode & 022)
		return err_set(e, ERR_AUTH,
			       "%s: other users may write to the folder; check that its files are "
			       "yours, then: chmod go-w '%s'",
			       path, path);
	if (st.st_mode & 077 && chmod(path, 0700))
		return err_errno(e, ERR_IO, "%s: cannot make the folder private (chmod 700)", path);
	return 0;
}

/* trace/ is created only when something is written there. */
static int make_subfolders(const char *run, struct err *e)
{
	static const struct {
		const char *name;
		int (*make)(const char *path, struct err *e);
		bool later;
	} inside[] = { { RUN_LOGS, file_make_own_dir, false },
		       { RUN_TRACES, file_make_own_dir, true },
		       { RUN_CKPT, file_make_dirs, false } };
	char below[RUN_PATH];
	for (size_t k = 0; k < sizeof inside / sizeof *inside; k++) {
		run_path(below, run, inside[k].name);
		if (!(inside[k].later && !file_exists(below)) && inside[k].make(below, e))
			return -1;
	}
	return 0;
}

/* Creates the run folder if it is missing; `out` is its absolute path. */
static int make_run_folder(const char *parent, const char *name, char out[PATH_MAX], struct err *e)
{
	char path[PATH_MAX];
	struct err why = ERR_INIT;
	if (snprintf(path, sizeof path, "%s/%s", parent, name) >= (int)sizeof path)
		return err_set(e, ERR_USAGE,
			       "%s/%s: the path is too long; choose a shorter run_dir or name",
			       parent, name);
	if (file_make_dirs(path, &why))
		return err_set(e, why.code, "%.900s; choose another [job] run_dir or name",
			       why.text);
	if (!realpath(path, out))
		return err_errno(e, ERR_IO, "%s: cannot resolve the path", path);
	if (check_private(out, e))
		return -1;
	return make_subfolders(out, e);
}

static int take_lock(struct rundir *r, struct err *e)
{
	char path[RUN_PATH], pid[32] = "";
	run_path(path, r->path, RUN_LOCK);
	r->lock = file_open(path, O_RDWR | O_CREAT, FILE_OWN, e);
	if (r->lock < 0)
		return -1;
	if (flock(r->lock, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return err_set(e, ERR_IO,
				       "%s/lock: cannot lock: %s; choose a [job] run_dir on a file "
				       "system that supports flock",
				       r->path, strerror(errno));
		ssize_t n = pread(r->lock, pid, sizeof pid - 1, 0);
		pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
		return err_set(e, ERR_ABORTED,
			       "%s: a run (process %s) is already active in this folder; wait for "
			       "it, stop "
			       "it with kill %s, or choose another [job] name",
			       r->path, *pid ? pid : "unknown", *pid ? pid : "PID");
	}
	int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
	if (ftruncate(r->lock, 0) || pwrite(r->lock, pid, (size_t)n, 0) != n)
		return err_errno(e, ERR_IO, "%s/lock: cannot write", r->path);
	return 0;
}

static int open_output(struct rundir *r, enum rundir_file file, struct err *e)
{
	struct rundir_output *o = &r->files[file];
	if (rundir_output_open(o, r->path, rundir_thin_name(file), e))
		return -1;
	o->split = rundir_thin_split(file, r->keep);
	r->thin |= o->next > 1;
	return 0;
}

static double wall_s(void)
{
	return clock_wall_s();
}

static double mono_s(void)
{
	return clock_s();
}

void rundir_set_watch(struct rundir *r, const struct rundir_watch *w)
{
	r->watch = *w;
}

int rundir_make_logs_id(struct rundir *r, struct err *e)
{
	char path[RUN_PATH], text[JOB_LOGS_ID + 2];
	uint64_t id = 0;
	run_path(path, r->path, RUN_LOGS_ID);
	if (file_exists(path))
		return 0;
	if (getrandom(&id, sizeof id, 0) != sizeof id)
		return err_errno(e, ERR_INTERNAL, "%s: no random number", path);
	snprintf(text, sizeof text, "%016" PRIx64 "\n", id);
	return file_replace(path, text, JOB_LOGS_ID + 1, e);
}

int rundir_open(const char *parent, const char *name, struct rundir **out, struct err *e)
{
	struct rundir *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory for the run folder");
	r->lock = -1;
	r->keep = RUNDIR_KEEP;
	r->watch = (struct rundir_watch){ .wall = wall_s, .mono = mono_s };
	for (int i = 0; i < RUNDIR_FILE_COUNT; i++)
		r->files[i].fd = -1;
	if (make_run_folder(parent, name, r->path, e) || take_lock(r, e) ||
	    open_output(r, RUNDIR_EVENTS, e) || open_output(r, RUNDIR_METRICS, e)) {
		rundir_close(r);
		return -1;
	}
	*out = r;
	return 0;
}

void rundir_close(struct rundir *r)
{
	if (!r)
		return;
	for (int i = 0; i < RUNDIR_FILE_COUNT; i++)
		rundir_output_close(&r->files[i]);
	if (r->lock >= 0)
		close(r->lock);
	free(r);
}

void rundir_set_keep(struct rundir *r, int64_t keep)
{
	r->keep = keep;
	for (int i = 0; i < RUNDIR_FILE_COUNT; i++)
		r->files[i].split = rundir_thin_split(i, keep);
}

bool rundir_thin_due(const struct rundir *r)
{
	return r->thin;
}

void rundir_thin_begin(struct rundir *r, struct rundir_thinning *out)
{
	r->thin = false;
	snprintf(out->folder, sizeof out->folder, "%s", r->path);
	out->keep = r->keep;
	out->generation = r->generation;
}

const char *rundir_path(const struct rundir *r)
{
	return r->path;
}

int rundir_lost(const struct rundir *r)
{
	return r->lost;
}

/* The number after the highest one that number_of() finds among the folder's names. */
static uint32_t next_number(const char *path, long (*number_of)(const char *name))
{
	long highest = 0;
	DIR *d = opendir(path);
	for (struct dirent *at; d && (at = readdir(d));) {
		long number = number_of(at->d_name);
		if (number > highest)
			highest = number;
	}
	if (d)
		closedir(d);
	return (uint32_t)highest + 1;
}

uint32_t rundir_next_generation(const struct rundir *r)
{
	return next_number(r->path, run_plan_generation);
}

uint32_t rundir_next_submission(const char *path)
{
	return next_number(path, run_submission_number);
}

/* True: the file does not exist, or muster wrote it. */
static bool may_replace(const char *path)
{
	char head[sizeof RUNDIR_MARK] = "";
	struct err e = ERR_INIT;
	int fd = file_open(path, O_RDONLY, FILE_OWN, &e);
	if (fd < 0)
		return e.code == ERR_NOTFOUND;
	bool ours = !file_read_full(fd, head, sizeof head - 1) && !strcmp(head, RUNDIR_MARK);
	close(fd);
	return ours;
}

int rundir_save_job(struct rundir *r, const char *text, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, r->path, RUN_JOB);
	if (!may_replace(path))
		return err_set(e, ERR_IO,
			       "%s: muster writes its resolved job to this path, but did not write "
			       "the file that is there; move it elsewhere, or choose another "
			       "[job] run_dir or name",
			       path);
	struct buf marked = BUF_INIT;
	buf_printf(&marked, "%s\n%s", RUNDIR_MARK, text);
	int rc = buf_failed(&marked) ? err_set(e, ERR_NOMEM, "%s: no memory to write it", path)
				     : file_replace(path, marked.data, marked.len, e);
	buf_fini(&marked);
	return rc;
}

/* Creates the file, which must not exist. */
static int create_file(const char *path, const char *text, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return err_set(e, ERR_ABORTED,
			       "%s: another submission took this number meanwhile; submit again",
			       path);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot create", path);
	int rc = file_write_full(fd, text, strlen(text)) || fsync(fd)
			 ? err_errno(e, ERR_IO, "%s: cannot write", path)
			 : 0;
	close(fd);
	if (rc)
		unlink(path);
	return rc;
}

int rundir_save_submission(const char *parent, const char *name, uint32_t number, const char *job,
			   const char *script, struct err *e)
{
	char run[PATH_MAX], path[RUN_PATH], beside[RUN_PATH];
	if (make_run_folder(parent, name, run, e))
		return -1;
	run_path_submission(path, run, number);
	run_path_script(beside, run, number);
	if (create_file(path, job, e))
		return -1;
	if (!create_file(beside, script, e))
		return 0;
	unlink(path);
	return -1;
}

void rundir_drop_submission(const char *path, uint32_t number, bool created)
{
	static const char *const inside[] = { RUN_LOGS, RUN_CKPT, RUN_TRACES };
	char at[RUN_PATH];
	run_path_submission(at, path, number);
	if (number > 0)
		unlink(at);
	run_path_script(at, path, number);
	if (number > 0)
		unlink(at);
	for (size_t i = 0; created && i < sizeof inside / sizeof *inside; i++) {
		run_path(at, path, inside[i]);
		rmdir(at);
	}
	if (created)
		rmdir(path);
}

static int save_json(const char *path, json_t *value, struct err *e)
{
	char *text = json_dumps(value, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	if (!text)
		return err_set(e, ERR_NOMEM, "no memory to write %s", path);
	int rc = file_replace(path, text, strlen(text), e);
	free(text);
	return rc;
}

int rundir_save_plan(struct rundir *r, uint32_t generation, json_t *plan, struct err *e)
{
	char path[RUN_PATH];
	run_path_plan(path, r->path, generation);
	return save_json(path, plan, e);
}

int rundir_save_preflight(struct rundir *r, json_t *figures, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, r->path, RUN_PREFLIGHT);
	return save_json(path, figures, e);
}

const char *rundir_trouble(struct rundir *r)
{
	bool fresh = r->fresh;
	r->fresh = false;
	return fresh ? r->trouble : NULL;
}

int rundir_renew(struct rundir *r, struct err *e)
{
	struct stat st;
	/* The lock is what shows it: a dying agent that writes its flight recorder makes the folder
	 * again. */
	if (access(r->path, F_OK) || fstat(r->lock, &st) || !st.st_nlink)
		return err_set(e, ERR_NOTFOUND,
			       "%s: the run folder was deleted or moved while the run used it",
			       r->path);
	return make_subfolders(r->path, e);
}

/* Opens the file again if it was deleted. */
static void reopen_deleted(struct rundir *r, struct rundir_output *to)
{
	int rc = rundir_output_renew(to);
	if (rc > 0) {
		r->gone = false;
		r->fresh = true;
		snprintf(r->trouble, sizeof r->trouble,
			 "%s/%s was deleted; a new file begins, without its earlier lines", r->path,
			 to->name);
	} else if (rc < 0 && !r->gone) {
		r->gone = r->fresh = true;
		snprintf(r->trouble, sizeof r->trouble,
			 "%s: the run folder was deleted or moved; events, metrics and checkpoints "
			 "cannot be kept",
			 r->path);
	}
}

/* A line's first fields; event: NULL in all files but events.jsonl. */
static json_t *new_line(const struct rundir *r, uint32_t generation, const char *event)
{
	json_t *line = json_object();
	if (event)
		json_object_set_new(line, "event", json_string(event));
	json_object_set_new(line, "time", json_real(r->watch.wall()));
	json_object_set_new(line, "mono", json_real(r->watch.mono()));
	json_object_set_new(line, "generation", json_integer(generation));
	return line;
}

/* Steals `line`. rc: whether its fields are incomplete. */
static void append_line(struct rundir *r, enum rundir_file file, uint32_t generation, json_t *line,
			int rc)
{
	struct rundir_output *to = &r->files[file];
	char *text = rc ? NULL : json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER);
	if (text && r->watch.line)
		r->watch.line(r->watch.arg, file, json_string_value(json_object_get(line, "event")),
			      line, text);
	json_decref(line);
	if (generation > r->generation)
		r->generation = generation;
	enum rundir_wrote wrote = RUNDIR_LOST;
	if (text && (to->fd >= 0 || !open_output(r, file, NULL))) {
		reopen_deleted(r, to);
		wrote = rundir_output_write(to, generation, text);
	}
	r->lost += wrote == RUNDIR_LOST;
	r->thin |= wrote == RUNDIR_WROTE_SPLIT;
	free(text);
}

void rundir_append(struct rundir *r, enum rundir_file file, uint32_t generation,
		   const struct fields_row *rows, const void *fields)
{
	json_t *line = new_line(r, generation, NULL);
	append_line(r, file, generation, line, fields_write(rows, fields, line, NULL));
}

void rundir_append_event(struct rundir *r, uint32_t generation, const char *name,
			 const struct fields_row *rows, const void *fields)
{
	json_t *line = new_line(r, generation, name);
	append_line(r, RUNDIR_EVENTS, generation, line, fields_write(rows, fields, line, NULL));
}

typedef struct rundir_predicted {
	RUNDIR_PREDICTED_FIELDS(FIELDS_MEMBER)
} fields_struct;

void rundir_metrics(struct rundir *r, uint32_t generation, const struct msg_metrics *m,
		    double predicted_s)
{
	static const struct fields_row rows[] = { RUNDIR_PREDICTED_FIELDS(FIELDS_ROW) FIELDS_END };
	const fields_struct predicted = { .predicted_s = predicted_s };
	json_t *line = new_line(r, generation, NULL), *fields = msg_metrics_json(m);
	int rc = !fields || json_object_update(line, fields) ||
		 fields_write(rows, &predicted, line, NULL);
	json_decref(fields);
	append_line(r, RUNDIR_METRICS, generation, line, rc);
}
