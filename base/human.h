/*
 * human — formats numbers and texts for people, in one style everywhere.
 *
 * Sizes of files and memory use powers of 1024 ("3.2 GiB"); rates and counts use powers of 1000
 * ("12.5 GB/s", "124 M"). A space precedes the unit. Numbers that programs read (--json) are never
 * formatted this way.
 */
#ifndef MUSTER_BASE_HUMAN_H
#define MUSTER_BASE_HUMAN_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

enum { HUMAN = 32 };

/* "416 KiB", "3.2 GiB" */
const char *human_bytes(double bytes, char out[HUMAN]);

/* "12.3 k" and "999" when unit is "", "12.3 GB/s" and "999 B/s" with one; units of up to 16
 * characters. */
const char *human_count(double n, const char *unit, char out[HUMAN]);

/* "12.3 ms", "0 s" */
const char *human_seconds(double seconds, char out[HUMAN]);

/* "13.6 days", "3.2 h", "14.0 min", "41.2 s"; "for ever" from HUMAN_FOR_EVER seconds on, a thousand
 * years. */
#define HUMAN_FOR_EVER (1000 * 365.25 * 86400)
const char *human_span(double seconds, char out[HUMAN]);

/* Replaces control characters by spaces, so that text from outside cannot control a terminal. Those of
 * U+0080 to U+009F count in UTF-8, and as single bytes that are part of no valid character. */
void human_plain(char *text);

/* The length in bytes of the printable character of UTF-8 at s; 0: there is none, but a control character,
 * the end of the text, or a byte that is part of no valid character. */
size_t human_printable(const char *s);
/* The length of the character of UTF-8 at `s`, which ends with a NUL; 0: there is none. */
size_t human_character(const char *s);

/* Appends the word as a person can give it to a shell: in quotes if it needs them, and with control
 * characters as bash, ksh and zsh read them, $'\033'. */
void human_shell_word(const char *word, struct buf *out);

/* The columns that a plain text takes on a terminal: 2 for a wide character such as a Chinese one, 0 for
 * a combining mark, and 1 for a byte that is part of no character. human_width.c */
int human_width(const char *text);
/* The width to give to printf's "%-*s", which counts bytes, so that the text fills `wide` columns. */
int human_padded(const char *text, int wide);

/* Appends a bar of `width` characters. A share from 0 to 1 of them is full. */
void human_bar(double share, int width, struct buf *out);

/* The plural ending of a noun, "" or "s": "%d node%s". */
const char *human_s(int64_t n);

#endif
