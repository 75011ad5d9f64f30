/*
 * source — one packed token file: Megatron's PREFIX.bin with PREFIX.idx (idx.h), or a file of llm.c
 * (llmc.h).
 *
 * If PREFIX.idx exists, the path is Megatron's. Otherwise the path itself, or PREFIX.bin, is
 * llm.c's if its first bytes match. Files are mapped; the tokens are one stream of documents. A
 * file must not change during a run; if one is truncated while it is mapped, the next read fails.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_SOURCE_H
#define MUSTER_AGENT_ENGINE_DATA_SOURCE_H

#include "base/err.h"

#include <stdint.h>

struct source; /* read-only once open; any thread may read */

/* The error names a file that is missing, truncated, inconsistent or of another format. */
int data_source_open(const char *path, struct source **out, struct err *e);
void data_source_close(struct source *s);
const char *data_source_file(const struct source *s);   /* the file of the tokens */
const char *data_source_format(const struct source *s); /* "Megatron", "llm.c" */
const char *data_source_type(const struct source *s);   /* "u8", "u16", … */
int64_t data_source_tokens(const struct source *s);
/* Counts the documents; a file of llm.c is read completely for it. */
int data_source_documents(const struct source *s, int64_t *out, struct err *e);

/* Reads the tokens [first, first + n), which must be in the file. ERR_CORRUPT names the first one
 * >= vocab with its file and offset. */
int data_source_read(const struct source *s, int64_t first, int64_t n, int64_t vocab,
		     int32_t *tokens, struct err *e);
/* Sets for each token of [first, first + n) where its document begins, relative to `first`; 0 if it
 * begins before. */
int data_source_starts(const struct source *s, int64_t first, int64_t n, int32_t *starts,
		       struct err *e);

#endif
