/* Any bytes as the archive of a tensor of [8, 8] float32: they are refused in one line, or every
 * element lies inside the file. */
#include "agent/engine/dcp/archive.h"
#include "agent/engine/dcp/zip.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_zip(int fd, int64_t size)
{
	struct dcp_zip z;
	if (dcp_zip_read(fd, 0, size, "fuzz", &z, NULL))
		return;
	for (int i = 0; i < z.n; i++) {
		const struct dcp_zip_entry *x = &z.entries[i];
		if (x->size < 0 || x->at <= x->header || x->at + x->size > size ||
		    (i && x->header < x[-1].at + x[-1].size) || strstr(x->name, "/../"))
			abort();
	}
	dcp_zip_free(&z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct err e = ERR_INIT;
	const struct dcp_tensor t = {
		.name = "t", .dims = 2, .shape = { 8, 8 }, .dtype = "float32"
	};
	struct dcp_chunk c = { .hi = { 8, 8 }, .length = (int64_t)size };
	struct dcp_archive a;
	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	check_zip(fd, (int64_t)size);
	if (dcp_archive_read(fd, "fuzz", &t, &c, &a, &e)) {
		if ((e.code != ERR_CORRUPT && e.code != ERR_UNSUPPORTED) ||
		    strncmp(e.text, "fuzz: ", 6))
			abort();
		return 0;
	}
	if (a.at < 0 || a.at + (7 * a.stride[0] + 7 * a.stride[1] + 1) * 4 > (int64_t)size)
		abort();
	return 0;
}
