/*
 * segments — a file of JSON lines that has grown so long that it was split.
 *
 * The file that is written keeps its name, such as metrics.jsonl. When it is long enough it becomes
 * metrics.<n>.jsonl, n above every earlier one, and a new metrics.jsonl begins. So the lines of all
 * segments in the order of their numbers, and then those of the file itself, are in the order in
 * which they were written. launcher/rundir/output.h splits them, and launcher/rundir/thin.h replaces
 * old ones by shorter ones: other files, whose first line is that of the old one with a member added.
 * A ledger has parts of its own kind (agent/engine/data/ledger_parts.h).
 */
#ifndef MUSTER_BASE_SEGMENTS_H
#define MUSTER_BASE_SEGMENTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/run_paths.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct segments {
	uint32_t *numbers; /* ascending */
	int n;
};

/* `name` is the name of the file that is written, such as RUN_METRICS. A folder that does not exist
 * has no segments. */
int segments_list(const char *folder, const char *name, struct segments *out, struct err *e);
void segments_free(struct segments *s);

/* number: 0 is the file that is written. */
void segments_path(char out[RUN_PATH], const char *folder, const char *name, uint32_t number);
/* The number of a segment of this file; -1: the file is none. */
long segments_number(const char *file, const char *name);

/* Reads the segments and then the file, as if they were one. It starts with segments_reader_init(),
 * and may go on while another process writes and splits. */
struct segments_reader {
	char folder[RUN_PATH];
	const char *name; /* borrowed */
	struct segments list;
	int next;        /* the first one in the list that was not opened yet */
	uint32_t number; /* of the last segment that was opened; 0: none */
	int fd;          /* -1: nothing is open */
	bool current;    /* the file that is written is open, no segment */
	off_t at;
	char last; /* the byte before `at` */
};

void segments_reader_init(struct segments_reader *r, const char *folder, const char *name);
/* Returns how many of at most n bytes were read; 0: there is no more by now; -1: ERR_IO, or
 * ERR_CORRUPT if a file of that name is no regular file. A segment that ends in the middle of a line
 * gets a newline. */
ssize_t segments_read(struct segments_reader *r, char *data, size_t n, struct err *e);
void segments_reader_fini(struct segments_reader *r);

/* Appends the last bytes of the segments and the file, at most `most`, in their order. */
int segments_read_end(const char *folder, const char *name, size_t most, struct buf *out,
		      struct err *e);

#endif
