#include "agent/engine/text/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Multiplies and folds the halves of the product, so that each input bit affects each output bit.
 */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 p = (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) *
			      (b ^ UINT64_C(0xd1b54a32d192ed03));
	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t text_hash(const char *text, size_t len)
{
	uint64_t h = len;
	for (; len >= 8; text += 8, len -= 8) {
		uint64_t v;
		memcpy(&v, text, 8);
		h = mix(h, v);
	}
	uint64_t rest = 0;
	memcpy(&rest, text, len);
	return mix(h, rest);
}

void text_vocab_fini(struct vocab *v)
{
	free(v->tokens);
	free(v->slots);
	buf_fini(&v->text);
	*v = (struct vocab){ 0 };
}

static bool same(const struct vocab *v, int32_t id, const char *text, size_t len)
{
	const struct vocab_token *t = &v->tokens[id];
	return t->len == len && !memcmp(v->text.data + t->at, text, len);
}

/* Returns the slot that holds the text, or the free slot where it belongs. */
static size_t slot_of(const struct vocab *v, const char *text, size_t len)
{
	size_t mask = v->n_slots - 1, i = text_hash(text, len) & mask;
	while (v->slots[i] >= 0 && !same(v, v->slots[i], text, len))
		i = (i + 1) & mask;
	return i;
}

int32_t text_vocab_find(const struct vocab *v, const char *text, size_t len)
{
	return v->n_slots ? v->slots[slot_of(v, text, len)] : -1;
}

bool text_vocab_has(const struct vocab *v, int64_t id)
{
	return id >= 0 && id < v->n && v->tokens[id].there;
}

const char *text_vocab_text(const struct vocab *v, int32_t id, size_t *len)
{
	*len = v->tokens[id].len;
	return v->text.data + v->tokens[id].at;
}

/* Keeps at least half of the slots free. */
static int grow_slots(struct vocab *v, struct err *e)
{
	size_t n = v->n_slots ? 2 * v->n_slots : 1024, before = v->n_slots;
	int32_t *old = v->slots, *slots = malloc(n * sizeof *slots);
	if (!slots)
		return err_set(e, ERR_NOMEM, "no memory for a vocabulary of %zu tokens", v->found);
	memset(slots, 0xff, n * sizeof *slots);
	v->slots = slots;
	v->n_slots = n;
	for (size_t i = 0; i < before; i++)
		if (old[i] >= 0) {
			const struct vocab_token *t = &v->tokens[old[i]];
			slots[slot_of(v, v->text.data + t->at, t->len)] = old[i];
		}
	free(old);
	return 0;
}

static int grow_tokens(struct vocab *v, int32_t id, struct err *e)
{
	if (id < v->n)
		return 0;
	if ((size_t)id >= v->cap) {
		size_t cap = v->cap ? v->cap : 1024;
		while (cap <= (size_t)id)
			cap *= 2;
		struct vocab_token *tokens = realloc(v->tokens, cap * sizeof *tokens);
		if (!tokens)
			return err_set(e, ERR_NOMEM,
				       "no memory for a vocabulary of %" PRId32 " tokens", id);
		v->tokens = tokens;
		v->cap = cap;
	}
	memset(v->tokens + v->n, 0, (size_t)(id + 1 - v->n) * sizeof *v->tokens);
	v->n = id + 1;
	return 0;
}

int text_vocab_put(struct vocab *v, int64_t id, const char *text, size_t len, bool hidden,
		   struct err *e)
{
	if (id < 0 || id >= VOCAB_MAX)
		return err_set(e, ERR_CORRUPT,
			       "token \"%.*s\" has the id %" PRId64 "; ids are 0 to %d",
			       (int)(len < 60 ? len : 60), text, id, VOCAB_MAX - 1);
	if (text_vocab_has(v, id))
		return err_set(e, ERR_CORRUPT,
			       "tokens \"%.*s\" and \"%.*s\" have the same id %" PRId64,
			       (int)v->tokens[id].len, v->text.data + v->tokens[id].at, (int)len,
			       text, id);
	if (grow_tokens(v, (int32_t)id, e) || (2 * (v->found + 1) > v->n_slots && grow_slots(v, e)))
		return -1;
	v->tokens[id] =
		(struct vocab_token){ .at = v->text.len, .len = (uint32_t)len, .there = true };
	buf_add(&v->text, text, len);
	buf_add(&v->text, "", 1);
	if (buf_failed(&v->text))
		return err_set(e, ERR_NOMEM, "no memory for the text of a vocabulary");
	if (hidden)
		return 0;
	size_t slot = slot_of(v, text, len);
	if (v->slots[slot] >= 0)
		return err_set(e, ERR_CORRUPT,
			       "token \"%.*s\" has two ids, %" PRId32 " and %" PRId64,
			       (int)(len < 60 ? len : 60), text, v->slots[slot], id);
	v->slots[slot] = (int32_t)id;
	v->found++;
	return 0;
}
