#include "agent/tools/trace_events.h"

#include "base/hash.h"

#include <inttypes.h>
#include <math.h>

/* Operations are timed in whole microseconds. An arrow needs a slice with a length. */
#define SHORTEST_US 0.5

enum { TRAINING = 0 }; /* the track of the training thread; groups follow */

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

static void put_label(struct writer *w, const char *what, int track, const char *text)
{
	begin_event(w);
	buf_printf(
		w->b,
		"{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
		what, w->f->rank, track, text);
}

static void put_order(struct writer *w, const char *what, int track, int index)
{
	begin_event(w);
	buf_printf(
		w->b,
		"{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
		what, w->f->rank, track, index);
}

/* Begins a slice; the caller adds the arguments and "}}". */
static void begin_slice(struct writer *w, int track, const char *kind, const char *name,
			double begin, double end)
{
	begin_event(w);
	buf_printf(w->b,
		   "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.1f,"
		   "\"dur\":%.1f,\"args\":{",
		   kind, name, w->f->rank, track, begin + w->shift, end - begin);
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
		begin_slice(w, TRAINING, "step", name, f->phases[i].begin, f->phases[end - 1].end);
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
		begin_slice(w, TRAINING, "phase", p->name, p->begin, p->end);
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

static double op_end(const struct trace_op *op)
{
	return fmax((double)op->end_us, (double)op->start_us + SHORTEST_US);
}

/* An arrow begins or ends in the slice of its track that is open at its time. */
static void put_arrow(struct writer *w, int track, const struct trace_part *p,
		      const struct trace_op *op, const struct trace_message *m)
{
	double begin = (double)op->start_us + w->shift, end = op_end(op) + w->shift;
	int from = m->send ? p->rank : m->peer, to = m->send ? m->peer : p->rank;
	begin_event(w);
	buf_printf(w->b,
		   "{\"ph\":\"%s\",\"cat\":\"message\",\"name\":\"message\",\"id\":\"0x%016" PRIx64
		   "\",\"pid\":%d,\"tid\":%d,\"ts\":%.1f}",
		   m->send ? "s" : "f\",\"bp\":\"e", message_id(p->group, from, to, m->nth),
		   w->f->rank, track, m->send ? begin : fmax(begin, end - SHORTEST_US / 2));
}

static void put_op(struct writer *w, int track, const struct trace_part *p,
		   const struct trace_op *op)
{
	begin_slice(w, track, "communication", comm_op_word(op->kind), (double)op->start_us,
		    op_end(op));
	buf_printf(w->b, "\"number\":%" PRId64 ",\"bytes\":%" PRId64 ",\"ranks\":%d}}", op->seq,
		   op->bytes, p->group->size);
	for (int i = 0; i < op->listed; i++)
		put_arrow(w, track, p, op, &op->message[i]);
}

static void put_group(struct writer *w, int track, const struct trace_part *p)
{
	char name[STEP_FILE_NAME];
	bool named = false;
	for (int i = 0; i < p->n; i++) {
		const struct trace_op *op = &p->ops[i];
		if (op->start_us <= 0 || op->end_us < op->start_us ||
		    (double)op->start_us < w->from || (double)op->start_us > w->to)
			continue;
		if (!named) {
			tool_step_name(name, sizeof name, p->group->name);
			put_label(w, "thread_name", track, name);
			put_order(w, "thread_sort_index", track, track);
		}
		named = true;
		put_op(w, track, p, op);
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
