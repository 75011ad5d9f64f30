#include "base/err.h"

#include "base/human.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *err_word(enum err_code code)
{
	switch (code) {
#define ERR_CASE(c, word) \
	case c: \
		return word;
		ERR_CODES(ERR_CASE)
#undef ERR_CASE
	}
	return "unknown";
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
	if (!e)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	human_plain(e->text);
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
	snprintf(e->text + used, sizeof e->text - used, ": %s", strerror_r(saved, buf, sizeof buf));
	human_plain(e->text);
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
	human_plain(e->text);
	return -1;
}
