/* inject_memory: a cgroup with little memory for a run, in which the kernel's OOM killer ends an
 * agent. */
#include "base/clock.h"
#include "base/file.h"
#include "base/meminfo.h"
#include "launcher/drill/injections.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP "muster-drill-"

/* The limit: memory for the run twice over, and for its start. It is at most this part of what the
 * host has left. */
#define RUN_SHARE   2.0
#define START_BYTES (512 << 20)
#define HOST_SHARE  0.5

#define REMOVE_S 2.0

/* The hierarchies of cgroups v1 and v2. The last file limits the swap, so that the run does not swap
 * instead; systems without swap may not have it. */
static const struct {
	const char *root, *limit, *swap_limit;
	bool with_memory; /* the limit of the swap includes that of the memory */
} hierarchies[] = {
	{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", true },
	{ "/sys/fs/cgroup", "memory.max", "memory.swap.max", false },
};

static int write_number(const char *dir, const char *name, long long n, struct err *e)
{
	char path[RUN_PATH], text[24];
	run_path(path, dir, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int len = snprintf(text, sizeof text, "%lld", n);
	if (fd < 0)
		return err_errno(e, ERR_UNSUPPORTED, "%s: cannot open it", path);
	int rc = file_write_full(fd, text, (size_t)len)
			 ? err_errno(e, ERR_UNSUPPORTED, "%s: cannot write %s", path, text)
			 : 0;
	close(fd);
	return rc;
}

/* True if the group belongs to a drill that no longer runs. */
static bool is_abandoned(const char *name)
{
	size_t n = strlen(GROUP);
	long pid = strncmp(name, GROUP, n) ? 0 : strtol(name + n, NULL, 10);
	return pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH;
}

static void remove_abandoned(const char *root)
{
	DIR *d = opendir(root);
	for (struct dirent *at; d && (at = readdir(d));) {
		char path[RUN_PATH];
		run_path(path, root, at->d_name);
		if (is_abandoned(at->d_name))
			rmdir(path);
	}
	if (d)
		closedir(d);
}

void drill_remove_old_cgroups(void)
{
	for (size_t h = 0; h < sizeof hierarchies / sizeof *hierarchies; h++)
		remove_abandoned(hierarchies[h].root);
}

/* A group with this limit, which then is r->cgroup. */
static int make_group(struct drill_run *r, int h, long long bytes)
{
	char name[64];
	snprintf(name, sizeof name, GROUP "%ld", (long)getpid());
	run_path(r->cgroup, hierarchies[h].root, name);
	if (mkdir(r->cgroup, 0755)) {
		r->cgroup[0] = '\0';
		return -1;
	}
	if (write_number(r->cgroup, hierarchies[h].limit, bytes, NULL)) {
		drill_remove_cgroup(r);
		return -1;
	}
	write_number(r->cgroup, hierarchies[h].swap_limit, hierarchies[h].with_memory ? bytes : 0,
		     NULL);
	r->cgroup_bytes = bytes;
	return 0;
}

/* The bytes that all ranks need, if each has the peak that the first one reported. */
static double run_bytes(const struct drill *d)
{
	return (double)d->reference.peak_bytes * d->reference.first.world;
}

int drill_limit_memory(struct drill_run *r, struct err *e)
{
	double bytes = RUN_SHARE * run_bytes(r->d) + START_BYTES;
	if (bytes > HOST_SHARE * meminfo_read("MemAvailable"))
		return err_set(e, ERR_UNSUPPORTED,
			       "too little memory is available to limit the run's to %.0f MiB",
			       bytes / (1 << 20));
	for (size_t h = 0; h < sizeof hierarchies / sizeof *hierarchies; h++)
		if (!make_group(r, (int)h, (long long)bytes))
			return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "no cgroup with a limit of memory can be created; run it as root");
}

/* The kernel counts a process for some moments after it has ended. */
void drill_remove_cgroup(struct drill_run *r)
{
	for (double end = clock_s() + REMOVE_S; *r->cgroup; usleep(10000))
		if (!rmdir(r->cgroup) || errno != EBUSY || r->child || clock_s() >= end)
			break;
	if (!r->child)
		r->cgroup[0] = '\0';
}
