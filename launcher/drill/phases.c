#include "launcher/drill/phases.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum drill_event_kind drill_event_kind(const char *name)
{
	static const struct {
		const char *name;
		enum drill_event_kind kind;
	} names[] = {
#define NAME_ROW(kind, name) { name, kind },
		DRILL_EVENTS(NAME_ROW)
#undef NAME_ROW
	};
	for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
		if (!strcmp(names[i].name, name))
			return names[i].kind;
	return DRILL_OTHER;
}

/* The first event of the kind after events[from]; `n` if there is none. */
static int find_next(const struct drill_event *events, int n, int from, enum drill_event_kind kind)
{
	while (from < n && events[from].kind != kind)
		from++;
	return from;
}

/* The last event of the kind in events[from, to); `to` if there is none. */
static int find_last(const struct drill_event *events, int from, int to, enum drill_event_kind kind)
{
	for (int i = to - 1; i >= from; i--)
		if (events[i].kind == kind)
			return i;
	return to;
}

/* The events come from several ranks, so the first step of one may be seen before the last one is ready. */
static double span(const struct drill_event *events, int from, int to)
{
	return fmax(0, events[to].mono - events[from].mono);
}

struct drill_phases drill_phases_of(const struct drill_event *events, int n, double injected)
{
	struct drill_phases p = { NAN, NAN, NAN, NAN, NAN, NAN };
	int begin = 0;
	while (begin < n && events[begin].mono < injected)
		begin++;
	int lost = find_next(events, n, begin, DRILL_LOST);
	int stop = find_next(events, n, begin, DRILL_STOP);
	/* A warning of the next generation does not belong to this fault. */
	int next = find_next(events, n, begin, DRILL_START);
	int warning = find_next(events, next, begin, DRILL_WARNING);
	int seen = lost < n ? lost : stop < n ? stop : warning < next ? warning : n;
	if (seen < n)
		p.detect = events[seen].mono - injected;
	int after = seen < n ? seen : begin;
	int gone = find_next(events, n, after, DRILL_GONE);
	if (lost < n && gone < n)
		p.fence = span(events, lost, gone);
	/* The generation that recovers is the first one that finishes a step. */
	int step = find_next(events, n, find_next(events, n, after, DRILL_START), DRILL_FIRST_STEP);
	int start = find_last(events, after, step, DRILL_START);
	if (start >= n)
		return p;
	int connected = find_next(events, n, start, DRILL_CONNECTED);
	int ready = find_next(events, n, start, DRILL_READY);
	if (gone < start)
		p.plan = span(events, gone, start);
	if (connected < n)
		p.start = span(events, start, connected);
	if (connected < n && ready < n)
		p.load = span(events, connected, ready);
	if (ready < n && step < n)
		p.step = span(events, ready, step);
	return p;
}
