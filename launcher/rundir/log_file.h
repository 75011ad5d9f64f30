/*
 * log_file — reads the lines of one log of a run and its earlier parts, with their times. For
 * launcher/rundir/logs.c.
 *
 * The log of a rank may be split at any time (agent/log_parts.h). The reader notices that the file has
 * become a part by its inode, and reads on in that part, the later ones and then the file.
 *
 * A log in the folder of this node may move to the run folder at any time (agent/log_parts.h). Its parts keep
 * their numbers there, and the file becomes the next part. So what was read of the file is in the first part whose
 * number is above that of each part which the node had.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_LOG_FILE_H
#define MUSTER_LAUNCHER_RUNDIR_LOG_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct log_file {
	char *name;     /* such as n1-0.log */
	char *node;     /* NULL: of the launch */
	int rank;       /* -1: of the launch */
	off_t at;       /* what was read into the buffer ends here */
	uint32_t part;  /* the part that is read; 0: the file itself */
	uint32_t known; /* no part up to this number is read any more, except `part` */
	ino_t inode; /* of the file itself, once something of it may have been read; 0: not yet */
	bool parted; /* the log has parts */
	bool local;  /* it is in the folder of this node */
	/* of a local log, when its parts were last looked for: the number of the last one, and of the
	 * one that the file which is read has become, 0: none */
	uint32_t highest, own;
	char *data; /* NULL: no buffer */
	size_t begin, end, room;
	char *line;   /* the current one; ends with a NUL. NULL: there is none by now */
	double time;  /* of the current line */
	double dated; /* when the file was last changed */
	/* The last minute whose seconds since 1970 were computed. */
	char minute[16];
	double minute_at;
	bool cut;        /* the current line is a piece of a longer one */
	bool unreadable; /* it could not be read the last time; for logs.c */
};

/* Splits the name of a log; false: it is none. The texts are new. time: of lines at the begin
 * without one. */
bool rundir_log_file_init(struct log_file *f, const char *name, double time);
void rundir_log_file_fini(struct log_file *f);
/* The length of the name of a part's log: of n1-0.3.log that of n1-0. 0: it is none. */
size_t rundir_log_part(const char *name);

/* The folder of this node has this part of the log. */
void rundir_log_file_note_part(struct log_file *f, const char *folder, uint32_t number);

/* Where logs are. */
struct log_folders {
	const char *shared; /* in the run folder */
	const char *local;  /* of this node */
};

/* Steps to the next line of the log. room: how much is read at once. parts: whether a line
 * that ends without a newline counts. Returns 1; 0: there is none by now. A file that cannot be read
 * is an error; one that was removed has no more lines. */
int rundir_log_file_next(struct log_file *f, const struct log_folders *in, size_t room, bool parts,
			 struct err *e);
/* Frees the buffer, unless it holds the begin of a line. */
void rundir_log_file_rest(struct log_file *f);

#endif
