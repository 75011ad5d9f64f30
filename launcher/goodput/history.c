#include "launcher/goodput/history.h"

#include <stddef.h>
#include <stdlib.h>

/* Makes room for one more than n items of `size` bytes: the room doubles whenever n is a power of 2. Returns the
 * list, which may have moved; NULL: there is no memory, and the old list stays. */
static void *make_room(void *list, int n, size_t size)
{
	return n & (n - 1) ? list : reallocarray(list, n ? 2 * (size_t)n : 1, size);
}

static void add_span(struct goodput_history *h, struct goodput_span span)
{
	struct goodput_span *spans = h->failed ? NULL
					       : make_room(h->spans, h->n_spans, sizeof span);
	if (!spans) {
		h->failed = true;
		return;
	}
	h->spans = spans;
	h->spans[h->n_spans++] = span;
}

void goodput_history_fini(struct goodput_history *h)
{
	free(h->spans);
	free(h->marks);
	*h = (struct goodput_history){ 0 };
}

void goodput_history_add(struct goodput_history *h, enum goodput_part part, double from,
			 double lasts, double seconds)
{
	if (h && lasts > 0 && seconds != 0)
		add_span(h, (struct goodput_span){ part, false, from, lasts, seconds });
}

void goodput_history_undo(struct goodput_history *h, double until, double seconds)
{
	if (h && seconds > 0)
		add_span(h, (struct goodput_span){ GOODPUT_LOST, true, until, 0, seconds });
}

void goodput_history_mark(struct goodput_history *h, double at, int kind)
{
	if (!h)
		return;
	struct goodput_mark *marks = h->failed ? NULL
					       : make_room(h->marks, h->n_marks, sizeof *marks);
	if (!marks) {
		h->failed = true;
		return;
	}
	h->marks = marks;
	h->marks[h->n_marks++] = (struct goodput_mark){ at, kind };
}
