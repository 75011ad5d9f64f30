/* mismatch — finds ranks of a group that call different operations under one number. */
#include "libcomm/flight/diagnosis_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct call {
	const struct trace_part *part;
	const struct trace_op *op;
};

static int by_seq(const void *a, const void *b)
{
	const struct call *x = a, *y = b;
	if (x->op->seq != y->op->seq)
		return x->op->seq < y->op->seq ? -1 : 1;
	return (x->part->rank > y->part->rank) - (x->part->rank < y->part->rank);
}

static bool same_call(const struct trace_op *a, const struct trace_op *b)
{
	return a->kind == b->kind && !strcmp(a->name, b->name) && a->type == b->type &&
	       a->redop == b->redop && a->root == b->root &&
	       (a->bytes == b->bytes || comm_op_has(a->kind, OP_PAIRWISE));
}

/* Collects all collectives of a group in the dumps, by number. */
static int collect_calls(const struct trace_group *g, struct call **out, size_t *count,
			 struct err *e)
{
	size_t n = 0, room = 0;
	for (int r = 0; r < g->size; r++)
		room += g->part[r] ? (size_t)g->part[r]->n : 0;
	struct call *all = calloc(room + 1, sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "no memory for %zu operations", room);
	for (int r = 0; r < g->size; r++)
		for (int i = 0; g->part[r] && i < g->part[r]->n; i++)
			if (g->part[r]->ops[i].kind != OP_P2P && g->part[r]->ops[i].seq)
				all[n++] = (struct call){ g->part[r], &g->part[r]->ops[i] };
	qsort(all, n, sizeof *all, by_seq);
	*out = all;
	*count = n;
	return 0;
}

struct mismatch {
	const struct trace_group *group;
	struct call *calls; /* with the same number */
	int n;
	int64_t start_us;
};

/* The first number under which the group's ranks called different operations; m->calls NULL:
 * none. */
static int find_mismatch(const struct trace_group *g, struct mismatch *m, struct err *e)
{
	struct call *all = NULL;
	size_t count = 0, end;
	*m = (struct mismatch){ .group = g };
	if (collect_calls(g, &all, &count, e))
		return -1;
	for (size_t i = 0; i < count && !m->calls; i = end) {
		bool differ = false;
		int64_t start = INT64_MAX;
		for (end = i; end < count && all[end].op->seq == all[i].op->seq; end++) {
			differ |= !same_call(all[i].op, all[end].op);
			start = all[end].op->start_us < start ? all[end].op->start_us : start;
		}
		if (!differ)
			continue;
		m->n = (int)(end - i);
		m->start_us = start;
		m->calls = calloc((size_t)m->n, sizeof *m->calls);
		if (m->calls)
			memcpy(m->calls, all + i, (size_t)m->n * sizeof *m->calls);
		else
			err_set(e, ERR_NOMEM, "no memory for %d operations", m->n);
		break;
	}
	free(all);
	return m->n && !m->calls ? -1 : 0;
}

enum { TYPES_DIFFER = 1, REDOPS_DIFFER = 2, ROOTS_DIFFER = 4 };

/* Finds the differences between calls of the same operation. */
static int find_differences(const struct mismatch *m)
{
	const struct trace_op *first[OP_KIND_COUNT] = { NULL };
	int what = 0;
	for (int i = 0; i < m->n; i++) {
		const struct trace_op *b = m->calls[i].op, *a = first[b->kind];
		if (!a)
			first[b->kind] = a = b;
		what |= (a->type != b->type ? TYPES_DIFFER : 0) |
			(a->redop != b->redop ? REDOPS_DIFFER : 0) |
			(a->root != b->root ? ROOTS_DIFFER : 0);
	}
	return what;
}

