/*
 * pack_documents — splits a file into the documents that `data pack` packs.
 *
 *     text               the whole file is one document
 *     lines of JSON      each line is an object; the string in its field is a document; blank lines
 *                        are skipped (data_pack_format_is_lines)
 *     compressed         either of them, decompressed while it is read (pack_stream.h)
 *     raw                the file's bytes are one document, whatever they are
 *     anything else      is refused (pack_format.h)
 *
 * A field is the name of an object's member or, if there is no such member, a path of names with
 * dots between them. A line has at most DOCUMENT_LINE_MAX bytes. Memory use is that of a few lines:
 * a text is passed on in pieces as it is read.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_DOCUMENTS_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_DOCUMENTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DOCUMENT_LINE_MAX = 1 << 28 };

struct stream;

struct document_options {
	/* NULL: "text", and only for files whose name shows that they hold lines of JSON */
	const char *field;
	bool raw;
	/* skip lines that are not an object or have no string in the field */
	bool skip_bad;
	/* pass on a document of an uncompressed file in one piece, from a mapping */
	bool whole;
};

/* Receives a document in pieces; `last` is set with the last one; n may be 0. The caller puts the
 * file and line before the sink's errors. */
struct document_sink {
	int (*put)(void *arg, const char *text, size_t n, bool last, struct err *e);
	void *arg;
};

/* Summed over all files; zeroed before the first. */
struct document_counts {
	int64_t files, documents, empty; /* documents: not counting the empty ones */
	int64_t skipped;                 /* lines */
	char first_skipped[240];         /* where and why; empty: none */
	int64_t nuls;                    /* files with NULs, but too few to be refused */
	char first_nul[240];             /* one of them */
};

int data_documents_read(const char *file, const struct document_options *opt,
			const struct document_sink *sink, struct document_counts *counts,
			struct err *e);

/* Reads the lines of a stream (pack_lines.c). */
int data_lines_read(struct stream *s, const char *file, const struct document_options *opt,
		    const struct document_sink *sink, struct document_counts *counts,
		    struct err *e);

#endif
