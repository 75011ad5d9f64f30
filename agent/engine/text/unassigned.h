/*
 * unassigned — counts the characters of texts that the regular expressions' Unicode tables do not
 * have.
 *
 * PCRE2 10.42 has the classes of Unicode 14. A character that a later version has assigned is
 * unassigned (\p{Cn}) in it. Hugging Face's library has later tables: it may treat the character as
 * a letter or a digit, and so split words differently and produce different ids. This module cannot
 * know which characters were assigned since, so it counts every unassigned one, except the
 * noncharacters (U+FFFE and others), which never will be assigned. It queries PCRE2 itself for the
 * classes of 4096 characters at a time, when the first of them occurs.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_UNASSIGNED_H
#define MUSTER_AGENT_ENGINE_TEXT_UNASSIGNED_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct unassigned_counter; /* one thread */

int text_unassigned_open(struct unassigned_counter **out, struct err *e);
void text_unassigned_close(struct unassigned_counter *w); /* takes NULL */
/* Counts the characters of a text, which consists of whole UTF-8 characters. */
int text_unassigned_scan(struct unassigned_counter *w, const char *text, size_t n, struct err *e);
/* The number so far; *first is the first of them. */
int64_t text_unassigned_count(const struct unassigned_counter *w, uint32_t *first);

#endif
