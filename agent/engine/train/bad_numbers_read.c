/* Reads the window of good steps back from the lines of metrics.jsonl. */
#include "agent/engine/train/bad_numbers.h"
#include "base/messages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step_numbers {
	int64_t step;
	double loss, norm;
};

struct steps {
	struct step_numbers *of; /* ascending */
	int n, room;
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
		struct step_numbers *of = realloc(all->of, (size_t)room * sizeof *of);
		if (!of)
			return -1;
		all->of = of;
		all->room = room;
	}
	all->of[all->n++] = (struct step_numbers){ m->step, m->loss, m->grad_norm };
	return 0;
}

/* The first line of the end of a file may be cut, so a line that cannot be read is none. */
static int read_line(struct steps *all, const char *line, size_t len, int64_t last)
{
	struct msg_metrics m;
	json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	int rc = json_is_object(o) && !msg_metrics_read(o, &m, NULL) && m.step <= last
			 ? add_step(all, &m)
			 : 0;
	json_decref(o);
	return rc;
}

int train_bad_read(struct bad_numbers *b, const char *text, size_t len, int64_t last, struct err *e)
{
	struct steps all = { .n = 0 };
	int rc = 0;
	for (size_t at = 0; !rc && at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		rc = read_line(&all, text + at, n, last);
		at += n + 1;
	}
	for (int i = all.n > b->window ? all.n - b->window : 0; !rc && i < all.n; i++)
		train_bad_note(b, all.of[i].loss, all.of[i].norm);
	free(all.of);
	return rc ? err_set(e, ERR_NOMEM, "no memory for the numbers of earlier steps") : 0;
}
