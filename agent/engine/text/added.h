/*
 * added — the added tokens of a vocabulary, found in a text before it is split into words:
 * `<|endoftext|>` and their like.
 *
 * The leftmost match counts, the longest of those that start there.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_ADDED_H
#define MUSTER_AGENT_ENGINE_TEXT_ADDED_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
	char *text;
	size_t len;
	int32_t id;
	bool special;        /* left out when ids become text */
	bool lstrip, rstrip; /* takes the white space before, after it along */
	bool normalized;     /* looked for after those that are not */
};

/* Some of the tokens, in a trie. */
struct added_set {
	struct added_node *nodes; /* [0] is the root */
	int32_t n;
	size_t cap;
	bool starts[256]; /* bytes that tokens start with */
};

int text_added_set_put(struct added_set *s, const struct added_token *t, int32_t index,
		       struct err *e);
void text_added_set_fini(struct added_set *s);

struct added_match {
	size_t lo, hi;
	int32_t index; /* as it was put */
};

/* The first match at or after `from`; false: none is left. */
bool text_added_find(const struct added_set *s, const char *text, size_t n, size_t from,
		     struct added_match *out);

#endif
