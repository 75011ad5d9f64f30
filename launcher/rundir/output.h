/*
 * output — writes one file of JSON lines of a run, and splits it when it is long.
 *
 * The first line of each file is its head, the fields of RUNDIR_HEAD_FIELDS. Each line is one
 * write(2); the first one takes the head with it. A crash leaves at most the last line incomplete,
 * and the next open removes it.
 *
 * At `split` bytes the file becomes the next segment (base/segments.h) by one rename, and a new file
 * begins. If the new one cannot be created, the rename is undone and the file grows on. Only who
 * holds the lock of the run folder writes and splits.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_OUTPUT_H
#define MUSTER_LAUNCHER_RUNDIR_OUTPUT_H

#include "base/err.h"
#include "base/fields.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The version of all formats. A change that an older reader would misread increments it; new fields
 * and events do not. */
enum { RUNDIR_VERSION = 1 };

/* clang-format off */

/* The head: the first line of each file and of each segment. Files of older versions of muster have
 * none. */
#define RUNDIR_HEAD_FIELDS(F) \
	F(format,     TEXT,   REQUIRED, "muster/ and the name of the file without .jsonl") \
	F(version,    INT,    REQUIRED, "the version of the format; a reader refuses a higher one than it knows") \
	F(time,       NUMBER, REQUIRED, "when the file began, in seconds since 1970") \
	F(mono,       NUMBER, REQUIRED, "the same in seconds of the monotonic clock") \
	F(generation, COUNT,  REQUIRED, "the generation that began the file") \
	F(thinned,    COUNT,  OPTIONAL, "of an old segment: how many times lines were removed from it")

/* clang-format on */

struct rundir_head {
	RUNDIR_HEAD_FIELDS(FIELDS_MEMBER)
};

/* The line without a newline, or NULL: no memory. The caller frees it. */
char *rundir_head_text(const struct rundir_head *h);
/* Whether the line, without its newline, is a head; then *out is set, and borrows from *doc, which
 * the caller frees with json_decref(). */
bool rundir_head_read(const char *line, size_t n, struct rundir_head *out, json_t **doc);
/* ERR_UNSUPPORTED: a newer muster wrote the file. */
int rundir_head_check(const struct rundir_head *h, const char *path, struct err *e);

struct rundir_output {
	const char *folder, *name; /* borrowed */
	int fd;                    /* -1: not open */
	bool torn;                 /* the last line is incomplete, because the disk was full */
	off_t size;
	off_t split;   /* 0: never */
	off_t refused; /* the size at which the file could not be split; 0: it could */
	uint32_t next; /* the number of the next segment */
};

/* Creates the file if it is missing, and removes an incomplete last line. ERR_UNSUPPORTED: a newer
 * muster wrote it. */
int rundir_output_open(struct rundir_output *o, const char *folder, const char *name,
		       struct err *e);
void rundir_output_close(struct rundir_output *o);

enum rundir_wrote { RUNDIR_WROTE, RUNDIR_WROTE_SPLIT, RUNDIR_LOST };

/* Appends a line. RUNDIR_WROTE_SPLIT: a segment was completed before it. RUNDIR_LOST: the line could
 * not be written. */
enum rundir_wrote rundir_output_write(struct rundir_output *o, uint32_t generation,
				      const char *text);

/* Opens the file again if it was deleted. Returns 1 if it has begun a new one, 0 if the file is
 * there, -1 if it cannot be opened. */
int rundir_output_renew(struct rundir_output *o);

#endif
