/*
 * pack_format — recognizes the format of a file for `data pack`: text, lines of JSON, or a format
 * that must be converted first.
 *
 * The first bytes decide (after decompression, pack_stream.h). If they match no known format and
 * are not UTF-8, the ending of the name decides: `corpus.pt` may be Portuguese text. One table
 * holds the refused formats, each with the command that converts it. A file of no known format that
 * has FORMAT_NULS_MAX or more NULs in its first 64 KiB is not text and is refused as well; fewer
 * are reported (data_pack_format_nuls).
 *
 * To add a format: a row of `formats` in pack_format.c, tested by hand. In its command, {} is the
 * file and {field} the field of --field.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_FORMAT_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_FORMAT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { FORMAT_MAGIC_MIN = 4, FORMAT_NULS_MAX = 16 };

/* ERR_UNSUPPORTED if the format cannot be packed; the text names it and the command that converts
 * it. */
int data_pack_format_check(const char *file, const char *head, size_t n, const char *field,
			   struct err *e);
/* The check for token ids, which may begin with any bytes: only magic numbers of FORMAT_MAGIC_MIN
 * bytes or more count, and not that of an Arrow stream, which are ids of all ones. */
int data_pack_format_check_ids(const char *file, const char *head, size_t n, struct err *e);

size_t data_pack_format_nuls(const char *head, size_t n);

/* Whether each line is a JSON object: true for .jsonl, .ndjson and .json; with `asked`, for every
 * ending except .txt. */
bool data_pack_format_is_lines(const char *file, bool asked);
/* Appends a file's name as a word of a command line, quoted if needed. */
void data_pack_format_quote_word(struct buf *out, const char *word);
/* Whether the name ends in .gz or .zst. */
bool data_pack_format_is_compressed(const char *file);

#endif
