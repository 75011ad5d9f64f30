/*
 * normalize — rewrites a text before it is split into words, as the normalizers of a tokenizer.json
 * do. Of the agent's files only normalize.c uses utf8proc.
 *
 *     NFC, NFD, NFKC, NFKD     Unicode's normalization forms (UAX 15)
 *     Lowercase                each character's lower case, independent of its neighbours
 *     StripAccents             removes combining marks (categories Mn, Mc, Me); accents are marks
 *                              only after NFD or NFKD
 *     Strip                    removes white space at the start (strip_left) and the end
 *                              (strip_right) of a piece
 *     Replace                  replaces each match of pattern.String or pattern.Regex (split.h) with
 *                              the text `content`
 *     Prepend                  puts the text `prepend` before a piece that is not empty
 *
 * A piece is the text between added tokens that are not normalized. Bytes that are not UTF-8 stay as
 * they are, and characters do not combine across them.
 *
 * The tables of Hugging Face's `tokenizers` 0.23 for these forms and for marks are those of Unicode
 * 9. utf8proc has later ones, Unicode 15 in Debian 12: the characters that it has in addition are
 * listed in normalize.c and stay as they are, so that ids agree. The lower case is that of utf8proc,
 * while Hugging Face uses that of the latest Unicode: capitals of Unicode 16 and later are not
 * lowered.
 *
 * Memory is a few times the size of the piece. A result of more than 32 times the piece is refused.
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

/* Initially zero. Read-only once its steps are added: any thread may use it, each with its own
 * work memory. */
struct normalizer {
	struct normalize_step *steps[NORMALIZE_STEPS];
	int n;
};

/* Whether the object's type is one of the above. */
bool text_normalizer_has(const json_t *o);
/* Appends the step that a member of a tokenizer.json describes. */
int text_normalizer_add(struct normalizer *z, const json_t *o, struct err *e);
void text_normalizer_fini(struct normalizer *z);
/* Whether the step gives the same text if " " is replaced with "▁" before it instead of after
 * it. */
bool text_normalizer_commutes(const json_t *o);
/* "NFC, NFD, …" */
const char *text_normalizer_known(void);

/* The work memory of one thread; initially zero. */
struct normalize_work {
	struct buf text[2];     /* the result of a step and of the previous one */
	int32_t *chars, *spare; /* [cap] */
	size_t n, cap;
	struct split_matcher *matcher; /* NULL until a Regex uses it */
};

void text_normalize_work_fini(struct normalize_work *w);
/* Sets *text and *n to the normalized text, which is valid until the next call, or leaves them if
 * nothing changes. */
int text_normalize(const struct normalizer *z, struct normalize_work *w, const char **text,
		   size_t *n, struct err *e);

#endif
