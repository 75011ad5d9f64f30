#include "agent/engine/data/pack.h"

#include "agent/engine/data/tokens.h"

#include <inttypes.h>

static int put_bytes(void *arg, const char *text, size_t n, bool last, struct err *e)
{
	struct token_writer *w = arg;
	return data_token_writer_add(w, text, n, e) || (last && data_token_writer_end(w, e)) ? -1
											     : 0;
}

int data_pack_files(const char *prefix, char *const *files, int64_t n,
		    const struct document_options *opt, struct pack_report *out, struct err *e)
{
	struct token_writer *w = NULL;
	struct pack_report report = { 0 };
	if (data_token_writer_open(prefix, TOKEN_U8, &w, e))
		return -1;
	const struct document_sink sink = { put_bytes, w };
	int rc = 0;
	for (int64_t i = 0; i < n && !rc; i++)
		rc = data_documents_read(files[i], opt, &sink, &report.read, e);
	report.tokens = data_token_writer_tokens(w);
	if (!rc && !report.tokens)
		rc = err_set(e, ERR_USAGE,
			     "%s: the %" PRId64 " files hold no byte; nothing was packed", prefix,
			     n);
	if (!rc)
		rc = data_token_writer_commit(w, e);
	data_token_writer_close(w);
	if (!rc)
		*out = report;
	return rc;
}
