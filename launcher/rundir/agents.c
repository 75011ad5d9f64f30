#include "launcher/rundir/agents.h"

#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/split.h"

#include <stdlib.h>
#include <string.h>

/* A line of hello or ready is much shorter. */
enum { LINE_MAX_BYTES = 1 << 16, READ_BYTES = 1 << 20 };

int rundir_agents_of(const json_t *line, void (*take)(void *arg, const struct rundir_joined *a),
		     void *arg)
{
	struct rundir_hello h;
	struct rundir_agent a;
	const json_t *list = json_object_get(line, "agents");
	size_t n = list ? json_array_size(list) : 1;
	int taken = 0;
	if (rundir_read_hello(line, &h, NULL) && list)
		return 0;
	for (size_t i = 0; i < n && h.node && h.boot; i++) {
		if (rundir_read_agent(list ? json_array_get(list, i) : line, &a, NULL) ||
		    a.rank < 0 || a.pid < 1)
			continue;
		taken++;
		if (!take)
			continue;
		take(arg, &(struct rundir_joined){ .rank = a.rank,
						   .node = h.node,
						   .pid = a.pid,
						   .start = a.start,
						   .pid_space = h.pid_space,
						   .boot = h.boot,
						   .kept = h.has_kept && h.kept });
	}
	return taken;
}

struct reading {
	const struct rundir_agents_reader *to;
	uint32_t generation;
};

static void read_agent(void *reading, const struct rundir_joined *a)
{
	const struct reading *r = reading;
	if (a->start > 0)
		r->to->hello(r->to->arg, r->generation, a);
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
			rundir_agents_of(doc, read_agent,
					 &(struct reading){ to, (uint32_t)generation });
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
