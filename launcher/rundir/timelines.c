#include "launcher/rundir/timelines.h"

#include "base/buf.h"
#include "base/file.h"
#include "launcher/rundir/traces.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMELINE_MAX = 256 << 20 }; /* bytes */

static int load_timeline(const char *path, struct timeline *out, struct err *e)
{
	struct buf text = BUF_INIT;
	json_error_t why;
	int rc = file_slurp_own(path, TIMELINE_MAX, &text, e);
	json_t *doc = rc ? NULL : json_loadb(text.data ? text.data : "", text.len, 0, &why);
	if (!rc && !doc)
		rc = err_set(
			e, ERR_PROTO,
			"%s: line %d: %s; the file is damaged, run the job again to replace it",
			path, why.line, why.text);
	if (!rc)
		rc = timeline_read(doc, path, out, e);
	json_decref(doc);
	buf_fini(&text);
	return rc;
}

static int check_layout(const char *run, const struct layout *l, int micros,
			const struct timeline *t, struct err *e)
{
	int last = -1, seen = 0;
	for (int r = 0; r < t->ranks; r++)
		for (int i = 0; i < t->n; i++)
			if (t->events[i].rank == r) {
				seen++;
				break;
			}
	for (int i = 0; i < t->n; i++)
		last = t->events[i].micro > last ? t->events[i].micro : last;
	if (t->ranks != l->pp || t->chunks != l->chunks || last != micros - 1)
		return err_set(
			e, ERR_USAGE,
			"%s: the run had %d ranks × %d chunks with %lld micro-batches, but the "
			"job has %d × %d with %d; plan the run's own job.ini",
			run, t->ranks, t->chunks, (long long)last + 1, l->pp, l->chunks, micros);
	if (seen < t->ranks)
		return err_set(
			e, ERR_NOTFOUND,
			"%s: only %d of %d ranks have written their timelines; let the run end",
			run, seen, t->ranks);
	return 0;
}

int rundir_timelines_load(const char *run, const struct layout *l, int micros, struct timeline *out,
			  struct err *e)
{
	char trace[RUN_PATH], path[RUN_PATH];
	if (access(run, R_OK | X_OK))
		return err_errno(e, ERR_IO, "%s: cannot read the run's folder", run);
	if (!rundir_last_trace(run, run_timeline_rank, trace))
		return err_set(e, ERR_NOTFOUND,
			       "%s: no rank has written a timeline there; ranks write theirs at "
			       "the end of a run with parallel.pp above 1",
			       run);
	DIR *dir = opendir(trace);
	int rc = dir ? 0 : err_errno(e, ERR_IO, "%s: cannot read the folder", trace);
	for (struct dirent *d; !rc && (d = readdir(dir));) {
		if (run_timeline_rank(d->d_name) < 0)
			continue;
		run_path_timeline(path, trace, (int)run_timeline_rank(d->d_name));
		rc = load_timeline(path, out, e);
	}
	if (dir)
		closedir(dir);
	timeline_begin_at_zero(out);
	return rc ? -1 : check_layout(run, l, micros, out, e);
}
