/*
 * utf8 — what of a text is UTF-8, by the Unicode standard's table 3-7: no surrogates, nothing above
 * U+10FFFF, no longer form than needed.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_UTF8_H
#define MUSTER_AGENT_ENGINE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at the start of the text; 0: its first byte begins none, or n ends
 * before the character does. */
size_t text_utf8_char(const char *text, size_t n);
/* Bytes of the longest run of whole characters at the start. */
size_t text_utf8_run(const char *text, size_t n);
/* Whether the bytes, fewer than a character has, could still become one. */
bool text_utf8_begun(const char *text, size_t n);
/* The code point of a character that text_utf8_char has found. */
uint32_t text_utf8_value(const char *text, size_t bytes);
/* Unicode's White_Space. */
bool text_utf8_space(uint32_t c);
/* Bytes of white space at the start. */
size_t text_utf8_spaces_at_start(const char *text, size_t n);
/* Where the white space at the end of the first n bytes begins, not before `least`. */
size_t text_utf8_spaces_at_end(const char *text, size_t least, size_t n);

#endif
