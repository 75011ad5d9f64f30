/*
 * human — numbers and texts for people: one style wherever muster prints one.
 *
 * What is stored or held in memory is in powers of 1024 ("3.2 GiB"); rates and
 * counts are in powers of 1000 ("12.5 GB/s", "124 M"). A blank stands before
 * the unit. Numbers that programs read (--json) are never written so.
 */
#ifndef MUSTER_BASE_HUMAN_H
#define MUSTER_BASE_HUMAN_H

#include <stdint.h>

enum { HUMAN = 32 };

/* "416 KiB", "3.2 GiB" */
const char *human_bytes(double bytes, char out[HUMAN]);

/* "12.3 k" and "999" when unit is "", "12.3 GB/s" and "999 B/s" with one; units of up to 16
 * characters. */
const char *human_count(double n, const char *unit, char out[HUMAN]);

/* "12.3 ms", "0 s" */
const char *human_seconds(double seconds, char out[HUMAN]);

/* Blanks in place of what could steer a terminal, in UTF-8 too (U+0080 to U+009F): for text that
 * came from outside. */
void human_plain(char *text);

/* The ending of a noun: "%d node%s". */
const char *human_s(int64_t n);

#endif
