#include "agent/tools/trace_events.h"

#include "base/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
	TRAINING = 0, /* the track of the training thread; groups follow */
	/* Perfetto knows a thread by its number alone, so those of all ranks differ. */
	TRACKS = 10000,
	/* Perfetto reads times as binary fractions of a microsecond and cuts them off to nanoseconds:
	 * eighths survive that. */
	TICK_NS = 125,
	TICKS_US = 1000 / TICK_NS,
	/* Operations are timed in whole microseconds. An arrow needs a slice with a length. */
	SHORTEST_NS = 4 * TICK_NS
};

struct writer {
	struct buf *b;
	const struct step_file *f;
	double shift;    /* is added to each time */
	double from, to; /* of the steps that are written, on the rank's clock */
	int64_t *events;
};

static void begin_event(struct writer *w)
{
	buf_puts(w->b, (*w->events)++ ? ",\n" : "");
}

static int64_t track_id(const struct writer *w, int track)
{
	return (w->f->rank + (int64_t)1) * TRACKS + track;
}

static void put_label(struct writer *w, const char *what, int track, const char *text)
{
	begin_event(w);
	buf_printf(w->b,
		   "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%" PRId64
		   ",\"args\":{\"name\":\"%s\"}}",
		   what, w->f->rank, track_id(w, track), text);
}

static void put_order(struct writer *w, const char *what, int track, int index)
{
	begin_event(w);
	buf_printf(w->b,
		   "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%" PRId64
		   ",\"args\":{\"sort_index\":%d}}",
		   what, w->f->rank, track_id(w, track), index);
}

/* Times beyond it, which only a false clock has, become it: about 138 years, so that the nanoseconds between two
 * times fit an int64_t. */
static const double ticks_most = 3.5e16;

/* Returns the time in the picture. Perfetto drops a slice that ends within another one of its track, even by a
 * nanosecond, so begin and end are rounded before they are subtracted. */
static int64_t to_ns(const struct writer *w, double us)
{
	double ticks = TICKS_US * (us + w->shift);
	return llround(fmin(fmax(ticks, -ticks_most), ticks_most)) * TICK_NS;
}

/* In microseconds. */
static void put_time(struct buf *b, const char *name, int64_t ns)
{
	buf_printf(b, ",\"%s\":%s%lld.%03d", name, ns < 0 ? "-" : "", llabs(ns) / 1000,
		   (int)(llabs(ns) % 1000));
}

/* Begins a slice; the caller adds the arguments and "}}". */
static void begin_slice(struct writer *w, int track, const char *kind, const char *name,
			int64_t begin, int64_t end)
{
	begin_event(w);
	buf_printf(w->b, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%" PRId64,
		   kind, name, w->f->rank, track_id(w, track));
	put_time(w->b, "ts", begin);
	put_time(w->b, "dur", end - begin);
	buf_puts(w->b, ",\"args\":{");
}

/* --- The training thread --- */

/* The phases of a step follow each other. */
static void put_steps(struct writer *w, const struct trace_steps *steps)
{
	const struct step_file *f = w->f;
	w->from = INFINITY;
	w->to = -INFINITY;
	for (int i = 0, end; i < f->n; i = end) {
		for (end = i + 1; end < f->n && f->phases[end].step == f->phases[i].step;)
			end++;
		int64_t step = f->phases[i].step;
		if (step < steps->first || step > steps->last)
			continue;
		char name[32];
		snprintf(name, sizeof name, "step %" PRId64, step);
		begin_slice(w, TRAINING, "step", name, to_ns(w, f->phases[i].begin),
			    to_ns(w, f->phases[end - 1].end));
		buf_puts(w->b, "}}");
		w->from = fmin(w->from, f->phases[i].begin);
		w->to = fmax(w->to, f->phases[end - 1].end);
	}
}

static void put_phases(struct writer *w, const struct trace_steps *steps)
{
	for (int i = 0; i < w->f->n; i++) {
		const struct step_phase *p = &w->f->phases[i];
		if (p->step < steps->first || p->step > steps->last)
			continue;
		begin_slice(w, TRAINING, "phase", p->name, to_ns(w, p->begin), to_ns(w, p->end));
		if (p->micro >= 0)
			buf_printf(w->b, "\"chunk\":%d,\"micro\":%d", p->chunk, p->micro);
		buf_puts(w->b, "}}");
	}
}

