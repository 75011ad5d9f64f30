#include "launcher/rundir/find.h"

#include "base/file.h"
#include "plan/spec/job/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folders of runs, and the names that are compared with a word that no run has. */
enum { PLACES = 2, NAMES_MAX = 4096 };

bool rundir_is_run(const char *folder)
{
	static const char *const own[] = { RUN_JOB, RUN_EVENTS, RUN_METRICS, RUN_SUBMISSIONS };
	char path[RUN_PATH];
	struct stat st;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		run_path(path, folder, own[i]);
		if (!lstat(path, &st) && S_ISREG(st.st_mode))
			return true;
	}
	return false;
}

/* The folders of runs, in the order of the search. Returns how many there are. */
static int list_places(const char *places[PLACES])
{
	const char *set = getenv("MUSTER_RUNS");
	int n = 0;
	if (set && *set)
		places[n++] = set;
	places[n++] = job_keys[job_key_find("job", "run_dir")].def;
	return n;
}

void rundir_find_folder(char out[RUN_PATH])
{
	const char *places[PLACES];
	list_places(places);
	snprintf(out, RUN_PATH, "%s", places[0]);
}

/* Without this a foreign folder, which is private, would look as if it were empty. */
static int refuse_unreadable(const char *folder, struct err *e)
{
	struct stat st;
	if (stat(folder, &st))
		return errno == EACCES
			       ? err_set(e, ERR_DENIED,
					 "%s: a folder above it may not be entered; ask its owner",
					 folder)
			       : 0;
	if (!S_ISDIR(st.st_mode) || !faccessat(AT_FDCWD, folder, R_OK | X_OK, AT_EACCESS))
		return 0;
	const struct passwd *owner = getpwuid(st.st_uid);
	char number[32];
	snprintf(number, sizeof number, "uid %u", (unsigned)st.st_uid);
	return err_set(
		e, ERR_DENIED,
		"%s: the run belongs to %s, and its folder may not be read by others; ask its "
		"owner",
		folder, owner ? owner->pw_name : number);
}

/* Returns 1 if the path is a run folder, which is copied to `out`, and 0 if it is not. */
static int try_folder(const char *path, char out[RUN_PATH], struct err *e)
{
	size_t len = strlen(path);
	if (len >= PATH_MAX)
		return 0;
	if (refuse_unreadable(path, e))
		return -1;
	if (!rundir_is_run(path))
		return 0;
	while (len > 1 && path[len - 1] == '/')
		len--;
	snprintf(out, RUN_PATH, "%.*s", (int)len, path);
	return 1;
}

/* Appends the names of the runs in the folder; each is freed by the caller. */
static int add_names(const char *folder, char **names, int n)
{
	char path[RUN_PATH];
	DIR *d = file_list_open(folder);
	struct dirent *at;
	while (d && n < NAMES_MAX && file_list_next(d, &at) > 0) {
		snprintf(path, sizeof path, "%.*s/%s", PATH_MAX - 1, folder, at->d_name);
		if (rundir_is_run(path) && (names[n] = strdup(at->d_name)))
			n++;
	}
	if (d)
		closedir(d);
	return n;
}

static int refuse_unknown(const char *word, const char *const *places, int n_places, struct err *e)
{
	char **names = calloc(NAMES_MAX + 1, sizeof *names), where[600];
	int n = 0;
	for (int i = 0; names && i < n_places; i++)
		n = add_names(places[i], names, n);
	const char *near = n ? job_nearest(word, (const char *const *)names) : NULL;
	snprintf(where, sizeof where, n_places > 1 ? "%.250s/ or %.250s/" : "%.250s/", places[0],
		 places[n_places - 1]);
	if (near)
		err_set(e, ERR_NOTFOUND, "%.200s: no run has this name in %s; did you mean %.200s?",
			word, where, near);
	else
		err_set(e, ERR_NOTFOUND,
			"%.200s: this is neither a run folder nor the name of a run in %s; give a "
			"run folder, or set MUSTER_RUNS to the folder of the runs",
			word, where);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return -1;
}

int rundir_find(const char *word, char out[RUN_PATH], struct err *e)
{
	const char *places[PLACES];
	char path[RUN_PATH];
	struct stat st;
	int n_places = list_places(places);
	if (!*word)
		return err_set(e, ERR_USAGE,
			       "the name of a run is empty; give a run or its folder");
	int found = try_folder(word, out, e);
	for (int i = 0; !found && *word != '/' && i < n_places; i++) {
		snprintf(path, sizeof path, "%.*s/%.*s", PATH_MAX - 1, places[i], 300, word);
		found = try_folder(path, out, e);
	}
	if (found)
		return found > 0 ? 0 : -1;
	if (!stat(word, &st) && S_ISDIR(st.st_mode))
		return err_set(e, ERR_NOTFOUND,
			       "%.300s: the folder contains no run (" RUN_JOB ", " RUN_EVENTS
			       ", " RUN_METRICS " and " RUN_SUBMISSIONS
			       " are missing); give a run folder",
			       word);
	return refuse_unknown(word, places, n_places, e);
}
