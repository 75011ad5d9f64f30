/*
 * data_pack_ids — arrays of token ids without a header, such as nanoGPT's train.bin, to packed
 * tokens.
 *
 * A file is a row of little-endian integers of one type (`data_pack_ids_types`) and nothing else;
 * it may be compressed when its name ends in .gz or .zst. u16 stays u16, the others become i32: no
 * vocabulary is larger. Each file begins a document; a document also ends behind each token of the
 * id `end`.
 *
 * To add a type: a row of `types` in data_pack_ids.c.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_IDS_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_IDS_H

#include "agent/engine/data/idx.h"
#include "base/err.h"

#include <stdint.h>

struct pack_ids_options {
	const char *type; /* "u16", … */
	int64_t end;      /* -1: none */
	int64_t vocab;    /* ids must be below it; 0: any */
};

struct pack_ids_report {
	int64_t documents, empty, tokens; /* empty: files */
	int32_t largest;                  /* id */
	enum token_type type;
};

/* "u16, u32, …" */
const char *data_pack_ids_types(void);
/* As data_pack_files. ERR_USAGE for a type that is not known; ERR_CORRUPT names the first id
 * that cannot be one. */
int data_pack_ids(const char *prefix, char *const *files, int64_t n,
		  const struct pack_ids_options *opt, struct pack_ids_report *out, struct err *e);

#endif
