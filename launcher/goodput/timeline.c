#include "launcher/goodput/timeline.h"

#include <math.h>
#include <stdlib.h>

static void add(struct goodput_timeline *t, const struct goodput_span *s)
{
	double until = s->from + s->lasts;
	for (int i = (int)fmin(s->from / t->each, t->n); i < t->n && i * t->each < until; i++) {
		double a = fmax(s->from, i * t->each), b = fmin(until, (i + 1) * t->each);
		t->columns[i][s->part] += s->seconds * fmax(0, b - a) / s->lasts;
	}
}

static void undo(struct goodput_timeline *t, double until, double seconds)
{
	for (int i = (int)fmin(until / t->each, t->n - 1); i >= 0 && seconds > 0; i--) {
		double some = fmin(seconds, t->columns[i][GOODPUT_TRAINED]);
		t->columns[i][GOODPUT_TRAINED] -= some;
		t->columns[i][GOODPUT_LOST] += some;
		seconds -= some;
	}
}

int goodput_timeline_open(struct goodput_timeline *t, const struct goodput_history *h, double each,
			  int columns, struct err *e)
{
	*t = (struct goodput_timeline){ .each = each, .n = columns };
	t->columns = calloc((size_t)columns + 1, sizeof *t->columns);
	if (!t->columns)
		return err_set(e, ERR_NOMEM, "no memory for the timeline of a run");
	for (int i = 0; i < h->n_spans; i++) {
		const struct goodput_span *s = &h->spans[i];
		if (s->undone)
			undo(t, s->from, s->seconds);
		else
			add(t, s);
	}
	return 0;
}

void goodput_timeline_close(struct goodput_timeline *t)
{
	free(t->columns);
	*t = (struct goodput_timeline){ 0 };
}
