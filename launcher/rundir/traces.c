#include "launcher/rundir/traces.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

bool rundir_trace_has(const char *trace, long (*rank_of)(const char *name))
{
	DIR *d = opendir(trace);
	bool has = false;
	for (struct dirent *at; d && !has && (at = readdir(d));)
		has = rank_of(at->d_name) >= 0;
	if (d)
		closedir(d);
	return has;
}

bool rundir_last_trace(const char *run, long (*rank_of)(const char *name), char out[RUN_PATH])
{
	char path[RUN_PATH];
	long last = -1;
	run_path(path, run, RUN_TRACES);
	DIR *d = opendir(path);
	for (struct dirent *at; d && (at = readdir(d));) {
		long generation = run_trace_generation(at->d_name);
		if (generation <= last)
			continue;
		run_path_trace(path, run, (uint32_t)generation);
		if (rundir_trace_has(path, rank_of))
			last = generation;
	}
	if (d)
		closedir(d);
	if (last >= 0)
		run_path_trace(out, run, (uint32_t)last);
	return last >= 0;
}

static void remove_trace(const char *trace)
{
	int fd = open(trace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	for (struct dirent *at; d && (at = readdir(d));)
		if (run_is_trace_file(at->d_name))
			unlinkat(fd, at->d_name, 0);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	rmdir(trace);
}

void rundir_prune_traces(const char *run, uint32_t generation)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_TRACES);
	DIR *d = opendir(path);
	for (struct dirent *at; d && (at = readdir(d));) {
		long old = run_trace_generation(at->d_name);
		if (old < 1 || old + RUNDIR_TRACES > (long)generation)
			continue;
		run_path_trace(path, run, (uint32_t)old);
		remove_trace(path);
	}
	if (d)
		closedir(d);
}
