#include "launcher/rundir/logs.h"

#include "base/file.h"
#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/log_file.h"
#include "launcher/rundir/state.h"
#include "launcher/rundir/windows.h"
#include "plan/spec/job/node_path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFERS = 16 << 20, LEAST_BUFFER = 4096, MOST_BUFFER = 1 << 16 };

struct rundir_logs {
	char run[RUN_PATH];
	/* where logs stay if this host is a node of the run, "": nowhere; the folder above, if muster has
	 * chosen it */
	char local[RUN_PATH], parent[PATH_MAX];
	int world; /* of the last generation, if its logs stay on the nodes; 0: they do not */
	struct rundir_logs_options o;
	struct rundir_windows windows;
	struct log_file *files;
	struct log_file **heap; /* those with a line; the one with the earliest is first */
	size_t n, room, in_heap;
	struct ranges ranks; /* that have a log; if they are too scattered, some are left out */
	int lowest, highest;
	char node[256]; /* one of their nodes; "": there is no log of a rank */
};

/* How many ranks the last generation has had; 0: unknown. */
static int read_world(const char *run)
{
	json_t *object;
	struct rundir_state state;
	if (rundir_state_load(run, &object, &state, NULL))
		return 0;
	int world = state.world;
	json_decref(object);
	return world;
}

/* Where the logs of this host are, and how many ranks have theirs on the nodes. */
static int find_local(struct rundir_logs *l, struct job *job, struct err *e)
{
	char path[RUN_PATH], run[PATH_MAX], host[256] = "";
	run_path(path, l->run, RUN_JOB);
	gethostname(host, sizeof host - 1);
	host[strcspn(host, ".")] = '\0';
	if (!realpath(l->run, run))
		return err_errno(e, ERR_IO, "%s: cannot resolve the path", l->run);
	if (job_load(path, NULL, 0, job, e) ||
	    job_logs_folder(job, run, host, l->parent, l->local, e))
		return -1;
	if (!job_logs_auto(job))
		*l->parent = '\0';
	int world = read_world(run);
	l->world = job_logs_local(job, world) ? world : 0;
	return 0;
}

/* Whether this host has a folder with logs of the run, to which nobody else may write. A run folder without a job,
 * or with that of a newer muster, has logs nevertheless. */
static bool has_local(struct rundir_logs *l)
{
	char path[RUN_PATH];
	struct err ignored = ERR_INIT;
	run_path(path, l->run, RUN_LOGS_ID);
	struct job *job = *l->local || !file_exists(path) ? NULL
							  : malloc(sizeof *job); /* it is large */
	if (job && find_local(l, job, &ignored))
		*l->local = '\0';
	free(job);
	return *l->local && (!*l->parent || !file_check_private_dir(l->parent, &ignored)) &&
	       !file_check_private_dir(l->local, &ignored);
}

int rundir_logs_open(const char *run, const struct rundir_logs_options *o, struct rundir_logs **out,
		     struct err *e)
{
	struct rundir_logs *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "%s: no memory to read its logs", run);
	snprintf(l->run, sizeof l->run, "%s", run);
	l->o = *o;
	if (rundir_windows_read(run, &l->windows, e)) {
		free(l);
		return -1;
	}
	*out = l;
	return 0;
}

void rundir_logs_close(struct rundir_logs *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		rundir_log_file_fini(&l->files[i]);
	free(l->files);
	free(l->heap);
	rundir_windows_free(&l->windows);
	free(l);
}

/* --- The files --- */

static bool is_wanted(const struct rundir_logs *l, const struct log_file *f)
{
	const struct ranges *ranks = l->o.ranks;
	if (l->o.node && (!f->node || strcmp(f->node, l->o.node)))
		return false;
	return !ranks || (f->rank >= 0 && ranges_count(ranks, f->rank, f->rank + 1));
}

/* Nothing is added any more to a file that was changed last before `from`, or it comes back. Sets the
 * inode, so that a split after this is noticed. */
static bool is_too_old(const struct rundir_logs *l, const char *path, struct log_file *f)
{
	struct stat st;
	bool there = !stat(path, &st);
	f->inode = there ? st.st_ino : 0;
	return there && (double)st.st_mtim.tv_sec + 1 < l->o.from;
}

/* The time of lines at the begin of launch-<generation>.log; 0: unknown. */
static double launch_time(const struct rundir_logs *l, const char *name)
{
	const struct rundir_window *w = strncmp(name, "launch-", 7)
						? NULL
						: rundir_windows_find(&l->windows,
								      strtol(name + 7, NULL, 10));
	return w ? w->from : 0;
}

static int compare_files(const void *a, const void *b)
{
	const struct log_file *x = a, *y = b;
	return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
				  : strcmp(x->name, y->name);
}