/* "reduce of 4096 bytes, f32, sum, root rank 5" */
static void put_call(struct buf *b, const struct trace_group *g, const struct trace_op *op,
		     int what)
{
	buf_puts(b, comm_trace_op_word(op));
	if (op->kind != OP_BARRIER)
		buf_printf(b, " of %" PRId64 " bytes", op->bytes);
	if (what & TYPES_DIFFER && op->kind != OP_BARRIER)
		buf_printf(b, ", %s", comm_op_type_word(op->type));
	if (what & REDOPS_DIFFER && comm_op_has(op->kind, OP_REDUCES))
		buf_printf(b, ", %s", comm_op_redop_word(op->redop));
	if (what & ROOTS_DIFFER && op->root >= 0)
		buf_printf(b, ", root rank %d", g->members[op->root]);
}

/* Removes all calls that equal the first one from the list, and returns their ranks. */
static int take_same(struct call *calls, int *n, int *ranks)
{
	const struct trace_op *op = calls[0].op;
	int taken = 0, left = 0;
	for (int i = 0; i < *n; i++) {
		const struct trace_part *p = calls[i].part;
		if (same_call(op, calls[i].op))
			ranks[taken++] = p->group->members[p->rank];
		else
			calls[left++] = calls[i];
	}
	*n = left;
	return taken;
}

static int count_same(const struct mismatch *m, const struct trace_op *op)
{
	int same = 0;
	for (int i = 0; i < m->n; i++)
		same += same_call(m->calls[i].op, op);
	return same;
}

/* The call of the most ranks counts as the usual one. If several are equally frequent, it is the
 * first rank's. */
static const struct trace_op *find_usual_call(const struct mismatch *m)
{
	const struct trace_op *best = m->calls[0].op;
	int most = count_same(m, best);
	for (int i = 1; i < m->n; i++) {
		if (same_call(m->calls[i].op, m->calls[i - 1].op))
			continue;
		int same = count_same(m, m->calls[i].op);
		if (same > most) {
			most = same;
			best = m->calls[i].op;
		}
	}
	return best;
}

/* "group dp0: rank 3 called all_gather of 4096 bytes as number 17 where ranks 0-2 called
 * all_reduce of 8192 bytes" */
static int report_mismatch(const struct trace *t, const struct mismatch *m, struct diagnosis *d,
			   struct err *e)
{
	const struct trace_op *usual = find_usual_call(m);
	int what = find_differences(m), left = m->n, n, reported = 0;
	int *ranks = calloc((size_t)m->n, sizeof *ranks),
	    *agree = calloc((size_t)m->n, sizeof *agree), agreeing = 0;
	if (!ranks || !agree) {
		free(ranks);
		free(agree);
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", m->n);
	}
	d->finding = COMM_FINDING_MISMATCH;
	d->group = m->group;
	d->op = usual;
	comm_diagnosis_put_group(&d->text, t, m->group);
	while (left > 0) {
		const struct trace_op *op = m->calls[0].op;
		n = take_same(m->calls, &left, ranks);
		if (same_call(op, usual)) {
			memcpy(agree, ranks, (size_t)n * sizeof *ranks);
			agreeing = n;
			continue;
		}
		for (int i = 0; i < n; i++)
			comm_diagnosis_add_rank(d, ranks[i], e);
		buf_puts(&d->text, reported ? ", " : ": ");
		comm_diagnosis_put_ranks(&d->text, ranks, n);
		buf_puts(&d->text, " called ");
		put_call(&d->text, m->group, op, what);
		if (!reported++)
			buf_printf(&d->text, " as number %" PRId64, op->seq);
	}
	buf_puts(&d->text, " where ");
	comm_diagnosis_put_ranks(&d->text, agree, agreeing);
	buf_puts(&d->text, " called ");
	put_call(&d->text, m->group, usual, what);
	free(ranks);
	free(agree);
	return 0;
}

int comm_diagnosis_find_mismatch(const struct trace *t, struct diagnosis *d, struct err *e)
{
	struct mismatch first = { .start_us = INT64_MAX }, m;
	int rc = 0;
	for (int i = 0; i < t->n && rc == 0; i++) {
		rc = find_mismatch(t->groups[i], &m, e);
		bool earlier = m.calls && (!first.calls || m.start_us < first.start_us);
		free(earlier ? first.calls : m.calls);
		if (earlier)
			first = m;
	}
	if (rc == 0 && first.calls)
		rc = report_mismatch(t, &first, d, e);
	free(first.calls);
	return rc;
}
