/* json_text — prints a text as a string of JSON. The programs of make check-gpu have no library for it. */
#ifndef MUSTER_TESTS_GPU_JSON_TEXT_H
#define MUSTER_TESTS_GPU_JSON_TEXT_H

#include <stdio.h>

/* Control characters become blanks. */
static inline void json_text_print(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar((unsigned char)*text < ' ' ? ' ' : *text);
	}
	putchar('"');
}

#endif
