/*
 * normalize — rewrites a text before it is split into words, as the normalizers of a tokenizer.json
 * do. normalize.c is the only file that knows utf8proc.
 *
 *     NFC, NFD, NFKC, NFKD     Unicode's normalization forms (UAX 15)
 *     Lowercase                each character's lower case, whatever stands around it
 *     StripAccents             leaves out combining marks (categories Mn, Mc, Me); only NFD or NFKD
 *                              before it makes marks of accents
 *     Strip                    leaves out white space at the start (strip_left) and the end
 *                              (strip_right) of a piece
 *     Replace                  each match of pattern.String or pattern.Regex (split.h) by the text
 *                              `content`
 *     Prepend                  puts the text `prepend` before a piece that is not empty
 *
 * A piece is what lies between added tokens that are not normalized. Bytes that are no UTF-8 stay
 * as they are, and no character combines across one.
 *
 * The tables of Hugging Face's `tokenizers` 0.23 for these forms and for marks are those of Unicode
 * 9. utf8proc knows newer ones, 15 in Debian 12: the characters that it has more are listed in
 * normalize.c and stay as they are, so that ids agree. The lower case is that of utf8proc, where
 * Hugging Face's is of the newest Unicode: capitals of Unicode 16 and later are not lowered.
 *
 * Memory is a few times that of the piece. A result of more than 32 times the piece is refused.
 *
 * To add a normalizer: its function and its row in the table of normalize.c, a line above, one in
 * tokenizer.h, a case in tests/golden/make_tokenizers.py.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_NORMALIZE_H
#define MUSTER_AGENT_ENGINE_TEXT_NORMALIZE_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NORMALIZE_STEPS = 16 };

/* Zeroed at first; read-only once its steps are added: any thread may use it, each with its own
 * work. */
struct normalizer {
	struct normalize_step *steps[NORMALIZE_STEPS];
	int n;
};

/* Whether its type is one of the above. */
bool text_normalizer_has(const json_t *o);
/* Appends the step that a member of a tokenizer.json describes. */
int text_normalizer_add(struct normalizer *z, const json_t *o, struct err *e);
void text_normalizer_fini(struct normalizer *z);
/* Whether the step gives the same text when " " is replaced by "▁" before it instead of behind
 * it. */
bool text_normalizer_commutes(const json_t *o);
/* "NFC, NFD, …" */
const char *text_normalizer_known(void);

/* One thread's memory; zeroed at first. */
struct normalize_work {
	struct buf text[2];     /* of a step, and of the one before it */
	int32_t *chars, *spare; /* [cap] */
	size_t n, cap;
	struct split_matcher *matcher; /* NULL until a Regex needs it */
};

void text_normalize_work_fini(struct normalize_work *w);
/* *text, of *n bytes, becomes the normalized one, which lasts until the next call, or stays what
 * it was. */
int text_normalize(const struct normalizer *z, struct normalize_work *w, const char **text,
		   size_t *n, struct err *e);

#endif
