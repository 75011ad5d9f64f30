/*
 * output — what a command prints on standard output or draws into a file, and how it ends.
 *
 * A command that reads runs prints with stdio as it likes, and ends with
 *
 *     return command_output_end(status);
 *
 * so all of them treat a full disk, and a reader that has gone, alike.
 */
#ifndef MUSTER_LAUNCHER_CLI_OUTPUT_H
#define MUSTER_LAUNCHER_CLI_OUTPUT_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Prints the value with its lines indented; drops the reference. Returns -1 if it cannot be printed, or
 * `o` is NULL: no memory. */
int command_print_json(json_t *o);
/* Prints the n bytes of a valid JSON text and a newline. Control characters that JSON allows in a text
 * (U+007F to U+009F) are escaped as the others are, so that they cannot control a terminal. */
int command_print_json_text(const char *text, size_t n);

/* Flushes. Returns the status, or if not everything could be printed:
 *     STATUS_FAILED  after saying so on stderr
 *     STATUS_PIPE    silently: the reader of a pipe has enough, as in `muster logs RUN | head` */
int command_output_end(int status);
/* Prints the value as command_print_json() does, and ends so. */
int command_output_json(json_t *o, int status);

/* Writes the text of --svg to the file, as file_publish() does, and frees the text. ERR_NOMEM also if the text has
 * failed. */
int command_write_drawing(struct buf *text, const char *path, struct err *e);

#endif
