/*
 * pack_tokens — packs the documents of files (pack_documents.h) as the ids of a tokenizer.json: u16
 * if the vocabulary fits, otherwise i32.
 *
 * Text files are mapped, and ids are written as they come: with a byte-level vocabulary memory does
 * not grow with the files. A text from a pipe or a compressed file is held in memory, and is at most
 * 1 GiB.
 */
#ifndef MUSTER_AGENT_TOOLS_PACK_TOKENS_H
#define MUSTER_AGENT_TOOLS_PACK_TOKENS_H

#include "agent/engine/data/idx.h"
#include "agent/engine/data/pack.h"
#include "base/err.h"

struct pack_tokens_options {
	const char *tokenizer; /* path of a tokenizer.json */
	/* texts of the tokens before and after each document; NULL: none */
	const char *begin, *end;
};

/* Fails like data_pack_files. *type: the type of the tokens that were written. */
int tool_pack_tokens(const char *prefix, char *const *files, int64_t n,
		     const struct document_options *read, const struct pack_tokens_options *opt,
		     struct pack_report *out, enum token_type *type, struct err *e);

#endif
