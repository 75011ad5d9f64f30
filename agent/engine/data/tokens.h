/*
 * tokens — writes PREFIX.bin and PREFIX.idx: all of a dataset or nothing of it.
 *
 * Tokens go to PREFIX.bin.tmp.PID as they come; only the lengths (4 bytes a sequence, 8 a document)
 * stay in memory. Commit fsyncs both files, takes an old PREFIX.idx away, renames .bin, then .idx:
 * whoever finds an index finds the tokens that it describes. A document of more than 2^31 - 1
 * tokens becomes several sequences, as the format counts their lengths in 31 bits.
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
/* Removes what was not committed. Takes NULL. */
void data_token_writer_close(struct token_writer *w);
/* Appends `count` tokens of the writer's type to the document under way. */
int data_token_writer_add(struct token_writer *w, const void *tokens, size_t count, struct err *e);
/* Ends the document; one without tokens leaves nothing behind. */
int data_token_writer_end(struct token_writer *w, struct err *e);
int data_token_writer_commit(struct token_writer *w, struct err *e);
int64_t data_token_writer_tokens(const struct token_writer *w);
int64_t data_token_writer_documents(const struct token_writer *w);

#endif
