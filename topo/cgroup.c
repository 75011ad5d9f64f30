#include "topo/internal.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The folder of a cgroup hierarchy, and the name of its file with the memory limit. */
struct hierarchy {
	const char *folder, *file;
};

static const struct hierarchy v1 = { "/memory", "memory.limit_in_bytes" },
			      v2 = { "", "memory.max" };

/* A line "4:cpu,memory:/path" is of version 1, "0::/path" of version 2. NULL: the line is not about
 * memory. */
static const struct hierarchy *hierarchy_of(const char *line, const char **path)
{
	const char *names = strchr(line, ':'), *end = names ? strchr(names + 1, ':') : NULL;
	if (!end || end[1] != '/')
		return NULL;
	*path = end + 1;
	if (end == names + 1)
		return &v2;
	for (const char *at = names + 1; at < end; at += strcspn(at, ",:") + 1)
		if (strcspn(at, ",:") == strlen("memory") &&
		    !strncmp(at, "memory", strlen("memory")))
			return &v1;
	return NULL;
}

static void lower_limit(double *least, const char *path)
{
	double bytes; /* "max" is not read as a number */
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%lf", &bytes) == 1 && bytes > 0 && (*least <= 0 || bytes < *least))
		*least = bytes;
	if (f)
		fclose(f);
}

/* Takes the limits of a group and of all groups that contain it. Inside a container its own group
 * may be the root of the mount. */
static void limit_of_hierarchy(const char *mount, const struct hierarchy *h, char *group,
			       double *least)
{
	char path[2 * PATH_MAX];
	for (;;) {
		char *slash = strrchr(group, '/');
		snprintf(path, sizeof path, "%s%s%s/%s", mount, h->folder,
			 slash && slash[1] ? group : "", h->file);
		lower_limit(least, path);
		if (!slash || !slash[1])
			return;
		slash[slash == group] = '\0';
	}
}

double topo_cgroup_memory(const char *membership, const char *mount)
{
	char line[PATH_MAX + 64];
	const char *path;
	double least = 0;
	FILE *f = fopen(membership, "re");
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		const struct hierarchy *h = hierarchy_of(line, &path);
		if (h)
			limit_of_hierarchy(mount, h, line + (path - line), &least);
	}
	if (f)
		fclose(f);
	return least;
}
