/*
 * llmc — llm.c's token files: a header of 256 int32, then the tokens.
 *
 *     header[0]  header[1]   tokens                        a document begins with
 *     20240520   1           u16, GPT-2's vocabulary       50256, <|endoftext|>
 *     20240801   7           u32, LLaMA 3's vocabulary     128000, <|begin_of_text|>
 *
 * header[2] is the number of tokens; the rest of the header is ignored. The file has no list of
 * documents: llm.c's scripts write the token of the last column before each document, so it belongs
 * to the document that it begins. The reader checks magic and version together, and that the file's
 * size matches the number of tokens.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_LLMC_H
#define MUSTER_AGENT_ENGINE_DATA_LLMC_H

#include "agent/engine/data/idx.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LLMC_HEADER = 1024 };

struct llmc {
	enum token_type type; /* u32 is read as i32: no vocabulary needs its upper half */
	const char *word;     /* "u16", "u32" */
	int64_t tokens;
	int32_t begin; /* the token at the start of each document */
};

/* Whether the bytes begin like one of the two formats. */
bool data_llmc_is(const void *data, size_t size);
/* Parses the header of a file of `size` bytes. data: its first bytes, at least
 * min(size, LLMC_HEADER). */
int data_llmc_parse(const void *data, size_t size, const char *name, struct llmc *out,
		    struct err *e);

#endif
