/* Any bytes as the log of a rank: each byte comes once and in its order, times never go back, and the
 * lines do not depend on how much is read at once, nor on whether the log is in the run folder or on the node. */
#include "launcher/rundir/log_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The hash of all lines, and of their times. */
static uint64_t read_lines(const struct log_folders *in, bool local, size_t room)
{
	struct log_file f;
	uint64_t sum = 0;
	double before = 0;
	int rc;
	if (!rundir_log_file_init(&f, "node-3.log", 0))
		abort();
	f.local = local;
	while ((rc = rundir_log_file_next(&f, in, room, true, NULL)) > 0) {
		if (f.time < before)
			abort();
		before = f.time;
		sum = sum * 31 + (uint64_t)(f.time * 1000);
		for (const char *c = f.line; *c; c++)
			sum = sum * 31 + (unsigned char)*c;
	}
	if (rc < 0)
		abort();
	rundir_log_file_rest(&f);
	if (f.data)
		abort();
	rundir_log_file_fini(&f);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[512], file[600];
	const char *folder = getenv("TMPDIR");
	snprintf(path, sizeof path, "%.400s/muster-fuzz-logs-%ld", folder ? folder : "/tmp",
		 (long)getpid());
	snprintf(file, sizeof file, "%s/node-3.log", path);
	if (mkdir(path, 0700) && errno != EEXIST)
		abort();
	FILE *out = fopen(file, "w");
	if (!out || fwrite(data, 1, size, out) != size || fclose(out))
		abort();
	const struct log_folders shared = { .shared = path, .local = "/nonexistent" },
				 node = { .shared = "/nonexistent", .local = path };
	uint64_t small = read_lines(&shared, false, 64), large = read_lines(&shared, false, 4096),
		 there = read_lines(&node, true, 4096), moved = read_lines(&shared, true, 4096);
	unlink(file);
	rmdir(path);
	if (small != large || there != large || moved != large)
		abort();
	return 0;
}
