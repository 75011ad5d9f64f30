#include "launcher/rundir/agents.h"

#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/split.h"

#include <stdlib.h>
#include <string.h>

/* A line of hello or ready is much shorter. */
enum { LINE_MAX_BYTES = 4096, READ_BYTES = 1 << 20 };

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

static void read_line(void *arg, const char *line, size_t len)
{
	if (len <= LINE_MAX_BYTES)
		rundir_agents_read_line(line, len, arg);
}

int rundir_agents_read(const char *run, const struct rundir_agents_reader *to, struct err *e)
{
	struct rundir_split split = { .too_long = 0 };
	struct segments_reader *r = malloc(sizeof *r);
	char *data = malloc(READ_BYTES);
	ssize_t n = 0;
	struct rundir_agents_reader reader = *to;
	if (!r || !data) {
		free(r);
		free(data);
		return err_set(e, ERR_NOMEM, "%s: no memory to read its events", run);
	}
	segments_reader_init(r, run, RUN_EVENTS);
	while ((n = segments_read(r, data, READ_BYTES, e)) > 0)
		rundir_split_feed(&split, data, (size_t)n, read_line, &reader);
	if (!n && r->fd < 0 && !r->number)
		n = err_set(e, ERR_NOTFOUND, "%s/" RUN_EVENTS ": the file is missing", run);
	rundir_split_fini(&split);
	segments_reader_fini(r);
	free(r);
	free(data);
	return n < 0 ? -1 : 0;
}
