/*
 * idx — reads and writes Megatron's index file.
 *
 * PREFIX.idx: "MMIDIDX\0\0", u64 version 1, u8 type code, u64 sequences, u64 document boundaries,
 * int32 lengths, int64 byte pointers, int64 document boundaries (as sequences). PREFIX.bin: the raw
 * tokens.
 *
 * The reader checks
 *   - the magic number and the version;
 *   - the type code;
 *   - that the file's size is exactly what its two counts imply (their sum may not overflow);
 *   - that lengths are >= 0;
 *   - that each byte pointer is where the previous sequences end;
 *   - that document boundaries start at 0, never decrease, and end at the last sequence.
 *
 * Documents are counted as in Megatron: there is one boundary more than there are documents.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_IDX_H
#define MUSTER_AGENT_ENGINE_DATA_IDX_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum token_type {
	TOKEN_U8 = 1,
	TOKEN_I8 = 2,
	TOKEN_I16 = 3,
	TOKEN_I32 = 4,
	TOKEN_I64 = 5,
	TOKEN_U16 = 8
};

/* Bytes per token; 0: not a token type. */
size_t data_token_size(enum token_type type);
const char *data_token_word(enum token_type type);

struct idx {
	enum token_type type;
	int64_t sequences, documents; /* documents without the extra boundary */
	int64_t tokens;
};

/* Parses an index; `name` is the file's name in errors. */
int data_idx_parse(const void *data, size_t size, const char *name, struct idx *out, struct err *e);

/* The first token of a document, 0 <= document < documents. data: the bytes that data_idx_parse
 * checked, which stay mapped. If they were changed since, the number is wrong, but nothing outside
 * of the bytes is read. */
int64_t data_idx_document(const struct idx *x, const void *data, int64_t document);

/* Appends the index of consecutive sequences. bounds: [documents + 1]. */
void data_idx_write(enum token_type type, const int32_t *lengths, int64_t sequences,
		    const int64_t *bounds, int64_t documents, struct buf *out);

#endif
