/*
 * torch_files — reads the dumps of PyTorch's flight recorder into a trace (libcomm/flight/diagnose.h).
 *
 * The files are read twice, because each of them shows only a part of the world, and one at a time.
 */
#ifndef MUSTER_AGENT_TOOLS_TORCH_FILES_H
#define MUSTER_AGENT_TOOLS_TORCH_FILES_H

#include "base/buf.h"
#include "base/err.h"
#include "libcomm/flight/diagnose.h"

#include <stdbool.h>

struct torch_file {
	char *path;
	int rank;
	bool own;    /* in a folder of the run; otherwise the user named it */
	bool unread; /* it is left out */
};

struct torch_files {
	struct torch_file *list;
	int n;
};

/* The rank of a file that the user named, by its name: torch-3, or any name that ends with a number
 * if the file is a pickle. -1: it is no dump of PyTorch. */
int tool_torch_file_rank(const char *path);

int tool_torch_files_add(struct torch_files *f, const char *path, int rank, bool own,
			 struct err *e);
/* Adds all dumps to the trace. A damaged file of a run's folder, whose process was perhaps ended
 * while it wrote, is left out, and `left_out` says why; it fails if no other file is left. */
int tool_torch_files_read(struct torch_files *f, struct trace *t, struct buf *left_out,
			  struct err *e);
void tool_torch_files_fini(struct torch_files *f);

#endif
