#include "base/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *err_word(enum err_code code)
{
	switch (code) {
#define ERR_CASE(c, word) case c: return word;
	ERR_CODES(ERR_CASE)
#undef ERR_CASE
	}
	return "unknown";
}

/* Texts hold names and words from outside, and end on terminals, which obey control characters: those of ASCII, and U+0080 to U+009F. */
static void tame(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++) {
		bool high = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;
		if (high)
			*c++ = '?';
		if (high || (*c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f)
			*c = '?';
	}
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
	if (!e)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	tame(e->text);
	e->code = code;
	return -1;
}

int err_errno(struct err *e, enum err_code code, const char *fmt, ...)
{
	int saved = errno;
	if (!e)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	size_t used = strlen(e->text);
	char buf[128];
	snprintf(e->text + used, sizeof e->text - used, ": %s",
		 strerror_r(saved, buf, sizeof buf));
	tame(e->text);
	e->code = code;
	return -1;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	if (!e)
		return -1;
	char old[sizeof e->text];
	memcpy(old, e->text, sizeof old);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	size_t used = strlen(e->text);
	snprintf(e->text + used, sizeof e->text - used, ": %s", old);
	tame(e->text);
	return -1;
}
