#include "base/program.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_path[] = "/bin:/usr/bin"; /* if PATH is unset */

/* The folder at *at, which moves behind it; false: there is none left. An empty one is the current
 * folder. */
static bool next_folder(const char **at, const char **folder, size_t *len)
{
	if (!*at)
		return false;
	*folder = *at;
	*len = strcspn(*at, ":");
	*at = (*at)[*len] ? *at + *len + 1 : NULL;
	return true;
}

static char *join(const char *folder, size_t len, const char *name)
{
	size_t n = strlen(name) + 1;
	char *path = malloc(len + 1 + n);
	if (!path)
		return NULL;
	memcpy(path, folder, len);
	if (len)
		path[len++] = '/';
	memcpy(path + len, name, n);
	return path;
}

/* An empty name is the path of nothing: execve fails by ENOENT. */
static int list_paths(struct program *p, const char *name)
{
	const char *at = getenv("PATH"), *folder = "";
	size_t n = 1, len = 0;
	bool searched = *name && !strchr(name, '/');
	at = at ? at : default_path;
	for (const char *c = at; *c; c++)
		n += *c == ':';
	p->paths = calloc(n + 1, sizeof *p->paths);
	n = 0;
	while (p->paths && (searched ? next_folder(&at, &folder, &len) : n == 0))
		if (!(p->paths[n++] = join(folder, len, name)))
			return -1;
	return p->paths ? 0 : -1;
}

int program_open(struct program *p, char *const *argv)
{
	size_t words = 0;
	while (argv[words])
		words++;
	*p = (struct program){ .script = calloc(words + 2, sizeof *p->script) };
	if (!p->script || list_paths(p, argv[0])) {
		program_close(p);
		return -1;
	}
	static char shell[] = "/bin/sh";
	p->script[0] = shell;
	memcpy(p->script + 2, argv + 1, words * sizeof *argv); /* with the NULL at the end */
	return 0;
}

/* A later folder may have a file that can be executed. */
static bool tries_next(int why)
{
	return why == EACCES || why == ENOENT || why == ENOTDIR || why == ESTALE || why == ENODEV ||
	       why == ETIMEDOUT || why == ENAMETOOLONG;
}

void program_execute(const struct program *p, char *const *argv, char *const *env)
{
	bool denied = false;
	for (char **path = p->paths; *path; path++) {
		execve(*path, argv, env);
		if (errno == ENOEXEC) {
			p->script[1] = *path;
			execve(p->script[0], p->script, env);
		}
		denied |= errno == EACCES;
		if (!tries_next(errno))
			return;
	}
	if (denied)
		errno = EACCES;
}

void program_close(struct program *p)
{
	for (char **path = p->paths; path && *path; path++)
		free(*path);
	free(p->paths);
	free(p->script);
	*p = (struct program){ 0 };
}
