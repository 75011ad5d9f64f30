#include "launcher/goodput/timeline.h"

#include <math.h>
#include <stdlib.h>

int goodput_timeline_open(struct goodput_timeline *t, double each, int columns, int most,
			  struct err *e)
{
	*t = (struct goodput_timeline){ .each = each, .n = columns, .most = most };
	t->columns = calloc((size_t)columns + 1, sizeof *t->columns);
	t->marks = calloc((size_t)most + 1, sizeof *t->marks);
	if (t->columns && t->marks)
		return 0;
	goodput_timeline_close(t);
	return err_set(e, ERR_NOMEM, "no memory for the timeline of a run");
}

void goodput_timeline_close(struct goodput_timeline *t)
{
	free(t->columns);
	free(t->marks);
	*t = (struct goodput_timeline){ 0 };
}

void goodput_timeline_add(struct goodput_timeline *t, enum goodput_part part, double from,
			  double lasts, double seconds)
{
	if (!t || !(lasts > 0))
		return;
	for (int i = (int)fmin(from / t->each, t->n); i < t->n && i * t->each < from + lasts; i++) {
		double a = fmax(from, i * t->each), b = fmin(from + lasts, (i + 1) * t->each);
		t->columns[i][part] += seconds * fmax(0, b - a) / lasts;
	}
}

void goodput_timeline_lose(struct goodput_timeline *t, double until, double seconds)
{
	for (int i = t ? (int)fmin(until / t->each, t->n - 1) : -1; i >= 0 && seconds > 0; i--) {
		double some = fmin(seconds, t->columns[i][GOODPUT_TRAINED]);
		t->columns[i][GOODPUT_TRAINED] -= some;
		t->columns[i][GOODPUT_LOST] += some;
		seconds -= some;
	}
}

void goodput_timeline_mark(struct goodput_timeline *t, double at, int kind)
{
	if (t && t->n_marks < t->most)
		t->marks[t->n_marks++] = (struct goodput_mark){ at, kind };
}
