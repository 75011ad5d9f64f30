/*
 * buf — a growing byte string: text, messages, files read whole.
 *
 * Memory that cannot be had makes the buf "failed": appends then do nothing,
 * and buf_failed says so once, at the end, so that builders need no check
 * after every line. data is NUL-terminated after an append and after buf_str,
 * not after the caller wrote into buf_room.
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
/* Makes room for n more bytes and returns where they go; the caller then adds
 * to len what it wrote there. NULL when there is no memory. */
char *buf_room(struct buf *b, size_t n);
/* The text, never NULL ("" when empty or failed); owned by the buf. */
const char *buf_str(struct buf *b);
/* Takes the memory out (to be freed by the caller), or NULL when failed; the buf is empty after
 * it. */
char *buf_take(struct buf *b);

#endif