/* The heap points into the list, so both grow before a read begins. */
static int add_file(struct rundir_logs *l, const struct log_file *f)
{
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct log_file *files = reallocarray(l->files, room, sizeof *files);
		if (files)
			l->files = files;
		struct log_file **heap = reallocarray(l->heap, room, sizeof *heap);
		if (heap)
			l->heap = heap;
		if (!files || !heap)
			return -1;
		l->room = room;
	}
	l->files[l->n++] = *f;
	return 0;
}

static void folder_path(const struct rundir_logs *l, bool local, char out[RUN_PATH])
{
	if (local)
		memcpy(out, l->local, RUN_PATH);
	else
		run_path(out, l->run, RUN_LOGS);
}

/* Also of a log that is not wanted. */
static void note_rank(struct rundir_logs *l, const struct log_file *f)
{
	if (f->rank < 0)
		return;
	ranges_add(&l->ranks, f->rank, 1, NULL);
	if (!*l->node || f->rank < l->lowest)
		l->lowest = f->rank;
	if (!*l->node || f->rank > l->highest)
		l->highest = f->rank;
	if (!*l->node)
		snprintf(l->node, sizeof l->node, "%s", f->node);
}

static bool is_there(const char *folder, const char *name)
{
	char path[RUN_PATH];
	run_path(path, folder, name);
	return file_exists(path);
}

/* Adds the file unless it is known or not wanted. */
static int look_at_log(struct rundir_logs *l, const char *folder, bool local, const char *name,
		       size_t known)
{
	char path[RUN_PATH];
	struct log_file f;
	int rc = 0;
	run_path(path, folder, name);
	if (!rundir_log_file_init(&f, name, launch_time(l, name)))
		return 0;
	f.local = local;
	note_rank(l, &f);
	if ((known && bsearch(&f, l->files, known, sizeof f, compare_files)) || !is_wanted(l, &f) ||
	    is_too_old(l, path, &f) || (rc = add_file(l, &f)))
		rundir_log_file_fini(&f);
	return rc;
}

/* An agent that died may have left parts without the file. While it is on this node, it is read there. */
static int look_at(struct rundir_logs *l, const char *folder, bool local, const char *name,
		   size_t known)
{
	char log[NAME_MAX + 8];
	size_t n = rundir_log_part(name);
	if (!n)
		return look_at_log(l, folder, local, name, known);
	snprintf(log, sizeof log, "%.*s.log", (int)n, name);
	if (is_there(folder, log) || (!local && *l->local && is_there(l->local, log)))
		return 0;
	return look_at_log(l, folder, local, log, known);
}

/* Several parts of one log were found. */
static void drop_doubles(struct rundir_logs *l)
{
	size_t n = 0;
	for (size_t i = 0; i < l->n; i++) {
		if (n && !compare_files(&l->files[n - 1], &l->files[i]))
			rundir_log_file_fini(&l->files[i]);
		else
			l->files[n++] = l->files[i];
	}
	l->n = n;
}

/* A file of which nothing was read begins with its parts. */
static void note_part(struct rundir_logs *l, bool local, const char *name, bool new)
{
	char log[NAME_MAX + 8];
	struct log_file key;
	size_t n = rundir_log_part(name);
	if (!n)
		return;
	snprintf(log, sizeof log, "%.*s.log", (int)n, name);
	if (!rundir_log_file_init(&key, log, 0))
		return;
	struct log_file *f = l->n ? bsearch(&key, l->files, l->n, sizeof key, compare_files) : NULL;
	if (new &&f && f->local == local && !f->at && !f->known) {
		f->parted = true;
		f->inode = 0;
	}
	if (f && f->local && local)
		rundir_log_file_note_part(f, l->local, (uint32_t)segments_number(name, log));
	rundir_log_file_fini(&key);
}

/* What is done with each name of a folder. */
enum look { LOOK_FILES, LOOK_PARTS, LOOK_NEW_PARTS };

static int scan(struct rundir_logs *l, bool local, size_t known, enum look look, struct err *e)
{
	char folder[RUN_PATH];
	struct dirent *at;
	int more = 0, rc = 0;
	folder_path(l, local, folder);
	DIR *d = file_list_open(folder);
	if (!d)
		return errno == ENOENT ? 0
				       : err_errno(e, file_error_code(errno),
						   "%s: cannot list the logs", folder);
	while (!rc && (more = file_list_next(d, &at)) > 0) {
		if (look == LOOK_FILES)
			rc = look_at(l, folder, local, at->d_name, known);
		else
			note_part(l, local, at->d_name, look == LOOK_NEW_PARTS);
	}
	closedir(d);
	if (more < 0)
		return err_errno(e, ERR_IO, "%s: cannot list the logs", folder);
	return rc ? err_set(e, ERR_NOMEM, "%s: no memory for its logs", folder) : 0;
}

/* Adds the files that are new. A second look finds their parts: it sees all that were there when the
 * inodes of the files were read. Those of the node are also looked for afterwards: see log_file.h. */
