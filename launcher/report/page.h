/*
 * page — HTML text from data that nobody has checked.
 *
 * Names, log lines and values come from files that may hold any bytes. Everything that is put into
 * the page goes through report_text() or is a number: then it cannot become markup, nor end an
 * attribute or a script. Invalid UTF-8 becomes U+FFFD, a control character a space.
 */
#ifndef MUSTER_LAUNCHER_REPORT_PAGE_H
#define MUSTER_LAUNCHER_REPORT_PAGE_H

#include "base/buf.h"

#include <stdint.h>

enum { REPORT_WORD = 64 };

/* Appends the text with everything escaped that HTML reserves, also inside a quoted attribute and
 * inside JSON of a script element. text may be NULL. */
void report_text(struct buf *out, const char *text);
/* The same, for at most `most` bytes, with … where it was cut. */
void report_text_cut(struct buf *out, const char *text, size_t most);

/* Formats for people. Each returns `out`; a value that is not finite is "–". */
const char *report_count(int64_t n, char out[REPORT_WORD]);   /* "518,400" */
const char *report_value(double v, char out[REPORT_WORD]);    /* "2.313", "1.2e-05" */
const char *report_rate(double v, char out[REPORT_WORD]);     /* "12.3 k" */
const char *report_seconds(double s, char out[REPORT_WORD]);  /* "12.3 ms" */
const char *report_duration(double s, char out[REPORT_WORD]); /* "29 d 23 h", "41.2 s" */
/* The same since the start of the run; "0 s" for less than a tenth of a second. */
const char *report_after(double s, char out[REPORT_WORD]);
const char *report_bytes(double bytes, char out[REPORT_WORD]); /* "3.2 GiB" */
/* "383,500", "1.25": hours without a unit. */
const char *report_hours(double s, char out[REPORT_WORD]);
/* "383,500 h"; "41.2 s" for less than an hour. */
const char *report_device_time(double s, char out[REPORT_WORD]);
const char *report_percent(double share, char out[REPORT_WORD]); /* 0.973: "97.3 %" */
const char *report_time(double time, char out[REPORT_WORD]);     /* "2026-11-20 10:00:05" in UTC */

/* A number that a reader or a program can take from the page: the element <data> has the exact
 * value, `shown` is what people see. */
void report_data(struct buf *out, const char *field, double exact, const char *shown);
/* The shortest decimal number that is read back as the same double; "null" if it is not finite. */
const char *report_exact(double v, char out[REPORT_WORD]);

#endif
