#include "launcher/rundir/timelines.h"

#include "base/buf.h"
#include "base/file.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 256 << 20 };

/* The name's number when it is <before><number><after>, else -1. */
static long number_of(const char *name, const char *before, const char *after)
{
	char *end;
	size_t n = strlen(before);
	if (strncmp(name, before, n) || name[n] < '0' || name[n] > '9')
		return -1;
	long number = strtol(name + n, &end, 10);
	return strcmp(end, after) ? -1 : number;
}

static bool has_timelines(const char *folder)
{
	DIR *dir = opendir(folder);
	bool has = false;
	for (struct dirent *d; dir && !has && (d = readdir(dir));)
		has = number_of(d->d_name, "timeline-", ".json") >= 0;
	if (dir)
		closedir(dir);
	return has;
}

/* The folder of the newest generation that has timelines. */
static int newest(const char *run, char *folder, size_t size, struct err *e)
{
	char at[PATH_MAX + 300];
	long best = -1;
	snprintf(at, sizeof at, "%s/trace", run);
	DIR *dir = opendir(at);
	for (struct dirent *d; dir && (d = readdir(dir));) {
		long generation = number_of(d->d_name, "gen-", "");
		snprintf(at, sizeof at, "%s/trace/%s", run, d->d_name);
		if (generation <= best || !has_timelines(at))
			continue;
		best = generation;
		snprintf(folder, size, "%s", at);
	}
	if (dir)
		closedir(dir);
	if (best < 0)
		return err_set(e, ERR_NOTFOUND,
			       "%s: no rank has written a timeline there; ranks write theirs at "
			       "the end of a run with parallel.pp above 1",
			       run);
	return 0;
}

static int load_one(const char *path, struct timeline *out, struct err *e)
{
	struct buf text = BUF_INIT;
	json_error_t why;
	int rc = file_slurp_own(path, FILE_MOST, &text, e);
	json_t *doc = rc ? NULL : json_loadb(text.data ? text.data : "", text.len, 0, &why);
	if (!rc && !doc)
		rc = err_set(e, ERR_PROTO, "%s: line %d: %s; let the run write it again", path,
			     why.line, why.text);
	if (!rc)
		rc = timeline_read(doc, path, out, e);
	json_decref(doc);
	buf_fini(&text);
	return rc;
}

static int check(const char *run, const struct layout *l, int micros, const struct timeline *t,
		 struct err *e)
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
		return err_set(e, ERR_USAGE,
			       "%s: ran %d ranks × %d chunks with %lld micro-batches, and the job "
			       "has %d × %d with %d; plan the run's own job.ini",
			       run, t->ranks, t->chunks, (long long)last + 1, l->pp, l->chunks,
			       micros);
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
	char folder[PATH_MAX + 300], path[PATH_MAX + 600];
	if (newest(run, folder, sizeof folder, e))
		return -1;
	DIR *dir = opendir(folder);
	int rc = dir ? 0
		     : err_set(e, ERR_NOTFOUND, "%s: cannot be opened; look at its permissions",
			       folder);
	for (struct dirent *d; !rc && (d = readdir(dir));) {
		snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
		if (number_of(d->d_name, "timeline-", ".json") >= 0)
			rc = load_one(path, out, e);
	}
	if (dir)
		closedir(dir);
	timeline_begin_at_zero(out);
	return rc ? -1 : check(run, l, micros, out, e);
}
