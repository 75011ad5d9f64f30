#include "launcher/simulate/queue.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_ROOM = 256 };

void simulate_queue_close(struct simulate_queue *q)
{
	free(q->heap);
	q->heap = NULL;
	q->n = q->room = 0;
}

static bool precedes(const struct simulate_event *a, const struct simulate_event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static bool make_room(struct simulate_queue *q)
{
	int room = q->room ? 2 * q->room : FIRST_ROOM;
	if (q->n < q->room)
		return true;
	struct simulate_event *heap = realloc(q->heap, (size_t)room * sizeof *heap);
	if (!heap)
		return false;
	q->heap = heap;
	q->room = room;
	return true;
}

void simulate_queue_add(struct simulate_queue *q, double delay, void (*fire)(void *arg), void *arg)
{
	const struct simulate_event e = {
		.at = q->now + fmax(delay, 0), .order = q->added++, .fire = fire, .arg = arg
	};
	if (!make_room(q)) {
		q->failed = true;
		return;
	}
	int i = q->n++;
	for (int up; i > 0 && precedes(&e, &q->heap[up = (i - 1) / 2]); i = up)
		q->heap[i] = q->heap[up];
	q->heap[i] = e;
}

double simulate_queue_due(const struct simulate_queue *q)
{
	return q->n ? q->heap[0].at : (double)INFINITY;
}

struct simulate_event simulate_queue_next(struct simulate_queue *q)
{
	const struct simulate_event first = q->heap[0], last = q->heap[--q->n];
	int i = 0;
	for (int down = 1; down < q->n; down = 2 * i + 1) {
		if (down + 1 < q->n && precedes(&q->heap[down + 1], &q->heap[down]))
			down++;
		if (!precedes(&q->heap[down], &last))
			break;
		q->heap[i] = q->heap[down];
		i = down;
	}
	q->heap[i] = last;
	q->now = first.at;
	return first;
}
