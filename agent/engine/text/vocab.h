/*
 * vocab — the tokens of a vocabulary by their text, both ways.
 *
 * A token's text is what it stands for in a text (of a byte-level vocabulary: its bytes), not how
 * tokenizer.json writes it. Ids need not be dense. Tokens that no text can ask for are put in
 * hidden: they have a text by id, but are not found.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_VOCAB_H
#define MUSTER_AGENT_ENGINE_TEXT_VOCAB_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest id that is read: an id is an index into memory. */
enum { VOCAB_MOST = 1 << 22 };

struct vocab_token {
	size_t at; /* into text */
	uint32_t len;
	bool there;
};

struct vocab {
	struct vocab_token *tokens; /* [n], by id */
	int32_t n;                  /* one more than the largest id */
	size_t cap;
	struct buf text; /* of all tokens, a NUL behind each */
	int32_t *slots;  /* ids, -1: free; open addressing */
	size_t n_slots;  /* a power of two, 0 before the first */
	size_t found;    /* how many are in slots */
};

void text_vocab_fini(struct vocab *v);
/* ERR_CORRUPT when the id is taken or out of range, or the text of one that can be found is
 * there already. */
int text_vocab_put(struct vocab *v, int64_t id, const char *text, size_t len, bool hidden,
		   struct err *e);
/* -1: there is none. */
int32_t text_vocab_find(const struct vocab *v, const char *text, size_t len);
bool text_vocab_has(const struct vocab *v, int64_t id);
/* The text of a token that is there. */
const char *text_vocab_text(const struct vocab *v, int32_t id, size_t *len);

/* Of any bytes: what the hash tables here use. */
uint64_t text_hash(const char *text, size_t len);

#endif
