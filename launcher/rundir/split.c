#include "launcher/rundir/split.h"

#include <string.h>

/* Keeps the beginning of a line whose end has not come yet. */
static void keep_part(struct rundir_split *s, const char *data, size_t n)
{
	if (s->skipping)
		return;
	if (s->part.len + n <= RUNDIR_LINE_MAX)
		buf_add(&s->part, data, n);
	if (s->part.len + n > RUNDIR_LINE_MAX || buf_failed(&s->part)) {
		buf_fini(&s->part);
		s->part = (struct buf)BUF_INIT;
		s->skipping = true;
		s->too_long++;
	}
}

void rundir_split_feed(struct rundir_split *s, const char *data, size_t n,
		       void (*line)(void *arg, const char *text, size_t n), void *arg)
{
	for (const char *end; n && (end = memchr(data, '\n', n));) {
		size_t len = (size_t)(end - data);
		if (s->part.len || s->skipping) {
			keep_part(s, data, len);
			if (!s->skipping)
				line(arg, s->part.data, s->part.len);
			buf_clear(&s->part);
			s->skipping = false;
		} else if (len > RUNDIR_LINE_MAX) {
			s->too_long++;
		} else {
			line(arg, data, len);
		}
		n -= len + 1;
		data = end + 1;
	}
	if (n)
		keep_part(s, data, n);
}

void rundir_split_fini(struct rundir_split *s)
{
	buf_fini(&s->part);
}
