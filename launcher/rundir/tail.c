#include "launcher/rundir/tail.h"

#include "base/segments.h"
#include "launcher/rundir/output.h"

#include <string.h>

/* A line is expected to have so many bytes; if lines are longer, more is read, up to a bound. */
enum { LINE_BYTES = 512, LEAST_BYTES = 1 << 16, MOST_BYTES = 64 << 20 };

static bool counts(const char *line, size_t n)
{
	struct rundir_head head;
	json_t *doc;
	if (!n)
		return false;
	bool is_head = rundir_head_read(line, n, &head, &doc);
	json_decref(doc);
	return !is_head;
}

/* The number of lines in text[0, len) after its first newline, or from its begin if it is whole;
 * *from is where the last n of them begin. */
static int find_last(const char *text, size_t len, bool whole, int n, size_t *from)
{
	const char *end = len ? memrchr(text, '\n', len) : NULL;
	int found = 0;
	while (end && found < n) {
		const char *before = end > text ? memrchr(text, '\n', (size_t)(end - text)) : NULL;
		if (!before && !whole)
			break;
		const char *line = before ? before + 1 : text;
		if (counts(line, (size_t)(end - line))) {
			found++;
			*from = (size_t)(line - text);
		}
		end = before;
	}
	return found;
}

static void add_lines(struct buf *out, const char *text, size_t len)
{
	for (const char *end; len && (end = memchr(text, '\n', len));) {
		size_t n = (size_t)(end - text);
		if (counts(text, n))
			buf_add(out, text, n + 1);
		text += n + 1;
		len -= n + 1;
	}
}

int rundir_tail(const char *run, const char *name, int n, struct buf *out, struct err *e)
{
	struct buf end = BUF_INIT;
	size_t most = (size_t)n * LINE_BYTES, from = 0;
	int rc, found = 0;
	for (most = most < LEAST_BYTES ? LEAST_BYTES : most;; most *= 4) {
		buf_clear(&end);
		rc = segments_read_end(run, name, most, &end, e);
		bool whole = end.len < most;
		found = rc ? 0 : find_last(end.data, end.len, whole, n, &from);
		if (rc || whole || found >= n || most >= MOST_BYTES)
			break;
	}
	if (found)
		add_lines(out, end.data + from, end.len - from);
	buf_fini(&end);
	return rc || !buf_failed(out)
		       ? rc
		       : err_set(e, ERR_NOMEM, "%s: no memory for its last lines", name);
}
