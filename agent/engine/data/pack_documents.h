/*
 * pack_documents — the documents of a file, as `data pack` takes them.
 *
 *     text                                   the whole file is one document
 *     lines of JSON (data_pack_format_is_lines)          each line is an object; the string in its
 *                                                      field is a document; lines of white space
 *                                            are skipped
 *     either of them, compressed             the same, unpacked on the way (pack_stream.h)
 *     raw                                    the file's bytes are one document, whatever they are
 *     anything else                          refused (pack_kind.h)
 *
 * A field is the name of an object's member, or, where there is none of this name, a path of such
 * names with dots between. A line is at most DOCUMENT_LINE_MOST bytes. Memory is that of a few
 * lines; a text is given in pieces as it is read.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PACK_DOCUMENTS_H
#define MUSTER_AGENT_ENGINE_DATA_PACK_DOCUMENTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DOCUMENT_LINE_MOST = 1 << 28 };

struct stream;

struct document_options {
	/* NULL: "text" of the files whose name says that they are lines, and no others */
	const char *field;
	bool raw;
	/* leave out lines that are no object, or have no string in the field */
	bool skip_bad;
	/* the documents of files that are not compressed come in one piece, from a mapping */
	bool whole;
};

/* Takes a document: some pieces, the last one with `last`; n may be 0. The file and line are put
 * before its errors. */
struct document_sink {
	int (*put)(void *arg, const char *text, size_t n, bool last, struct err *e);
	void *arg;
};

/* Added to, file after file; zeroed before the first. */
struct document_counts {
	int64_t files, documents, empty; /* documents without the empty ones */
	int64_t skipped;                 /* lines */
	char first_skipped[240];         /* where and why; empty: none */
	int64_t nuls;                    /* files that hold NULs, but fewer than would be refused */
	char first_nul[240];             /* one of them */
};

int data_documents_read(const char *file, const struct document_options *opt,
			const struct document_sink *sink, struct document_counts *counts,
			struct err *e);

/* pack_lines.c: the lines of a stream. */
int data_lines_read(struct stream *s, const char *file, const struct document_options *opt,
		    const struct document_sink *sink, struct document_counts *counts,
		    struct err *e);

#endif
