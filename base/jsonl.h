/*
 * jsonl — files of JSON lines to which several processes append.
 *
 * Each line is one object. A line is appended with one write under a lock of the file (flock),
 * after a newline if the last line is incomplete, and is synced. If the lock is not free within 5
 * s, the call fails with ERR_TIMEOUT. Lines that are damaged, because the disk was full or a
 * process died, are skipped by the reader.
 */
#ifndef MUSTER_BASE_JSONL_H
#define MUSTER_BASE_JSONL_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Appends an object as a line. A new file gets this mode, whatever the umask is. */
int jsonl_append(const char *path, const json_t *line, mode_t mode, struct err *e);

/* Calls each() for the objects of the text, in their order. A result that is not 0 ends it and is
 * returned. `line` is borrowed during the call. */
int jsonl_parse(const char *text, size_t len, int (*each)(json_t *line, void *arg), void *arg);

/* Replaces the file by those of its lines for which keep() is true, if it is larger than `most`
 * bytes. A process that appends meanwhile waits, and loses no line. */
int jsonl_shorten(const char *path, size_t most, bool (*keep)(json_t *line, void *arg), void *arg,
		  struct err *e);

#endif
