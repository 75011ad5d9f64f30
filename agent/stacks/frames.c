#include "agent/stacks/frames.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The frame's text behind its address: "read () from /lib/libc.so.6" or "read - /lib/libc.so.6".
 * NULL: the line is no frame. */
static const char *find_function(const char *line)
{
	line += strspn(line, " \t");
	if (*line++ != '#' || !isdigit((unsigned char)*line))
		return NULL;
	line += strspn(line, "0123456789");
	line += strspn(line, " \t");
	if (strncmp(line, "0x", 2))
		return line;
	line += 2 + strspn(line + 2, "0123456789abcdef");
	line += strspn(line, " \t");
	return strncmp(line, "in ", 3) ? line : line + 3;
}

/* The library of a frame, without its folders; 0 bytes: the program itself. */
static size_t find_library(const char *frame, size_t n, const char **out)
{
	static const char *const marks[] = { " from ", " - " };
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		const char *at = memmem(frame, n, marks[i], strlen(marks[i]));
		if (!at)
			continue;
		at += strlen(marks[i]);
		const char *end = frame + n;
		for (const char *slash; (slash = memchr(at, '/', (size_t)(end - at)));)
			at = slash + 1;
		*out = at;
		return strcspn(at, "\n") < (size_t)(end - at) ? strcspn(at, "\n")
							      : (size_t)(end - at);
	}
	*out = frame;
	return 0;
}

/* Libraries in which a thread waits on behalf of its caller. */
static bool is_runtime(const char *library, size_t n)
{
	static const char *const names[] = { "libc.so",  "libc-2",     "libpthread",
					     "ld-linux", "libgomp.so", "linux-vdso",
					     "[vdso",    "libstdc++",  "libgcc_s" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (n >= strlen(names[i]) && !strncmp(library, names[i], strlen(names[i])))
			return true;
	return false;
}

/* With debug information, frames of the GNU C library and of libgomp name their sources in place of
 * the library. */
static bool is_runtime_source(const char *frame, size_t n)
{
	static const char *const folders[] = { " at ../sysdeps/", " at ./", " at ../nptl/",
					       " at ../csu/", " at ../../../src/libgomp/" };
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		if (memmem(frame, n, folders[i], strlen(folders[i])))
			return true;
	return false;
}

/* The frame of a line counts unless it has no name or belongs to the C library. */
static bool read_frame(const char *line, size_t n, char out[FRAME_NAME])
{
	const char *frame = find_function(line), *library;
	if (!frame || frame >= line + n)
		return false;
	size_t rest = n - (size_t)(frame - line), name = strcspn(frame, " (\n");
	size_t bytes = find_library(frame, rest, &library);
	bool own = !bytes || (bytes >= 6 && !strncmp(library, "muster", 6));
	if (name > rest || !name || !strncmp(frame, "??", 2) || !strncmp(frame, "- ", 2) ||
	    !strncmp(frame, "<signal", 7) || is_runtime(library, bytes) ||
	    is_runtime_source(frame, rest))
		return false;
	if (own)
		snprintf(out, FRAME_NAME, "%.*s()", (int)(name < 64 ? name : 64), frame);
	else
		snprintf(out, FRAME_NAME, "%.*s() of %.*s", (int)(name < 50 ? name : 50), frame,
			 (int)(bytes < 40 ? bytes : 40), library);
	return true;
}

/* A process without threads has no LWP. */
static const char *find_gdb_number(const char *line, size_t n)
{
	static const char *const marks[] = { "(LWP ", "(process " };
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		const char *at = memmem(line, n, marks[i], strlen(marks[i]));
		if (at)
			return at + strlen(marks[i]);
	}
	return NULL;
}

/* Whether a line begins the stack of a thread: "Thread 1 (… (LWP 12) …):" or "TID 12:". */
static bool begins_thread(const char *line, int *tid)
{
	const char *at = line;
	if (!strncmp(line, "TID ", 4))
		at += 4;
	else if (!strncmp(line, "Thread ", 7))
		at = find_gdb_number(line, strcspn(line, "\n"));
	else
		return false;
	*tid = at ? atoi(at) : -1;
	return true;
}

bool stacks_frame_of(const char *text, int tid, char out[FRAME_NAME])
{
	int in = -1;
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (!begins_thread(line, &in) && in == tid &&
		    read_frame(line, strcspn(line, "\n"), out))
			return true;
	return false;
}