/* --- The groups --- */

/* Both ends of a message make the same number of it. */
static uint64_t message_id(const struct trace_group *g, int from, int to, int64_t nth)
{
	const uint64_t parts[] = { g->id, (uint64_t)g->members[from], (uint64_t)g->members[to],
				   (uint64_t)nth };
	return hash_bytes(parts, sizeof parts);
}

/* An operation as the picture shows it. */
struct slice {
	const struct trace_part *part;
	const struct trace_op *op;
	int track;
	int64_t begin, end; /* ns */
};

/* An arrow begins or ends in the slice of its track that is open at its time. */
static void put_arrow(struct writer *w, const struct slice *s, const struct trace_message *m)
{
	int from = m->send ? s->part->rank : m->peer, to = m->send ? m->peer : s->part->rank;
	begin_event(w);
	buf_printf(w->b,
		   "{\"ph\":\"%s\",\"cat\":\"message\",\"name\":\"message\",\"id\":\"0x%016" PRIx64
		   "\",\"pid\":%d,\"tid\":%" PRId64,
		   m->send ? "s" : "f\",\"bp\":\"e", message_id(s->part->group, from, to, m->nth),
		   w->f->rank, track_id(w, s->track));
	put_time(w->b, "ts", m->send ? s->begin : s->end - TICK_NS);
	buf_puts(w->b, "}");
}

static void put_op(struct writer *w, const struct slice *s)
{
	const struct trace_op *op = s->op;
	begin_slice(w, s->track, "communication", comm_op_word(op->kind), s->begin, s->end);
	buf_printf(w->b, "\"number\":%" PRId64 ",\"bytes\":%" PRId64 ",\"ranks\":%d}}", op->seq,
		   op->bytes, s->part->group->size);
	for (int i = 0; i < op->listed; i++)
		put_arrow(w, s, &op->message[i]);
}

static bool is_shown(const struct writer *w, const struct trace_op *op)
{
	return op->start_us > 0 && op->end_us >= op->start_us && (double)op->start_us >= w->from &&
	       (double)op->start_us <= w->to;
}

/* A group runs one operation after the other: where rounded times overlap, the later one is moved. */
static void put_group(struct writer *w, int track, const struct trace_part *p)
{
	int64_t busy = INT64_MIN;
	char name[STEP_FILE_NAME];
	for (int i = 0; i < p->n; i++) {
		const struct trace_op *op = &p->ops[i];
		if (!is_shown(w, op))
			continue;
		struct slice s = { .part = p,
				   .op = op,
				   .track = track,
				   .begin = to_ns(w, (double)op->start_us),
				   .end = to_ns(w, (double)op->end_us) };
		if (busy == INT64_MIN) {
			tool_step_name(name, sizeof name, p->group->name);
			put_label(w, "thread_name", track, name);
			put_order(w, "thread_sort_index", track, track);
		}
		s.begin = s.begin < busy ? busy : s.begin;
		s.end = s.end < s.begin + SHORTEST_NS ? s.begin + SHORTEST_NS : s.end;
		busy = s.end;
		put_op(w, &s);
	}
}

void tool_trace_events(struct buf *b, const struct step_file *f, const struct trace_steps *steps,
		       double ahead, double origin, int64_t *events)
{
	const struct trace_rank *r = &f->comm.ranks[f->rank];
	struct writer w = { .b = b, .f = f, .shift = -ahead - origin, .events = events };
	char host[STEP_FILE_NAME], name[160];
	tool_step_name(host, sizeof host, r->host);
	snprintf(name, sizeof name, "rank %d on %s (%s)", f->rank, host, f->place);
	put_label(&w, "process_name", TRAINING, name);
	put_order(&w, "process_sort_index", TRAINING, f->rank);
	put_label(&w, "thread_name", TRAINING, "training");
	put_order(&w, "thread_sort_index", TRAINING, TRAINING);
	put_steps(&w, steps);
	put_phases(&w, steps);
	for (int i = 0; i < r->n; i++)
		put_group(&w, i + 1, &r->parts[i]);
}
