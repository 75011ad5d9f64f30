#include "agent/engine/data/pack_documents.h"

#include "agent/engine/data/pack_format.h"
#include "agent/engine/data/pack_stream.h"
#include "base/human.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CHUNK = 1 << 18 };

static int put_piece(const char *file, const struct document_sink *sink, const char *text, size_t n,
		     bool last, struct err *e)
{
	return sink->put(sink->arg, text, n, last, e) ? err_prefix(e, "%s", file) : 0;
}

static int read_pieces(struct stream *s, const char *file, const struct document_sink *sink,
		       bool *any, struct err *e)
{
	char *chunk = malloc(CHUNK);
	int rc = chunk ? 0 : err_set(e, ERR_NOMEM, "%s: no memory to read it", file);
	for (size_t got = 1; !rc && got;) {
		rc = data_stream_read(s, chunk, CHUNK, &got, e);
		if (!rc && got)
			rc = put_piece(file, sink, chunk, got, false, e);
		*any = *any || got;
	}
	free(chunk);
	return rc || !*any ? rc : put_piece(file, sink, "", 0, true, e);
}

static int read_mapped(int fd, size_t n, const char *file, const struct document_sink *sink,
		       struct err *e)
{
	void *text = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "%s: cannot map %zu bytes", file, n);
	madvise(text, n, MADV_SEQUENTIAL);
	int rc = put_piece(file, sink, text, n, true, e);
	munmap(text, n);
	return rc;
}

static int read_text(struct stream *s, const char *file, const struct document_options *opt,
		     const struct document_sink *sink, struct document_counts *counts,
		     struct err *e)
{
	int fd;
	size_t n = data_stream_plain(s, &fd);
	bool any = n > 0;
	if (opt->whole && n ? read_mapped(fd, n, file, sink, e)
			    : read_pieces(s, file, sink, &any, e))
		return -1;
	if (any)
		counts->documents++;
	else
		counts->empty++;
	return 0;
}

int data_documents_read(const char *file, const struct document_options *opt,
			const struct document_sink *sink, struct document_counts *counts,
			struct err *e)
{
	struct stream *s;
	size_t n;
	if (data_stream_open(file, opt->raw, &s, e))
		return -1;
	const char *head = data_stream_head(s, &n);
	int rc = opt->raw ? 0 : data_pack_format_check(file, head, n, opt->field, e);
	if (!rc && !opt->raw && data_pack_format_nuls(head, n) && !counts->nuls++) {
		snprintf(counts->first_nul, sizeof counts->first_nul, "%s", file);
		human_plain(counts->first_nul);
	}
	if (!rc && !opt->raw && data_pack_format_is_lines(file, opt->field != NULL))
		rc = data_lines_read(s, file, opt, sink, counts, e);
	else if (!rc)
		rc = read_text(s, file, opt, sink, counts, e);
	data_stream_close(s);
	if (!rc)
		counts->files++;
	return rc;
}
