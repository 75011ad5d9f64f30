/*
 * pack — text files to byte-level tokens (u8, one a byte), one document a file.
 *
 * Files are streamed: memory does not grow with their size. Empty files are left out.
 */
#ifndef MUSTER_AGENT_DATA_PACK_H
#define MUSTER_AGENT_DATA_PACK_H

#include "base/err.h"

#include <stdint.h>

struct pack_report {
	int64_t files, empty, tokens;
};

/* Packs the files into PREFIX.bin and PREFIX.idx. A file that cannot be read, or a folder,
 * fails the whole: neither file is then there or changed. */
int pack_files(const char *prefix, char *const *files, int64_t n, struct pack_report *out, struct err *e);

#endif
