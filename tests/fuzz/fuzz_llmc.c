/* Any bytes as a token file of llm.c: they are refused, or every token can be read and is within
 * its type, and every document start is at or before its token. */
#include "agent/engine/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct source *s)
{
	int32_t tokens[16], starts[16];
	int64_t documents, n = data_source_tokens(s);
	if (n < 0 || data_source_documents(s, &documents, NULL) || documents > n ||
	    (documents == 0) != (n == 0))
		abort();
	for (int64_t at = 0; at < n; at += 16) {
		int64_t part = n - at < 16 ? n - at : 16;
		if (data_source_starts(s, at, part, starts, NULL))
			abort();
		for (int64_t i = 0; i < part; i++)
			if (starts[i] < 0 || starts[i] > i)
				abort();
		if (!data_source_read(s, at, part, 60000, tokens, NULL))
			for (int64_t i = 0; i < part; i++)
				if (tokens[i] < 0 || tokens[i] >= 60000)
					abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct source *s;
	char path[64];
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!data_source_open(path, &s, &e)) {
		read_all(s);
		data_source_close(s);
	} else if (!e.text[0]) {
		abort();
	}
	close(fd);
	return 0;
}
