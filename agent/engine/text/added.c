#include "agent/engine/text/added.h"

#include <stdlib.h>
#include <string.h>

/* The children of a node are a list, because there are few tokens and most bytes have only one
 * successor. */
struct added_node {
	unsigned char byte;
	int32_t child, sibling; /* 0: none (the root is never a child) */
	int32_t index;          /* of the token that ends here; -1: none */
};

static int32_t child_of(const struct added_set *s, int32_t node, unsigned char byte)
{
	int32_t at = s->nodes[node].child;
	while (at && s->nodes[at].byte != byte)
		at = s->nodes[at].sibling;
	return at;
}

static int add_node(struct added_set *s, int32_t parent, unsigned char byte, int32_t *out,
		    struct err *e)
{
	if ((size_t)s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 256;
		struct added_node *nodes = cap > INT32_MAX ? NULL
							   : realloc(s->nodes, cap * sizeof *nodes);
		if (!nodes)
			return err_set(e, ERR_NOMEM, "no memory for the added tokens");
		s->nodes = nodes;
		s->cap = cap;
	}
	bool root = s->n == 0;
	s->nodes[s->n] = (struct added_node){ .byte = byte,
					      .index = -1,
					      .sibling = root ? 0 : s->nodes[parent].child };
	if (!root)
		s->nodes[parent].child = s->n;
	*out = s->n++;
	return 0;
}

int text_added_set_put(struct added_set *s, const struct added_token *t, int32_t index,
		       struct err *e)
{
	int32_t at = 0;
	if (s->n == 0 && add_node(s, 0, 0, &at, e))
		return -1;
	for (size_t i = 0; i < t->len; i++) {
		unsigned char byte = (unsigned char)t->text[i];
		int32_t next = child_of(s, at, byte);
		if (!next && add_node(s, at, byte, &next, e))
			return -1;
		at = next;
	}
	s->nodes[at].index = index;
	s->starts[(unsigned char)t->text[0]] = true;
	return 0;
}

void text_added_set_fini(struct added_set *s)
{
	free(s->nodes);
	*s = (struct added_set){ 0 };
}

bool text_added_find(const struct added_set *s, const char *text, size_t n, size_t from,
		     struct added_match *out)
{
	for (; s->n && from < n; from++) {
		if (!s->starts[(unsigned char)text[from]])
			continue;
		bool found = false;
		int32_t at = 0;
		for (size_t i = from; i < n && (at = child_of(s, at, (unsigned char)text[i])); i++)
			if (s->nodes[at].index >= 0) {
				*out = (struct added_match){ from, i + 1, s->nodes[at].index };
				found = true;
			}
		if (found)
			return true;
	}
	return false;
}
