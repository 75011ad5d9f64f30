/* Any text as /proc/PID/stat: a program chooses its name, which is part of it. */
#include "agent/task/tree.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct task_stat s;
	char *text = malloc(size + 1);
	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (!task_stat_parse(text, &s) && memchr(s.name, '\0', sizeof s.name) == NULL)
		abort();
	free(text);
	return 0;
}
