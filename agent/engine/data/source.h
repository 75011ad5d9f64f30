/*
 * source — one packed token file: Megatron's PREFIX.bin with PREFIX.idx (idx.h), or a file of llm.c
 * (llmc.h).
 *
 * Which one a path means is seen from what is there: PREFIX.idx makes it Megatron's, else the path
 * itself, or PREFIX.bin, is llm.c's, by its first bytes. Files are mapped; the tokens count as one
 * stream of documents. A file that is cut short while it is mapped is refused at the next read; it
 * must not change during a run.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_SOURCE_H
#define MUSTER_AGENT_ENGINE_DATA_SOURCE_H

#include "base/err.h"

#include <stdint.h>

struct source; /* read-only once open; any thread may read */

/* Refuses, by name and cause, files that are missing, cut, inconsistent, or of another kind. */
int data_source_open(const char *path, struct source **out, struct err *e);
void data_source_close(struct source *s);
const char *data_source_file(const struct source *s);   /* the file of the tokens */
const char *data_source_format(const struct source *s); /* "Megatron", "llm.c" */
const char *data_source_type(const struct source *s);   /* "u8", "u16", … */
int64_t data_source_tokens(const struct source *s);
/* llm.c's files must be read through for it. */
int data_source_documents(const struct source *s, int64_t *out, struct err *e);

/* The tokens [first, first + n), within the file. ERR_CORRUPT names the first one >= vocab with
 * its file and offset. */
int data_source_read(const struct source *s, int64_t first, int64_t n, int64_t vocab,
		     int32_t *tokens, struct err *e);
/* For each token of [first, first + n) where its document begins, counted from `first`; 0 when
 * that is before it. */
int data_source_starts(const struct source *s, int64_t first, int64_t n, int32_t *starts,
		       struct err *e);

#endif
