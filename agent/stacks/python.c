#include "agent/stacks/python.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The process --- */

static const char *after_last(const char *text, char c)
{
	const char *at = strrchr(text, c);
	return at ? at + 1 : text;
}

static bool runs_python(int pid)
{
	char path[64], link[4096];
	snprintf(path, sizeof path, "/proc/%d/exe", pid);
	ssize_t n = readlink(path, link, sizeof link - 1);
	link[n > 0 ? n : 0] = '\0';
	return !strncmp(after_last(link, '/'), "python", 6);
}

bool stacks_is_python(int pid)
{
	char path[64], line[4200];
	bool is = runs_python(pid);
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	FILE *maps = is ? NULL : fopen(path, "re");
	while (maps && !is && fgets(line, sizeof line, maps))
		is = strstr(line, "/libpython") != NULL;
	if (maps)
		fclose(maps);
	return is;
}

/* --- A frame --- */

struct frame {
	const char *name, *path, *line;
	int name_n, path_n, line_n;
};

/* A line such as "    step (/home/a/train.py:42)", of n bytes. */
static bool read_frame(const char *text, size_t n, struct frame *f)
{
	size_t indent = strspn(text, " ");
	const char *end = text + n;
	if (indent < 4 || indent >= n || end[-1] != ')')
		return false;
	const char *name = text + indent;
	const char *open = memmem(name, (size_t)(end - name), " (", 2);
	const char *colon = open ? memrchr(open, ':', (size_t)(end - open)) : NULL;
	if (!colon || open == name || colon == open + 2)
		return false;
	*f = (struct frame){ .name = name,
			     .path = open + 2,
			     .line = colon + 1,
			     .name_n = (int)(open - name),
			     .path_n = (int)(colon - open - 2),
			     .line_n = (int)(end - colon - 2) };
	return f->line_n > 0 && (int)strspn(f->line, "0123456789") == f->line_n;
}

/* The part of a path behind the folder of its packages; NULL: it is in none. */
static const char *find_package(const char *path)
{
	static const char *const folders[] = { "/site-packages/", "/dist-packages/" };
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		const char *at = strstr(path, folders[i]);
		if (at)
			return at + strlen(folders[i]);
	}
	const char *at = strstr(path, "/lib/python");
	at = at ? strchr(at + strlen("/lib/python"), '/') : NULL;
	return at ? at + 1 : NULL;
}

/* A long path loses its beginning. */
static void copy_path(const struct frame *f, char out[PYTHON_PATH])
{
	int cut = f->path_n < PYTHON_PATH ? 0 : f->path_n - PYTHON_PATH + 1;
	snprintf(out, PYTHON_PATH, "%.*s", f->path_n - cut, f->path + cut);
}

/* True: the function belongs to the program. */
static bool put_frame(const struct frame *f, char out[PYTHON_FRAME])
{
	enum { NAME = 44, FILE_NAME = 52, LINE = 9 };
	char path[PYTHON_PATH];
	copy_path(f, path);
	const char *package = find_package(path);
	const char *file = package ? package : *path == '<' ? path : after_last(path, '/');
	size_t length = strlen(file);
	file += length > FILE_NAME ? length - FILE_NAME : 0;
	snprintf(out, PYTHON_FRAME, "%.*s (%s:%.*s)", f->name_n < NAME ? f->name_n : NAME, f->name,
		 file, f->line_n < LINE ? f->line_n : LINE, f->line);
	return !package && *path != '<';
}

/* --- A thread --- */

/* "Thread 4711 (idle): "MainThread"" */
static bool begins_thread(const char *line, size_t n, int tid, bool main, bool *wanted)
{
	static const char word[] = "Thread ", name[] = "\"MainThread\"";
	if (strncmp(line, word, sizeof word - 1))
		return false;
	const char *at = line + sizeof word - 1;
	bool hex = !strncmp(at, "0x", 2); /* an id of pthreads */
	*wanted = (!hex && strtol(at, NULL, 10) == tid) ||
		  (main && memmem(line, n, name, sizeof name - 1));
	return true;
}

bool stacks_python_frames(const char *text, int tid, bool main, struct python_frames *out)
{
	bool wanted = false;
	size_t n;
	*out = (struct python_frames){ .inner = "" };
	for (const char *line = text; *line; line += n, line += *line == '\n') {
		struct frame f;
		char frame[PYTHON_FRAME];
		n = strcspn(line, "\n");
		if (begins_thread(line, n, tid, main, &wanted)) {
			if (*out->inner)
				break;
			continue;
		}
		if (!wanted || !read_frame(line, n, &f))
			continue;
		bool own = put_frame(&f, frame);
		if (own && *out->inner)
			memcpy(out->caller, frame, sizeof frame);
		if (!*out->inner)
			memcpy(out->inner, frame, sizeof frame);
		if (own)
			break;
	}
	return *out->inner;
}
