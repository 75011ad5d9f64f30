/* Any bytes as a file to pack: text, lines of JSON, gzip, zstd, token ids. They are refused or
 * packed without harm. */
#include "agent/engine/data/pack_documents.h"
#include "agent/engine/data/pack_format.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { UNPACKED_MAX = 1 << 24 };

struct seen {
	int64_t documents;
	size_t bytes;
};

static int look(void *arg, const char *text, size_t n, bool last, struct err *e)
{
	struct seen *s = arg;
	unsigned sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += (unsigned char)text[i];
	s->documents += last;
	s->bytes += n + (sum == 1);
	/* a small file may unpack to a large one */
	return s->bytes > UNPACKED_MAX ? err_set(e, ERR_IO, "enough") : 0;
}

/* The first byte chooses how the file is read. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char file[64];
	if (!size)
		return 0;
	struct document_options opt = { .field = data[0] & 1 ? "a.b" : NULL,
					.skip_bad = data[0] & 2,
					.whole = data[0] & 4,
					.raw = data[0] & 8 };
	struct document_counts counts = { 0 };
	struct seen seen = { 0 };
	const struct document_sink sink = { look, &seen };
	struct err e = ERR_INIT;
	int fd = memfd_create("pack", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
		abort();
	snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
	if (!data_documents_read(file, &opt, &sink, &counts, &e) &&
	    (counts.documents != seen.documents || counts.files != 1))
		abort();
	data_pack_format_check(".parquet", (const char *)data, size, "a\"b", &e);
	data_pack_format_check_ids("a'b c", (const char *)data, size, &e);
	close(fd);
	return 0;
}
