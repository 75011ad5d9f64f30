#include "base/human.h"

#include <string.h>
#include <utf8proc.h>

int human_width(const char *text)
{
	size_t n = strlen(text);
	int wide = 0;
	while (n) {
		utf8proc_int32_t c;
		utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)text,
							(utf8proc_ssize_t)n, &c);
		wide += len > 0 ? utf8proc_charwidth(c) : 1;
		text += len > 0 ? len : 1;
		n -= len > 0 ? (size_t)len : 1;
	}
	return wide;
}

int human_padded(const char *text, int wide)
{
	return wide + (int)strlen(text) - human_width(text);
}
