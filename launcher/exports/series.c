#include "launcher/exports/series.h"

#include <stdlib.h>
#include <string.h>

/* A generation that has trained. Once all are known, `last` is its last step that counts. */
struct trained {
	int64_t generation, first, last;
};

struct series {
	const struct exports_series_reader *r;
	struct trained *list;
	size_t n, room;
	bool no_memory;
};

static int64_t step_of(const struct rundir_line *l)
{
	const json_t *step = json_object_get(l->fields, "step");
	return json_is_integer(step) && json_integer_value(step) >= 0 ? json_integer_value(step)
								      : -1;
}

static void note_event(void *arg, const struct rundir_line *l)
{
	(void)arg, (void)l;
}

static void note_step(void *arg, const struct rundir_line *l)
{
	struct series *s = arg;
	int64_t step = step_of(l);
	if (step < 0 || (s->n && s->list[s->n - 1].generation == l->generation))
		return;
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct trained *list = reallocarray(s->list, room, sizeof *list);
		s->no_memory |= !list;
		if (!list)
			return;
		s->list = list;
		s->room = room;
	}
	s->list[s->n++] = (struct trained){ l->generation, step, INT64_MAX };
}

static void find_last_steps(struct series *s)
{
	int64_t next = INT64_MAX;
	for (size_t i = s->n; i-- > 0;) {
		s->list[i].last = next == INT64_MAX ? next : next - 1;
		next = s->list[i].first < next ? s->list[i].first : next;
	}
}

/* What a generation did before it finished a step, such as a checkpoint, counts as what the one
 * before it did. */
static bool counts(const struct series *s, int64_t generation, int64_t step)
{
	size_t low = 0, high = s->n; /* the first one of a later generation is in [low, high] */
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (s->list[mid].generation <= generation)
			low = mid + 1;
		else
			high = mid;
	}
	return !low || step <= s->list[low - 1].last;
}

static void pass_event(void *arg, const struct rundir_line *l)
{
	const struct series *s = arg;
	int64_t step = step_of(l);
	if (step < 0 || counts(s, l->generation, step))
		s->r->event(s->r->arg, l, step);
}

static void pass_step(void *arg, const struct rundir_line *l)
{
	const struct series *s = arg;
	int64_t step = step_of(l);
	if (step >= 0 && counts(s, l->generation, step))
		s->r->metrics(s->r->arg, l, step);
}

static int read_all(const char *run, struct series *s, bool first, int64_t *damaged, struct err *e)
{
	const struct rundir_reader reader = { .event = first ? note_event : pass_event,
					      .metrics = first ? note_step : pass_step,
					      .arg = s };
	struct rundir_follower *f;
	if (rundir_follow_open(run, &reader, &f, e))
		return -1;
	int rc = rundir_follow_read(f, e);
	*damaged = rundir_follow_damaged(f);
	rundir_follow_close(f);
	return rc;
}

int exports_series_read(const char *run, const struct exports_series_reader *r, int64_t *damaged,
			struct err *e)
{
	struct series s = { .r = r };
	int rc = read_all(run, &s, true, damaged, e);
	if (!rc && s.no_memory)
		rc = err_set(e, ERR_NOMEM, "%s: no memory to read its metrics", run);
	if (!rc && !s.n)
		rc = err_set(e, ERR_NOTFOUND,
			     "%s: the run has finished no step, so there is nothing to export",
			     run);
	find_last_steps(&s);
	if (!rc)
		rc = read_all(run, &s, false, damaged, e);
	free(s.list);
	return rc;
}
