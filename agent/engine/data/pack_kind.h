/*
 * pack_kind — what a file is to `data pack`: text, lines of JSON, or something that must be
 * converted first.
 *
 * The first bytes decide (after unpacking, pack_stream.h). Where they are of no known kind and no
 * UTF-8, the name's ending does: `corpus.pt` may be Portuguese text. One table holds the kinds that
 * are refused, each with the command that converts it. A file of no known kind with FORMAT_NULS_MOST
 * NULs or more among its first 64 KiB is no text, and refused, too; fewer are reported
 * (data_pack_format_nuls).
 *
 * To add a kind: a row of `kinds` in pack_kind.c, tested by hand; in its command {} is the file,
 * {field} the field of --field.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_KIND_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_KIND_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { FORMAT_MAGIC_LEAST = 4, FORMAT_NULS_MOST = 16 };

/* Refuses (ERR_UNSUPPORTED) what is of a kind that cannot be packed, by its name and the command
 * that converts it. */
int data_pack_format_check(const char *file, const char *head, size_t n, const char *field,
			 struct err *e);
/* The same for token ids, which may begin with any bytes: only first bytes of FORMAT_MAGIC_LEAST or
 * more count, and not those of an Arrow stream, which are ids of all ones. */
int data_pack_format_check_ids(const char *file, const char *head, size_t n, struct err *e);

size_t data_pack_format_nuls(const char *head, size_t n);

/* Whether each line is an object of JSON: by the ending .jsonl, .ndjson or .json; asked: by any
 * but .txt. */
bool data_pack_format_is_lines(const char *file, bool asked);
/* Appends a file's name as a word of a command line: quoted, unless each of its characters
 * stands for itself. */
void data_pack_format_quote_word(struct buf *out, const char *word);
/* Whether it ends in .gz or .zst. */
bool data_pack_format_is_compressed(const char *file);

#endif
