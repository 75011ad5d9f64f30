#include "launcher/rundir/agents.h"

#include "base/file.h"
#include "base/run_paths.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A line of hello or ready is much shorter. */
enum { LINE_MAX_BYTES = 4096 };

static void read_hello(const json_t *line, uint32_t generation,
		       const struct rundir_agents_reader *to)
{
	struct rundir_hello h;
	if (!rundir_hello_read(line, &h, NULL) && h.rank >= 0 && h.pid > 0 && h.start > 0)
		to->hello(to->arg, generation, &h);
}

void rundir_agents_read_line(const char *line, size_t len, const struct rundir_agents_reader *to)
{
	/* Most lines are of other events; this is cheaper than to parse them. */
	if (!memmem(line, len, "\"hello\"", 7) && !memmem(line, len, "\"ready\"", 7))
		return;
	json_t *doc = json_loadb(line, len, 0, NULL);
	const char *event = json_string_value(json_object_get(doc, "event"));
	json_int_t generation = json_integer_value(json_object_get(doc, "generation"));
	if (event && generation >= 1 && generation <= UINT32_MAX) {
		if (!strcmp(event, "hello"))
			read_hello(doc, (uint32_t)generation, to);
		else if (!strcmp(event, "ready"))
			to->ready(to->arg, (uint32_t)generation);
	}
	json_decref(doc);
}

/* Lines that are longer than the buffer are skipped. */
static int read_lines(FILE *in, const char *path, const struct rundir_agents_reader *to,
		      struct err *e)
{
	char line[LINE_MAX_BYTES];
	bool inside = false; /* of a line whose beginning was too long */
	while (fgets(line, sizeof line, in)) {
		size_t len = strlen(line);
		bool whole = len && line[len - 1] == '\n';
		if (!inside)
			rundir_agents_read_line(line, len, to);
		inside = !whole;
	}
	return ferror(in) ? err_set(e, ERR_IO, "%s: cannot read the file", path) : 0;
}

int rundir_agents_read(const char *run, const struct rundir_agents_reader *to, struct err *e)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_EVENTS);
	int fd = file_open(path, O_RDONLY, FILE_OWN, e);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	if (!in) {
		if (fd >= 0) {
			close(fd);
			err_set(e, ERR_NOMEM, "%s: no memory to read the file", path);
		}
		return -1;
	}
	int rc = read_lines(in, path, to, e);
	fclose(in);
	return rc;
}
