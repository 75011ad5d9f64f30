/*
 * words — a command line as one line of printable text, and back.
 *
 * A job file keeps a program and its arguments in one value. The text has these rules, which are those
 * of a shell without anything that a shell would look up or run:
 *   - Blanks (also tabs and newlines) separate words.
 *   - '...' is literal, up to the next '.
 *   - In "..." a backslash escapes: \n and \t are a newline and a tab, \xHH is the byte with that
 *     hexadecimal number, and a backslash before a punctuation mark or a blank is that character.
 *     Other letters and digits after a backslash are refused.
 *   - Outside quotes a backslash before a punctuation mark or a blank is that character. Letters and
 *     digits after it are refused, because shells and "..." read them differently.
 *   - Quoted and unquoted pieces without blanks between them are one word; '' and "" are empty.
 *   - All else is literal, also $ ` * ? ~ | > < & ; ( ) { } [ ] # and = outside quotes: no variable, no
 *     file name pattern and no command is expanded. `sh -c '...'` gets a shell.
 *
 * What words_write() writes is printable UTF-8 without tabs, has no blank at its ends, no " #" and no
 * " ;", which begin a comment in a job file, and does not begin and end with the same quote, which a
 * job file refuses. So it can be the value of a key. words_parse() reads exactly the same words again.
 */
#ifndef MUSTER_BASE_WORDS_H
#define MUSTER_BASE_WORDS_H

#include "base/buf.h"
#include "base/err.h"

/* Stores the words of the text in *argv, which ends with NULL; one free() releases it all. A text
 * without words gives an empty list. ERR_USAGE names the column, in characters from 1. */
int words_parse(const char *text, char ***argv, struct err *e);

/* Appends the words up to NULL as a text. -1: there is no memory (buf_failed). */
int words_write(char *const *argv, struct buf *out);

#endif
