/*
 * split — splits a text into words with a regular expression, as tokenizer.json's pre-tokenizers do.
 * split.c is the only file that uses PCRE2.
 *
 * Patterns are used as they are in tokenizer.json, with Unicode's classes. \s is Unicode's
 * White_Space, as in the engines that those files are written for (Perl's also has U+180E). The
 * classes are those of PCRE2's Unicode version. A pattern that can match the empty text, or that is
 * not in PCRE2's language, is refused.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_SPLIT_H
#define MUSTER_AGENT_ENGINE_TEXT_SPLIT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct split; /* read-only once open; any thread may use it, each with its own matcher */

/* literal: the pattern is a text, not an expression. drop_rest: the text between matches is left
 * out; otherwise that text becomes words, too. */
int text_split_open(const char *pattern, size_t len, bool literal, bool drop_rest,
		    struct split **out, struct err *e);
void text_split_close(struct split *s);

struct split_matcher; /* the work memory of one thread */
int text_split_matcher_open(struct split_matcher **out, struct err *e);
void text_split_matcher_close(struct split_matcher *m);

/* The last match, if it is not used yet; lo == hi: none. */
struct split_ahead {
	size_t lo, hi;
};

/* Sets the end of the word that starts at `from`, and whether that word is left out. text: UTF-8,
 * from < n. *ahead is zero before the first word of a text and belongs to this function until the
 * last. */
int text_split_next(const struct split *s, struct split_matcher *m, const char *text, size_t n,
		    size_t from, struct split_ahead *ahead, size_t *end, bool *left_out,
		    struct err *e);

/* The Unicode version of the classes: "14.0.0". */
const char *text_split_unicode(void);

#endif
