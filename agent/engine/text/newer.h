/*
 * newer — counts the characters of texts that the regular expressions' Unicode tables do not know.
 *
 * PCRE2 10.42 has the classes of Unicode 14. A character that a later version has assigned is
 * unassigned (\p{Cn}) to it, while Hugging Face's library, with newer tables, may take it for a
 * letter or a digit and cut words, and so ids, in other places. Nothing here knows which characters
 * were assigned since, so each unassigned one counts, but not the noncharacters (U+FFFE and their
 * like), which never will be. The classes are asked of PCRE2 itself, for 4096 characters when the
 * first of them is met.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_NEWER_H
#define MUSTER_AGENT_ENGINE_TEXT_NEWER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct unassigned_counter; /* one thread */

int text_unassigned_open(struct unassigned_counter **out, struct err *e);
void text_unassigned_close(struct unassigned_counter *w); /* takes NULL */
/* text: whole characters of UTF-8. */
int text_unassigned_scan(struct unassigned_counter *w, const char *text, size_t n, struct err *e);
/* How many so far; *first is the first of them. */
int64_t text_unassigned_count(const struct unassigned_counter *w, uint32_t *first);

#endif
