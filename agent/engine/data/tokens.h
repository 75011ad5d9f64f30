/*
 * tokens — writes PREFIX.bin and PREFIX.idx, both completely or not at all.
 *
 * Tokens are written to PREFIX.bin.tmp.PID as they come; only the lengths (4 bytes per sequence, 8
 * per document) stay in memory. The commit syncs both files, removes an old PREFIX.idx, and renames
 * .bin and then .idx, so that an index always describes the tokens next to it. A document of more
 * than 2^31 - 1 tokens becomes several sequences, because the format has 31 bits for their lengths.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_TOKENS_H
#define MUSTER_AGENT_ENGINE_DATA_TOKENS_H

#include "agent/engine/data/idx.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct token_writer; /* one thread */

int data_token_writer_open(const char *prefix, enum token_type type, struct token_writer **out,
			   struct err *e);
/* Removes files that were not committed. Takes NULL. */
void data_token_writer_close(struct token_writer *w);
/* Appends `count` tokens of the writer's type to the current document. */
int data_token_writer_add(struct token_writer *w, const void *tokens, size_t count, struct err *e);
/* Ends the current document; one without tokens is left out. */
int data_token_writer_end(struct token_writer *w, struct err *e);
int data_token_writer_commit(struct token_writer *w, struct err *e);
int64_t data_token_writer_tokens(const struct token_writer *w);
int64_t data_token_writer_documents(const struct token_writer *w);

#endif
