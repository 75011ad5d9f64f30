/*
 * pack — packs the documents of files (pack_documents.h) into byte-level tokens: u8, one per byte.
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
	int64_t unassigned; /* characters that the tokenizer's Unicode tables do not have */
	char note[320];     /* the text to print about them; "": none */
};

/* Packs the files into PREFIX.bin and PREFIX.idx. If one of them cannot be read or is a folder,
 * the call fails and neither output is created or changed. */
int data_pack_files(const char *prefix, char *const *files, int64_t n,
		    const struct document_options *opt, struct pack_report *out, struct err *e);

#endif
