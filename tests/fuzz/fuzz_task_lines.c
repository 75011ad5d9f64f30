/* Any bytes as the output of a program: the lines do not depend on how the bytes are split, nothing in
 * them controls a terminal, and all is UTF-8. */
#include "agent/task/lines.h"
#include "base/human.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void pass(void *arg, const char *text, size_t len)
{
	uint64_t *sum = arg;
	if (len > TASK_LINE_MARKED || strlen(text) != len)
		abort();
	for (size_t n; *text; text += n) {
		n = human_character(text);
		if (!n || ((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f ||
		    ((unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0))
			abort();
		for (size_t i = 0; i < n; i++)
			*sum = *sum * 31 + (unsigned char)text[i];
	}
	*sum = *sum * 31 + '\n';
}

static uint64_t read_lines(const char *text, size_t size, size_t each)
{
	uint64_t sum = 0;
	struct task_lines *l = task_lines_open(pass, &sum);
	if (!l)
		return 0;
	for (size_t at = 0, n; at < size; at += n) {
		n = size - at < each ? size - at : each;
		task_lines_feed(l, text + at, n, 0);
	}
	task_lines_flush(l, 10);
	if (!isinf(task_lines_due(l)))
		abort();
	task_lines_gap(l);
	task_lines_feed(l, text, size, 11);
	task_lines_end(l);
	task_lines_close(l);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	if (size && read_lines(text, size, size) != read_lines(text, size, 3))
		abort();
	return 0;
}
