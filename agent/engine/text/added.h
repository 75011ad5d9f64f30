/*
 * added — finds the added tokens of a vocabulary, such as `<|endoftext|>`, in a text before it is
 * split into words.
 *
 * The leftmost match wins. If several matches start at the same place, the longest wins.
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
	bool special;        /* left out when ids are decoded */
	bool lstrip, rstrip; /* the match includes the white space before, after it */
	bool normalized;     /* searched after those that are not normalized */
};

/* Some of the tokens, in a trie. */
struct added_set {
	struct added_node *nodes; /* [0] is the root */
	int32_t n;
	size_t cap;
	bool starts[256]; /* first bytes of tokens */
};

int text_added_set_put(struct added_set *s, const struct added_token *t, int32_t index,
		       struct err *e);
void text_added_set_fini(struct added_set *s);

struct added_match {
	size_t lo, hi;
	int32_t index; /* the index that the token was added with */
};

/* Finds the first match at or after `from`; false: there is none. */
bool text_added_find(const struct added_set *s, const char *text, size_t n, size_t from,
		     struct added_match *out);

#endif
