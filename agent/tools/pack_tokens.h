/*
 * pack_tokens — text files to the ids of a tokenizer.json, one document a file: u16 where the vocabulary fits, else i32.
 *
 * Files are mapped, and ids are written as they come: memory does not grow with the files of a byte-level vocabulary.
 */
#ifndef MUSTER_AGENT_TOOLS_PACK_TOKENS_H
#define MUSTER_AGENT_TOOLS_PACK_TOKENS_H

#include "agent/data/idx.h"
#include "agent/data/pack.h"
#include "base/err.h"

struct pack_tokens_options {
	const char *tokenizer;  /* path of a tokenizer.json */
	const char *begin, *end; /* texts of the tokens before and after each document; NULL: none */
};

/* As pack_files. *type is what was written. */
int pack_tokens(const char *prefix, char *const *files, int64_t n, const struct pack_tokens_options *opt,
		struct pack_report *out, enum token_type *type, struct err *e);

#endif
