#include "agent/health/group.h"

#include "agent/health/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUPS "sys/fs/cgroup"

static bool read_file(const char *root, const char *dir, const char *file, char *out, size_t size)
{
	char path[HEALTH_GROUP + 64];
	snprintf(path, sizeof path, "%s/%s", dir, file);
	return health_text_read(root, path, out, size);
}

/* "max 100000" or "50000 100000": microseconds of CPU time in each period. */
static double cpu_limit_v2(const char *root, const char *dir)
{
	char text[64];
	double quota, period;
	if (!read_file(root, dir, "cpu.max", text, sizeof text) ||
	    sscanf(text, "%lf %lf", &quota, &period) != 2 || !(quota > 0) || !(period > 0))
		return 0;
	return quota / period;
}

static double cpu_limit_v1(const char *root, const char *dir)
{
	char quota[64], period[64];
	if (!read_file(root, dir, "cpu.cfs_quota_us", quota, sizeof quota) ||
	    !read_file(root, dir, "cpu.cfs_period_us", period, sizeof period) || atof(quota) <= 0 ||
	    atof(period) <= 0)
		return 0;
	return atof(quota) / atof(period);
}

static double memory_limit(const char *root, const char *dir, const char *file)
{
	char text[64];
	double bytes;
	/* Without a limit it is "max", or nearly 2^63. */
	return read_file(root, dir, file, text, sizeof text) && sscanf(text, "%lf", &bytes) == 1 &&
			       bytes > 0 && bytes < 0x1p62
		       ? bytes
		       : 0;
}

static double memory_limit_v2(const char *root, const char *dir)
{
	return memory_limit(root, dir, "memory.max");
}

static double memory_limit_v1(const char *root, const char *dir)
{
	return memory_limit(root, dir, "memory.limit_in_bytes");
}

/* Where the groups of a controller are. In version 2 all controllers share one hierarchy. */
static bool find_own(const char *root, int pid, const char *controller, struct health_group *g,
		     char mount[64])
{
	char path[64], text[4096], probe[8];
	if (pid)
		snprintf(path, sizeof path, "proc/%d/cgroup", pid);
	else
		snprintf(path, sizeof path, "proc/self/cgroup");
	if (!health_text_read(root, path, text, sizeof text))
		return false;
	g->v2 = read_file(root, CGROUPS, "cgroup.controllers", probe, sizeof probe);
	if (g->v2)
		snprintf(mount, 64, CGROUPS);
	else
		snprintf(mount, 64, CGROUPS "/%s", controller);
	return health_text_group(text, g->v2 ? "" : controller, g->name,
				 sizeof g->name - sizeof CGROUPS - 32);
}

static void set_dir(struct health_group *g, const char *mount)
{
	snprintf(g->dir, sizeof g->dir, "%s%.*s", mount, HEALTH_GROUP - 72,
		 g->name[1] ? g->name : "");
}

/* Inside a container the group's own folder may be the root of the mount; the folders that do not
 * exist have no limit. */
static bool tightest(const char *root, int pid, const char *controller,
		     double (*v1)(const char *, const char *),
		     double (*v2)(const char *, const char *), struct health_group *out)
{
	struct health_group at;
	char mount[64];
	out->limit = 0;
	if (!find_own(root, pid, controller, &at, mount))
		return false;
	for (;;) {
		set_dir(&at, mount);
		at.limit = (at.v2 ? v2 : v1)(root, at.dir);
		if (at.limit > 0 && (out->limit <= 0 || at.limit < out->limit))
			*out = at;
		char *slash = strrchr(at.name, '/');
		if (!slash || !slash[1])
			return out->limit > 0;
		slash[slash == at.name] = '\0';
	}
}

bool health_group_cpu(const char *root, int pid, struct health_group *out)
{
	return tightest(root, pid, "cpu", cpu_limit_v1, cpu_limit_v2, out);
}

bool health_group_memory(const char *root, int pid, struct health_group *out)
{
	return tightest(root, pid, "memory", memory_limit_v1, memory_limit_v2, out);
}

bool health_group_own(const char *root, int pid, struct health_group *out)
{
	char mount[64];
	out->limit = 0;
	if (!find_own(root, pid, "memory", out, mount) || !out->v2 || !out->name[1])
		return false;
	set_dir(out, mount);
	return true;
}
