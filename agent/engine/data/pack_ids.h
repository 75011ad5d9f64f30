/*
 * pack_ids — packs arrays of token ids without a header, such as nanoGPT's train.bin.
 *
 * A file is an array of little-endian integers of one type (data_pack_ids_types) and nothing else.
 * It may be compressed if its name ends in .gz or .zst. u16 stays u16; the other types become i32,
 * because no vocabulary is larger. Each file begins a document; a document also ends after each
 * token with the id `end`.
 *
 * To add a type: a row of `types` in pack_ids.c.
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
	int64_t documents, empty, tokens; /* empty: number of empty files */
	int32_t largest;                  /* the largest id */
	enum token_type type;
};

/* "u16, u32, …" */
const char *data_pack_ids_types(void);
/* Fails like data_pack_files, and with ERR_USAGE for an unknown type. ERR_CORRUPT names the first
 * value that cannot be an id. */
int data_pack_ids(const char *prefix, char *const *files, int64_t n,
		  const struct pack_ids_options *opt, struct pack_ids_report *out, struct err *e);

#endif
