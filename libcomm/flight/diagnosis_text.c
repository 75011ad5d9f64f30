#include "libcomm/flight/diagnosis_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int comm_diagnosis_add_rank(struct diagnosis *d, int rank, struct err *e)
{
	for (int i = 0; i < d->n; i++)
		if (d->ranks[i] == rank)
			return 0;
	int *more = realloc(d->ranks, ((size_t)d->n + 1) * sizeof *more);
	if (!more)
		return err_set(e, ERR_NOMEM, "no memory for the ranks");
	d->ranks = more;
	d->ranks[d->n++] = rank;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const int *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

void comm_diagnosis_put_ranks(struct buf *b, int *ranks, int n)
{
	qsort(ranks, (size_t)n, sizeof *ranks, by_value);
	buf_puts(b, n == 1 ? "rank " : "ranks ");
	for (int i = 0, last; i < n; i = last + 1) {
		for (last = i; last + 1 < n && ranks[last + 1] == ranks[last] + 1;)
			last++;
		buf_printf(b, last > i ? "%s%d-%d" : "%s%d", i ? ", " : "", ranks[i], ranks[last]);
	}
}

void comm_diagnosis_put_group(struct buf *b, const struct trace *t, const struct trace_group *g)
{
	bool same = false;
	for (int i = 0; i < t->n; i++)
		same |= t->groups[i] != g && !strcmp(t->groups[i]->name, g->name);
	buf_printf(b, "group %s", g->name);
	int *copy = same ? malloc((size_t)g->size * sizeof *copy) : NULL;
	if (!copy)
		return;
	memcpy(copy, g->members, (size_t)g->size * sizeof *copy);
	buf_puts(b, " of ");
	comm_diagnosis_put_ranks(b, copy, g->size);
	free(copy);
}

void comm_diagnosis_put_rank(struct buf *b, const struct trace *t, int rank)
{
	const struct trace_rank *r = &t->ranks[rank];
	buf_printf(b, "rank %d", rank);
	if (r->there && *r->host)
		buf_printf(b, " (%.64s)", r->host);
}

void comm_diagnosis_put_op(struct buf *b, const struct trace *t, const struct trace_group *g,
			   const struct trace_op *op)
{
	buf_printf(b, "%s", comm_trace_op_word(op));
	if (op->seq)
		buf_printf(b, " number %" PRId64, op->seq);
	buf_puts(b, " of ");
	comm_diagnosis_put_group(b, t, g);
}

double comm_trace_waited_s(const struct trace *t, const struct trace_part *p,
			   const struct trace_op *op)
{
	int64_t until = op->end_us ? op->end_us : t->ranks[p->group->members[p->rank]].time_us;
	return op->start_us && until > op->start_us ? (double)(until - op->start_us) * 1e-6 : 0;
}
