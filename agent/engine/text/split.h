/*
 * split — cuts a text into words by a regular expression, as tokenizer.json's pre-tokenizers do.
 * The only file that knows PCRE2.
 *
 * Patterns are taken as they are in tokenizer.json, with Unicode's classes; \s is Unicode's
 * White_Space, as in the engines that those files are written for (Perl's would have U+180E
 * besides). The classes are those of PCRE2's Unicode version. A pattern that can match nothing at
 * all, or that is not PCRE2's language, is refused.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_SPLIT_H
#define MUSTER_AGENT_ENGINE_TEXT_SPLIT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct split; /* read-only once open; any thread may use it, each with its own matcher */

/* literal: the pattern is a text to be found, no expression. drop_rest: what lies between
 * matches is left out, else it is words, too. */
int text_split_open(const char *pattern, size_t len, bool literal, bool drop_rest,
		    struct split **out, struct err *e);
void text_split_close(struct split *s);

struct split_matcher; /* memory of one thread */
int text_split_matcher_open(struct split_matcher **out, struct err *e);
void text_split_matcher_close(struct split_matcher *m);

/* The match that was found last and not used up; lo == hi: none. */
struct split_ahead {
	size_t lo, hi;
};

/* Where the word that starts at `from` ends, and whether it is one that is left out. text: UTF-8,
 * from < n. *ahead is zeroed before the first word of a text and belongs to this function until the
 * last. */
int text_split_next(const struct split *s, struct split_matcher *m, const char *text, size_t n,
		    size_t from, struct split_ahead *ahead, size_t *end, bool *left_out,
		    struct err *e);

/* The version of Unicode whose classes these are: "14.0.0". */
const char *text_split_unicode(void);

#endif
