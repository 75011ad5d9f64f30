/*
 * vocab — the tokens of a vocabulary: text to id and id to text.
 *
 * The text of a token is what it means in a text (for a byte-level vocabulary, its bytes), not how
 * tokenizer.json writes it. Ids need not be dense. Hidden tokens, which no text can produce, have a
 * text by id but are not found by text.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_VOCAB_H
#define MUSTER_AGENT_ENGINE_TEXT_VOCAB_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest accepted id, because an id is an index into memory. */
enum { VOCAB_MAX = 1 << 22 };

struct vocab_token {
	size_t at; /* into text */
	uint32_t len;
	bool there;
};

struct vocab {
	struct vocab_token *tokens; /* [n], by id */
	int32_t n;                  /* one more than the largest id */
	size_t cap;
	struct buf text; /* of all tokens, a NUL after each */
	int32_t *slots;  /* ids, -1: free; open addressing */
	size_t n_slots;  /* a power of two; 0 before the first token */
	size_t found;    /* number of ids in slots */
};

void text_vocab_fini(struct vocab *v);
/* Adds a token. ERR_CORRUPT: the id is taken or out of range, or a token that is not hidden has
 * this text already. */
int text_vocab_put(struct vocab *v, int64_t id, const char *text, size_t len, bool hidden,
		   struct err *e);
/* Returns -1 if the vocabulary has no such text. */
int32_t text_vocab_find(const struct vocab *v, const char *text, size_t len);
bool text_vocab_has(const struct vocab *v, int64_t id);
/* The text of an existing token. */
const char *text_vocab_text(const struct vocab *v, int32_t id, size_t *len);

/* Returns a hash of any bytes, for the hash tables of this folder. */
uint64_t text_hash(const char *text, size_t len);

#endif