static int look_in(struct rundir_logs *l, bool local, struct err *e)
{
	size_t known = l->n;
	if (scan(l, local, known, LOOK_FILES, e))
		return -1;
	bool new = l->n > known;
	if (new) {
		qsort(l->files, l->n, sizeof *l->files, compare_files);
		drop_doubles(l);
	}
	return new || local ? scan(l, local, known, new ? LOOK_NEW_PARTS : LOOK_PARTS, e) : 0;
}

/* A log that is in the run folder is read there. One may move there meanwhile, hence the last look. */
static int look_for_files(struct rundir_logs *l, struct err *e)
{
	bool local = has_local(l);
	if (look_in(l, false, e))
		return -1;
	return local && (look_in(l, true, e) || look_in(l, false, e)) ? -1 : 0;
}

/* --- The heap --- */

/* Files of equal times are in the order of the list. */
static bool is_before(const struct log_file *a, const struct log_file *b)
{
	return a->time != b->time ? a->time < b->time : a < b;
}

static void sift_down(struct rundir_logs *l, size_t i)
{
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= l->in_heap)
			return;
		if (child + 1 < l->in_heap && is_before(l->heap[child + 1], l->heap[child]))
			child++;
		if (!is_before(l->heap[child], l->heap[i]))
			return;
		struct log_file *f = l->heap[i];
		l->heap[i] = l->heap[child];
		l->heap[child] = f;
		i = child;
	}
}

/* A log that cannot be read has no line by now. Only if memory is lacking, the call fails. */
static int leave_out(struct rundir_logs *l, struct log_file *f, const struct err *why,
		     struct err *e)
{
	if (why->code == ERR_NOMEM)
		return err_set(e, why->code, "%s", why->text);
	if (!f->unreadable && l->o.unreadable)
		l->o.unreadable(l->o.unreadable_arg, why);
	f->unreadable = true;
	return 0;
}

static int step(struct rundir_logs *l, struct log_file *f, bool parts, struct err *e)
{
	char shared[RUN_PATH];
	const struct log_folders in = { .shared = shared, .local = l->local };
	struct err why = ERR_INIT;
	size_t room = BUFFERS / l->n;
	room = room < LEAST_BUFFER ? LEAST_BUFFER : room > MOST_BUFFER ? MOST_BUFFER : room;
	run_path(shared, l->run, RUN_LOGS);
	/* Lines that are too old are many; the merge need not see them. */
	int rc;
	do
		rc = rundir_log_file_next(f, &in, room, parts, &why);
	while (rc > 0 && f->time < l->o.from);
	if (rc < 0)
		rc = leave_out(l, f, &why, e);
	else
		f->unreadable = false;
	if (rc <= 0)
		rundir_log_file_rest(f);
	return rc;
}

static int fill_heap(struct rundir_logs *l, bool parts, struct err *e)
{
	l->in_heap = 0;
	for (size_t i = 0; i < l->n; i++) {
		struct log_file *f = &l->files[i];
		int rc = step(l, f, parts, e);
		if (rc < 0)
			return -1;
		if (rc)
			l->heap[l->in_heap++] = f;
	}
	for (size_t i = l->in_heap / 2; i-- > 0;)
		sift_down(l, i);
	return 0;
}

int rundir_logs_elsewhere(const struct rundir_logs *l)
{
	return l->world - (int)ranges_count(&l->ranks, 0, l->world);
}

/* No log fits the options; of a run without any, that is no error. */
static int refuse_empty(const struct rundir_logs *l, struct err *e)
{
	const char *rest =
		l->world ? "; the others stay on their nodes, where muster logs reads them" : "";
	if (!*l->node)
		return 0;
	if (l->o.node)
		return err_set(
			e, ERR_NOTFOUND,
			"%s: no such rank of this run has a log on node \"%.100s\"; there are "
			"logs of ranks %d to %d, on nodes such as %.100s%s",
			l->run, l->o.node, l->lowest, l->highest, l->node, rest);
	return err_set(e, ERR_NOTFOUND,
		       "%s: no such rank of this run has a log; there are logs of ranks %d to %d%s",
		       l->run, l->lowest, l->highest, rest);
}

int rundir_logs_read(struct rundir_logs *l, bool parts,
		     bool (*each)(void *arg, const struct rundir_log_line *line), void *arg,
		     struct err *e)
{
	if (look_for_files(l, e) || (!l->n && (l->o.ranks || l->o.node) && refuse_empty(l, e)) ||
	    fill_heap(l, parts, e))
		return -1;
	while (l->in_heap) {
		struct log_file *f = l->heap[0];
		char name[NAME_MAX + 1];
		snprintf(name, sizeof name, "%.*s", (int)strlen(f->name) - 4, f->name);
		const struct rundir_log_line line = { f->time, f->node, f->rank, name, f->line };
		if (f->time < l->o.until && !each(arg, &line))
			return 0;
		int rc = step(l, f, parts, e);
		if (rc < 0)
			return -1;
		if (!rc)
			l->heap[0] = l->heap[--l->in_heap];
		sift_down(l, 0);
	}
	return 0;
}
