#include "plan/spec/schedule/timeline.h"

enum { VERSION = 1, RANKS_MAX = 1 << 20 };
#define SECONDS_MAX 1e10 /* three centuries */

json_t *timeline_json(const struct timeline *t)
{
	json_t *events = json_array();
	for (int i = 0; i < t->n; i++) {
		const struct timeline_event *v = &t->events[i];
		json_array_append_new(events,
				      json_pack("[i,s,i,i,f,f]", v->rank, schedule_op_word(v->op),
						v->chunk, v->micro, v->begin, v->end));
	}
	return json_pack("{s:i, s:i, s:i, s:f, s:o}", "version", VERSION, "ranks", t->ranks,
			 "chunks", t->chunks, "start", t->start, "events", events);
}

static bool good_event(const struct timeline *t, const struct timeline_event *v)
{
	bool whole = v->op == SCHED_REDUCE;
	return v->rank >= 0 && v->rank < t->ranks && v->op < SCHED_OPS &&
	       v->chunk >= (whole ? -1 : 0) && v->chunk < t->chunks &&
	       v->micro >= (whole ? -1 : 0) && v->begin >= 0 && v->end >= v->begin &&
	       v->end <= SECONDS_MAX;
}

int timeline_read(json_t *doc, const char *name, struct timeline *t, struct err *e)
{
	int version, ranks, chunks;
	double start;
	json_t *events, *item;
	size_t i;
	if (json_unpack(doc, "{s:i, s:i, s:i, s:F, s:o}", "version", &version, "ranks", &ranks,
			"chunks", &chunks, "start", &start, "events", &events) ||
	    version != VERSION || ranks < 1 || ranks > RANKS_MAX ||
	    !(start >= 0 && start <= SECONDS_MAX) || chunks < 1 || chunks > LAYOUT_CHUNKS_MAX ||
	    !json_is_array(events))
		return err_set(
			e, ERR_PROTO,
			"%s: this is not a timeline of version %d; let the run write it again",
			name, VERSION);
	if (t->ranks && (t->ranks != ranks || t->chunks != chunks))
		return err_set(e, ERR_PROTO,
			       "%s: is of %d ranks × %d chunks, the others are of %d × %d; let the "
			       "run write them again",
			       name, ranks, chunks, t->ranks, t->chunks);
	if (!t->ranks)
		t->start = start;
	t->ranks = ranks;
	t->chunks = chunks;
	json_array_foreach(events, i, item)
	{
		struct timeline_event v;
		const char *word;
		if (json_unpack(item, "[i,s,i,i,F,F]", &v.rank, &word, &v.chunk, &v.micro, &v.begin,
				&v.end))
			return err_set(e, ERR_PROTO,
				       "%s: event %zu is not [rank, pass, chunk, micro, begin, "
				       "end]; let the run write it again",
				       name, i);
		v.op = schedule_op_of(word);
		if (!good_event(t, &v))
			return err_set(e, ERR_PROTO,
				       "%s: event %zu is none of a run; let the run write it again",
				       name, i);
		v.begin += start - t->start;
		v.end += start - t->start;
		if (timeline_add(t, &v))
			return err_set(e, ERR_NOMEM,
				       "%s: no memory for %zu events; close other programs", name,
				       json_array_size(events));
	}
	return 0;
}
