/* Any text as ranges: it is refused, or what is written from the set is read as the same set. */
#include "base/ranges.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	struct ranges r, again;
	if (text && ranges_parse(text, &r, &e)) {
		if (!e.text[0])
			abort();
	} else if (text) {
		ranges_write(&r, &out);
		if (ranges_parse(buf_str(&out), &again, NULL) || again.n != r.n ||
		    memcmp(again.list, r.list, (size_t)r.n * sizeof *r.list))
			abort();
		for (int i = 0; i < r.n; i++)
			if (r.list[i].first < 0 || r.list[i].end <= r.list[i].first ||
			    (i && r.list[i].first <= r.list[i - 1].end))
				abort();
	}
	buf_fini(&out);
	free(text);
	return 0;
}
