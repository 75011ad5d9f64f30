/*
 * utf8 — recognizes UTF-8 by table 3-7 of the Unicode standard: no surrogates, no code point above
 * U+10FFFF, and no form longer than needed.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_UTF8_H
#define MUSTER_AGENT_ENGINE_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of the character at the start of the text; 0: its first byte begins no character, or the
 * text ends before the character does. */
size_t text_utf8_char(const char *text, size_t n);
/* The bytes of the longest run of whole characters at the start. */
size_t text_utf8_run(const char *text, size_t n);
/* Whether the bytes are the beginning of a character that more bytes could complete. */
bool text_utf8_begun(const char *text, size_t n);
/* The code point of a character that text_utf8_char has found. */
uint32_t text_utf8_value(const char *text, size_t bytes);
/* Whether it is in Unicode's White_Space. */
bool text_utf8_space(uint32_t c);
/* The bytes of white space at the start. */
size_t text_utf8_spaces_at_start(const char *text, size_t n);
/* The offset, at least `least`, where the white space at the end of the first n bytes begins. */
size_t text_utf8_spaces_at_end(const char *text, size_t least, size_t n);

#endif
