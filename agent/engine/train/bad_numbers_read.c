/* Reads the window of good steps back from the lines of metrics.jsonl. */
#include "agent/engine/train/bad_numbers.h"
#include "base/jsonl.h"
#include "base/messages.h"

#include <math.h>
#include <stdlib.h>

struct good_step {
	int64_t step;
	double loss, norm;
};

struct steps {
	struct good_step *of; /* ascending */
	int n, room;
	int64_t last; /* later steps do not count */
};

/* A line of a step undoes those of the same and of later steps: a restart repeats them. */
static int add_step(struct steps *all, const struct msg_metrics *m)
{
	while (all->n && all->of[all->n - 1].step >= m->step)
		all->n--;
	if (!isfinite(m->loss) || !isfinite(m->grad_norm) || (m->has_skipped && m->skipped))
		return 0;
	if (all->n == all->room) {
		int room = all->room ? 2 * all->room : 256;
		struct good_step *of = realloc(all->of, (size_t)room * sizeof *of);
		if (!of)
			return -1;
		all->of = of;
		all->room = room;
	}
	all->of[all->n++] = (struct good_step){ m->step, m->loss, m->grad_norm };
	return 0;
}

static int read_line(json_t *line, void *arg)
{
	struct steps *all = arg;
	struct msg_metrics m;
	return !msg_metrics_read(line, &m, NULL) && m.step <= all->last ? add_step(all, &m) : 0;
}

/* The first line of the end of a file may be cut; jsonl_parse skips it. */
int train_bad_read(struct bad_numbers *b, const char *text, size_t len, int64_t last, struct err *e)
{
	struct steps all = { .last = last };
	int rc = jsonl_parse(text, len, read_line, &all);
	for (int i = all.n > b->window ? all.n - b->window : 0; !rc && i < all.n; i++)
		train_bad_note(b, all.of[i].loss, all.of[i].norm);
	free(all.of);
	return rc ? err_set(e, ERR_NOMEM, "no memory for the numbers of earlier steps") : 0;
}
