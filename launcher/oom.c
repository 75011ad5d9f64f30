#include "launcher/oom.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after the word at the start of a line; -1: there is none. */
static int64_t read_number(const char *path, const char *word)
{
	char line[256];
	int64_t found = -1;
	size_t n = strlen(word);
	FILE *in = fopen(path, "re");
	while (in && found < 0 && fgets(line, sizeof line, in))
		if (!strncmp(line, word, n) && line[n] == ' ')
			found = strtoll(line + n, NULL, 10);
	if (in)
		fclose(in);
	return found;
}

/* Whether the comma-separated list has this word. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, word, n) && (at[n] == ',' || !at[n]))
			return true;
	return false;
}

/* A hierarchy's counter, in the cgroup of this path or, if that is not visible, in the root. */
static int64_t read_cgroup(const char *root, const char *mount, const char *path, const char *name)
{
	char file[2 * PATH_MAX];
	snprintf(file, sizeof file, "%s/sys/fs/cgroup/%s%s/%s", root, mount, path, name);
	int64_t n = read_number(file, "oom_kill");
	if (n >= 0)
		return n;
	snprintf(file, sizeof file, "%s/sys/fs/cgroup/%s/%s", root, mount, name);
	return read_number(file, "oom_kill");
}

/* A line of /proc/self/cgroup: "4:memory:/path" of v1, or "0::/path" of v2. */
static int64_t count_in(const char *root, char *line)
{
	line[strcspn(line, "\n")] = '\0';
	char *controllers = strchr(line, ':'),
	     *path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path)
		return -1;
	*controllers++ = *path++ = '\0';
	if (has_word(controllers, "memory"))
		return read_cgroup(root, "memory", path, "memory.oom_control");
	return *controllers ? -1 : read_cgroup(root, "", path, "memory.events");
}

int64_t launcher_oom_kills(const char *root)
{
	char file[PATH_MAX], line[PATH_MAX];
	int64_t n = -1;
	root = root ? root : "";
	snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
	FILE *in = fopen(file, "re");
	while (in && n < 0 && fgets(line, sizeof line, in))
		n = count_in(root, line);
	if (in)
		fclose(in);
	if (n >= 0)
		return n;
	snprintf(file, sizeof file, "%s/proc/vmstat", root);
	return read_number(file, "oom_kill");
}
