/*
 * pack — files to byte-level tokens (u8, one a byte): the documents of pack_documents.h.
 *
 * Files are streamed: memory does not grow with their size. Empty documents are left out.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_H

#include "agent/engine/data/pack_documents.h"
#include "base/err.h"

#include <stdint.h>

struct pack_report {
	struct document_counts read;
	int64_t tokens;
	int64_t newer;  /* characters that the tokenizer's classes do not know, */
	char note[320]; /* and what to print of them; "" without any */
};

/* Packs the files into PREFIX.bin and PREFIX.idx. A file that cannot be read, or a folder,
 * fails the whole: neither file is then there or changed. */
int data_pack_files(const char *prefix, char *const *files, int64_t n,
		    const struct document_options *opt, struct pack_report *out, struct err *e);

#endif
