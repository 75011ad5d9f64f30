#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_fini(struct buf *b)
{
	free(b->data);
	*b = (struct buf)BUF_INIT;
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

char *buf_room(struct buf *b, size_t n)
{
	if (b->failed)
		return NULL;
	if (n < b->cap - b->len && b->cap)
		return b->data + b->len;
	size_t cap = b->cap ? b->cap : 128;
	while (cap - b->len <= n) {
		if (cap > (size_t)-1 / 4) {
			b->failed = true;
			return NULL;
		}
		cap *= 2;
	}
	char *data = realloc(b->data, cap);
	if (!data) {
		b->failed = true;
		return NULL;
	}
	b->data = data;
	b->cap = cap;
	return b->data + b->len;
}

void buf_add(struct buf *b, const void *data, size_t len)
{
	char *to = buf_room(b, len);
	if (!to)
		return;
	if (len)
		memcpy(to, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	va_copy(again, ap);
	int need = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (need < 0)
		b->failed = true;
	char *to = need < 0 ? NULL : buf_room(b, (size_t)need);
	if (!to)
		return;
	vsnprintf(to, (size_t)need + 1, fmt, ap);
	b->len += (size_t)need;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

bool buf_failed(const struct buf *b)
{
	return b->failed;
}

void buf_drop(struct buf *b, size_t n)
{
	if (!b->len)
		return;
	if (n > b->len)
		n = b->len;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
	b->data[b->len] = '\0';
}

const char *buf_str(struct buf *b)
{
	if (b->failed || !b->len)
		return "";
	b->data[b->len] = '\0'; /* there is room: buf_room leaves it */
	return b->data;
}

char *buf_take(struct buf *b)
{
	char *end = buf_room(b, 1);
	if (!end)
		return NULL;
	*end = '\0';
	char *data = b->data;
	*b = (struct buf)BUF_INIT;
	return data;
}
