/* Any bytes as metrics.jsonl and events.jsonl of a run that is exported: a table whose records all
 * have as many columns as its first line, whatever the lines hold, and an event file. */
#include "base/file.h"
#include "launcher/exports/csv.h"
#include "launcher/exports/from_run.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char run[256];

static void remove_run(void)
{
	file_remove_tree(run);
}

static void make_run(void)
{
	const char *top = getenv("TMPDIR");
	snprintf(run, sizeof run, "%s/fuzz-exports-XXXXXX", top ? top : "/tmp");
	if (!mkdtemp(run))
		abort();
	atexit(remove_run);
}

static void put_file(const char *name, const uint8_t *data, size_t size)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", run, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || file_write_full(fd, data, size))
		abort();
	close(fd);
}

/* Commas outside of quotes, in each record alike. */
static void check_table(const char *text, size_t size)
{
	int columns = 0, want = 0;
	bool quoted = false;
	for (size_t i = 0; i < size; i++) {
		quoted ^= text[i] == '"';
		columns += text[i] == ',' && !quoted;
		if (text[i] != '\n' || quoted)
			continue;
		if (text[i - 1] != '\r' || (want && columns != want))
			abort();
		want = columns;
		columns = 0;
	}
	if (quoted || columns)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = NULL, path[RUN_PATH];
	size_t n = 0, events = size ? size * data[0] / 256 : 0;
	int64_t damaged;
	bool unwritable;
	if (!*run)
		make_run();
	put_file("events.jsonl", data, events);
	put_file("metrics.jsonl", data + events, size - events);
	FILE *out = open_memstream(&text, &n);
	if (!out)
		return 0;
	int rc = exports_csv(run, out, &damaged, NULL);
	fclose(out);
	if (!rc)
		check_table(text, n);
	free(text);
	if (!exports_tb_from_run(run, run, path, &damaged, &unwritable, NULL))
		unlink(path);
	return 0;
}
