/*
 * step_file — reads what a rank recorded in chosen steps (agent/engine/train/step_trace.h has the
 * format). The file is not trusted: every value is checked.
 */
#ifndef MUSTER_AGENT_TOOLS_STEP_FILE_H
#define MUSTER_AGENT_TOOLS_STEP_FILE_H

#include "base/err.h"
#include "libcomm/flight/diagnose.h"

#include <stdint.h>

enum { STEP_FILE_NAME = 48 };

struct step_phase {
	char name[STEP_FILE_NAME]; /* printable ASCII without quotes */
	int64_t step;              /* from 1 */
	double begin, end;         /* microseconds since 1970 */
	int chunk, micro;          /* -1: none */
};

struct step_file {
	int rank;
	char place[STEP_FILE_NAME];
	int64_t first, last, lost;
	struct step_phase *phases;
	int n;
	struct trace comm; /* has this rank only */
};

/* ERR_CORRUPT: it is no such file. */
int tool_step_file_read(const char *path, struct step_file *out, struct err *e);
/* For tool_step_file_read(): `text` is the content of the file `name`. */
int tool_step_file_parse(const char *text, size_t bytes, const char *name, struct step_file *out,
			 struct err *e);
void tool_step_file_free(struct step_file *f);

/* Copies printable ASCII; quotes, backslashes and all else become '?', so that the text can stand in
 * JSON and on a terminal. */
void tool_step_name(char *out, size_t size, const char *text);

#endif
