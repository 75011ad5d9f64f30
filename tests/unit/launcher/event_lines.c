#include "tests/unit/launcher/event_lines.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

int count_events_in(const char *folder, const char *a, const char *b)
{
	char path[512];
	struct buf text = BUF_INIT;
	int n = 0;
	snprintf(path, sizeof path, "%s/events.jsonl", folder);
	if (file_slurp(path, 1 << 24, &text, NULL))
		return -1;
	for (char *save, *line = strtok_r(text.data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		n += strstr(line, a) && strstr(line, b);
	buf_fini(&text);
	return n;
}
