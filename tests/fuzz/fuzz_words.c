/* Any text as a command line: it is refused with a reason, or its words come back from what is written of
 * them. Any bytes as words, which NULs separate: they come back as well, and the text is printable, one
 * line, without a comment of a job file or a blank at its ends. */
#include "base/human.h"
#include "base/words.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_value(struct buf *text)
{
	const char *s = buf_str(text);
	size_t len = strlen(s);
	for (size_t i = 0, n; i < len; i += n) {
		n = human_printable(s + i);
		if (!n || ((s[i] == '#' || s[i] == ';') && (i == 0 || s[i - 1] == ' ')))
			abort();
	}
	if (len && (*s == ' ' || s[len - 1] == ' '))
		abort();
	if (len > 1 && (*s == '"' || *s == '\'') && s[len - 1] == *s)
		abort();
}

static void check_words(char *const *words)
{
	struct buf text = BUF_INIT;
	char **again;
	size_t i = 0;
	if (words_write(words, &text) || words_parse(buf_str(&text), &again, NULL))
		abort();
	check_value(&text);
	for (; words[i] && again[i]; i++)
		if (strcmp(words[i], again[i]))
			abort();
	if (words[i] || again[i])
		abort();
	free(again);
	buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	char *text = malloc(size + 1), **words = calloc(size + 2, sizeof *words);
	if (!text || !words)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	size_t n = 0;
	for (size_t at = 0; at < size; at += strlen(text + at) + 1)
		words[n++] = text + at;
	check_words(words);
	free(words);
	if (!words_parse(text, &words, &e)) {
		check_words(words);
		free(words);
	} else if (!e.text[0]) {
		abort();
	}
	free(text);
	return 0;
}
