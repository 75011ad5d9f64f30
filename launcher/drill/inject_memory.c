/* inject_memory: a cgroup with little memory for a run, in which the kernel's OOM killer ends an
 * agent. */
#include "base/file.h"
#include "base/meminfo.h"
#include "launcher/drill/injections.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP "muster-drill-"

/* The limit: memory for the run twice over, and for its start. It is at most this part of what the
 * host has left. */
#define RUN_SHARE   2.0
#define START_BYTES (512 << 20)
#define HOST_SHARE  0.5

/* The hierarchies of cgroups v1 and v2. */
static const struct {
	const char *root, *limit;
} hierarchies[] = {
	{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
	{ "/sys/fs/cgroup", "memory.max" },
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

/* A drill that was killed leaves its group. rmdir() removes only groups without processes. */
static void remove_old_groups(const char *root)
{
	DIR *d = opendir(root);
	for (struct dirent *at; d && (at = readdir(d));) {
		char path[RUN_PATH];
		run_path(path, root, at->d_name);
		if (!strncmp(at->d_name, GROUP, strlen(GROUP)))
			rmdir(path);
	}
	if (d)
		closedir(d);
}

/* A group with this limit, which then is r->cgroup. */
static int make_group(struct drill_run *r, int h, long long bytes, struct err *e)
{
	char name[64];
	snprintf(name, sizeof name, GROUP "%ld", (long)getpid());
	remove_old_groups(hierarchies[h].root);
	run_path(r->cgroup, hierarchies[h].root, name);
	if (!mkdir(r->cgroup, 0755) && !write_number(r->cgroup, hierarchies[h].limit, bytes, e))
		return 0;
	drill_remove_cgroup(r);
	return -1;
}

/* What all ranks need, with the peak of each as the first one has reported it. */
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
		if (!make_group(r, (int)h, (long long)bytes, NULL))
			return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "no cgroup with a limit of memory can be created; run it as root");
}

int drill_join_cgroup(const struct drill_run *r, pid_t pid, struct err *e)
{
	return write_number(r->cgroup, "cgroup.procs", pid, e);
}

void drill_remove_cgroup(struct drill_run *r)
{
	if (*r->cgroup && rmdir(r->cgroup) == 0)
		*r->cgroup = '\0';
}
