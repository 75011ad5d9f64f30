/*
 * buf — a growing byte string: text, messages, files read whole.
 *
 * When an allocation fails, the buf becomes "failed": later appends do nothing. Code that builds a
 * text needs no check after every line; it calls buf_failed once at the end. data is NUL-terminated
 * after an append and after buf_str, but not after the caller wrote into buf_room.
 */
#ifndef MUSTER_BASE_BUF_H
#define MUSTER_BASE_BUF_H

#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>

struct buf {
	char *data;
	size_t len, cap;
	bool failed;
};

#define BUF_INIT \
	{ \
		NULL, 0, 0, false \
	}

void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_add(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
bool buf_failed(const struct buf *b);
/* Removes the first n bytes. */
void buf_drop(struct buf *b, size_t n);
/* Reserves n more bytes and returns where they begin; the caller adds to len what it wrote there.
 * NULL when there is no memory. */
char *buf_room(struct buf *b, size_t n);
/* The text, never NULL ("" when empty or failed); owned by the buf. */
const char *buf_str(struct buf *b);
/* Returns the memory, which the caller frees, and empties the buf; NULL when it has failed. */
char *buf_take(struct buf *b);

#endif
