#include "libcomm/flight/diagnosis_text.h"
#include "libcomm/flight/waits.h"

#include <inttypes.h>
#include <stdlib.h>

const char *comm_finding_word(enum comm_finding f)
{
	static const char *const words[] = { "none", "mismatch", "message", "deadlock", "missing" };
	return words[f];
}

void comm_diagnosis_fini(struct diagnosis *d)
{
	buf_fini(&d->text);
	free(d->ranks);
}

/* --- Messages of different sizes --- */

static int report_message(const struct trace *t, const struct trace_part *p,
			  const struct trace_op *op, const struct trace_message *m,
			  const struct message_match *met, struct diagnosis *d, struct err *e)
{
	int from = p->group->members[p->rank], to = p->group->members[m->peer];
	d->finding = COMM_FINDING_MESSAGE;
	d->group = p->group;
	d->op = op;
	comm_diagnosis_put_group(&d->text, t, p->group);
	buf_printf(&d->text,
		   ": rank %d sends %" PRId64 " bytes to rank %d in %s number %" PRId64
		   " where rank %d receives %" PRId64 " bytes in its number %" PRId64,
		   from, m->bytes, to, comm_trace_op_word(op), op->seq, to, met->message->bytes,
		   met->op->seq);
	return comm_diagnosis_add_rank(d, from, e) || comm_diagnosis_add_rank(d, to, e) ? -1 : 0;
}

static int find_message_in(const struct trace *t, const struct trace_part *p, struct diagnosis *d,
			   struct err *e)
{
	for (int i = 0; i < p->n && d->finding == COMM_FINDING_NONE; i++)
		for (int k = 0; trace_op_waits(&p->ops[i]) && k < p->ops[i].listed; k++) {
			const struct trace_message *m = &p->ops[i].message[k];
			struct message_match met =
				m->send ? comm_trace_match_message(p, m)
					: (struct message_match){ .how = MATCH_NONE };
			if (met.how == MATCH_FOUND && met.message->bytes != m->bytes)
				return report_message(t, p, &p->ops[i], m, &met, d, e);
		}
	return 0;
}

static int find_message(const struct trace *t, struct diagnosis *d, struct err *e)
{
	int rc = 0;
	for (int r = 0; r < t->size && rc == 0 && d->finding == COMM_FINDING_NONE; r++)
		for (int i = 0; i < t->ranks[r].n && rc == 0 && d->finding == COMM_FINDING_NONE;
		     i++)
			rc = find_message_in(t, &t->ranks[r].parts[i], d, e);
	return rc;
}

/* The ranks in the same operation as w's rank, and the longest wait among them; returns how
 * many. */
static int find_waiting(const struct trace *t, const struct trace_wait *w, int *waiting,
			double *longest)
{
	const struct trace_group *g = w->in->group;
	int n = 0;
	*longest = 0;
	for (int r = 0; r < g->size; r++)
		for (int i = 0; g->part[r] && i < g->part[r]->n; i++) {
			const struct trace_op *op = &g->part[r]->ops[i];
			bool same = w->message ? op == w->what
					       : op->kind != OP_P2P && op->seq == w->what->seq;
			if (!same || !trace_op_waits(op))
				continue;
			double s = comm_trace_waited_s(t, g->part[r], op);
			*longest = s > *longest ? s : *longest;
			waiting[n++] = g->members[r];
			break;
		}
	return n;
}

/* --- Ranks that wait for each other --- */

static void put_wait(struct buf *b, const struct trace *t, const struct trace_wait *w)
{
	buf_printf(b, "rank %d in ", w->rank);
	comm_diagnosis_put_op(b, t, w->in->group, w->what);
	buf_printf(b, " for rank %d", w->whom);
}

/* The rank of the cycle that is alone in its operation while others are together in theirs; -1:
 * there is none, or it is not the only one. */
static int find_odd(const struct trace *t, const struct trace_wait *path, int n, int *waiting)
{
	int odd = -1, alone = 0;
	for (int i = 0; i < n; i++) {
		double s;
		bool single = find_waiting(t, &path[i], waiting, &s) == 1;
		alone += single;
		odd = single ? i : odd;
	}
	return alone == 1 && n > 1 ? odd : -1;
}

/* "; rank 2 alone is in barrier number 48 of group world" */
static void put_odd(struct buf *b, const struct trace *t, const struct trace_wait *w)
{
	buf_puts(b, "; ");
	comm_diagnosis_put_rank(b, t, w->rank);
	buf_puts(b, " alone is in ");
	comm_diagnosis_put_op(b, t, w->in->group, w->what);
}

static int report_deadlock(const struct trace *t, const struct trace_wait *path, int n,
			   struct diagnosis *d, struct err *e)
{
	int *waiting = calloc((size_t)t->size, sizeof *waiting);
	if (!waiting)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", t->size);
	int odd = find_odd(t, path, n, waiting);
	free(waiting);
	d->finding = COMM_FINDING_DEADLOCK;
	d->group = path[0].in->group;
	d->op = path[0].what;
	if (odd >= 0 && comm_diagnosis_add_rank(d, path[odd].rank, e))
		return -1;
	buf_puts(&d->text, "ranks wait for each other: ");
	for (int i = 0; i < n; i++) {
		buf_puts(&d->text, i ? ", " : "");
		put_wait(&d->text, t, &path[i]);
		if (i != odd && comm_diagnosis_add_rank(d, path[i].rank, e))
			return -1;
	}
	if (odd >= 0)
		put_odd(&d->text, t, &path[odd]);
	return 0;
}

enum { UNSEEN, ON_PATH, LEFT };

/* Follows the waits from a rank. If a rank appears again, the path from there on is the cycle. */
static int follow_waits(const struct trace *t, int from, struct trace_wait *path, char *seen,
			struct diagnosis *d, struct err *e)
{
	int n = 0;
	path[n++] = (struct trace_wait){ .rank = from };
	seen[from] = ON_PATH;
	while (n > 0) {
		struct trace_wait *at = &path[n - 1];
		if (!comm_trace_next_wait(t, at)) {
			seen[at->rank] = LEFT;
			n--;
		} else if (seen[at->whom] == UNSEEN) {
			seen[at->whom] = ON_PATH;
			path[n++] = (struct trace_wait){ .rank = at->whom };
		} else if (seen[at->whom] == ON_PATH) {
			int first = n - 1;
			while (path[first].rank != at->whom)
				first--;
			return report_deadlock(t, &path[first], n - first, d, e);
		}
	}
	return 0;
}

static int find_deadlock(const struct trace *t, struct diagnosis *d, struct err *e)
{
	struct trace_wait *path = calloc((size_t)t->size, sizeof *path);
	char *seen = calloc((size_t)t->size, 1);
	int rc = path && seen ? 0 : err_set(e, ERR_NOMEM, "no memory for %d ranks", t->size);
	for (int r = 0; r < t->size && rc == 0 && d->finding == COMM_FINDING_NONE; r++)
		if (seen[r] == UNSEEN)
			rc = follow_waits(t, r, path, seen, d, e);
	free(path);
	free(seen);
	return rc;
}

/* --- A rank that never came --- */

enum { TOLD = 3 }; /* last operations to report, at most */

static void put_last_op(struct buf *b, const struct trace *t, int rank)
{
	const struct trace_rank *r = &t->ranks[rank];
	const struct trace_part *in = NULL;
	const struct trace_op *last = NULL;
	for (int i = 0; i < r->n; i++)
		for (int k = 0; k < r->parts[i].n; k++)
			if (!last || r->parts[i].ops[k].start_us >= last->start_us) {
				in = &r->parts[i];
				last = &in->ops[k];
			}
	if (!last) {
		buf_puts(b, "it has called nothing");
		return;
	}
	buf_puts(b, "its last operation was ");
	comm_diagnosis_put_op(b, t, in->group, last);
	buf_printf(b, ", %s", last->state == RECORD_QUEUED ? "still queued" : "done");
}

/* "ranks 0-2 have been waiting for 12.3 s in all_reduce number 40 of group world for rank 3, of
 * which there is no dump" */
static void put_undumped(struct buf *b, const struct trace *t, const struct trace_wait *w,
			 struct diagnosis *d, int *waiting)
{
	double s;
	int n = find_waiting(t, w, waiting, &s);
	comm_diagnosis_put_ranks(b, waiting, n);
	buf_printf(b, " %s been waiting for %.3g s in ", n == 1 ? "has" : "have", s);
	comm_diagnosis_put_op(b, t, w->in->group, w->what);
	buf_puts(b, " for ");
	comm_diagnosis_put_ranks(b, d->ranks, d->n);
	buf_puts(b, ", of which there is no dump");
}

/* "rank 5 (b) never reached all_reduce number 40 of group tp1; ranks 4, 6-7 have been waiting for
 * it for 12.3 s" */
static void put_missing(struct buf *b, const struct trace *t, const struct trace_wait *w,
			struct diagnosis *d, int *waiting)
{
	const struct trace_message *m = w->message;
	double s;
	int n = find_waiting(t, w, waiting, &s);
	if (d->n == 1)
		comm_diagnosis_put_rank(b, t, d->ranks[0]);
	else
		comm_diagnosis_put_ranks(b, d->ranks, d->n);
	if (m)
		buf_printf(b, " never began to %s the %" PRId64 " bytes that rank %d %s in ",
			   m->send ? "receive" : "send", m->bytes, w->rank,
			   m->send ? "sends" : "expects");
	else
		buf_puts(b, " never reached ");
	comm_diagnosis_put_op(b, t, w->in->group, w->what);
	buf_puts(b, "; ");
	comm_diagnosis_put_ranks(b, waiting, n);
	buf_printf(b, " %s been waiting for %s for %.3g s", n == 1 ? "has" : "have",
		   d->n == 1 ? "it" : "them", s);
	for (int i = 0; i < d->n && i < TOLD; i++) {
		if (!t->ranks[d->ranks[i]].there) {
			buf_printf(b, "; there is no dump of rank %d", d->ranks[i]);
			continue;
		}
		buf_puts(b, "; ");
		if (d->n > 1)
			buf_printf(b, "rank %d: ", d->ranks[i]);
		put_last_op(b, t, d->ranks[i]);
	}
}

static int report_missing(const struct trace *t, const struct trace_wait *w, const bool *waits,
			  struct diagnosis *d, struct err *e)
{
	int *waiting = calloc((size_t)w->in->group->size, sizeof *waiting);
	if (!waiting)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", w->in->group->size);
	int rc = 0;
	bool dumped = false;
	for (struct trace_wait next = { .rank = w->rank };
	     rc == 0 && comm_trace_next_wait(t, &next);) {
		if (next.what != w->what || (w->message && next.whom != w->whom) ||
		    waits[next.whom])
			continue;
		dumped |= t->ranks[next.whom].there;
		rc = comm_diagnosis_add_rank(d, next.whom, e);
	}
	d->finding = COMM_FINDING_MISSING;
	d->group = w->in->group;
	d->op = w->what;
	(dumped ? put_missing : put_undumped)(&d->text, t, w, d, waiting);
	free(waiting);
	return rc;
}

/* Among all waits for a rank that waits for nobody, reports the one that began first. */
static int find_missing(const struct trace *t, struct diagnosis *d, struct err *e)
{
	struct trace_wait first = { .what = NULL };
	bool *waits = calloc((size_t)t->size + 1, sizeof *waits);
	if (!waits)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", t->size);
	for (int r = 0; r < t->size; r++)
		waits[r] = comm_trace_rank_waits(t, r);
	for (int r = 0; r < t->size; r++)
		for (struct trace_wait w = { .rank = r }; waits[r] && comm_trace_next_wait(t, &w);)
			if ((!first.what || w.what->start_us < first.what->start_us) &&
			    !waits[w.whom])
				first = w;
	int rc = first.what ? report_missing(t, &first, waits, d, e) : 0;
	free(waits);
	return rc;
}

/* --- Nothing --- */

static void report_nothing(const struct trace *t, struct diagnosis *d)
{
	const struct trace_part *in = NULL;
	const struct trace_op *first = NULL;
	int there = 0;
	for (int r = 0; r < t->size; r++) {
		there += t->ranks[r].there;
		for (int i = 0; i < t->ranks[r].n; i++)
			for (int k = 0; k < t->ranks[r].parts[i].n; k++) {
				const struct trace_op *op = &t->ranks[r].parts[i].ops[k];
				if (!trace_op_waits(op) ||
				    (first && first->start_us <= op->start_us))
					continue;
				in = &t->ranks[r].parts[i];
				first = op;
			}
	}
	if (first) {
		buf_printf(&d->text, "no disagreement: all have come to ");
		comm_diagnosis_put_op(&d->text, t, in->group, first);
		buf_printf(&d->text, ", which has taken %.3g s", comm_trace_waited_s(t, in, first));
	} else {
		buf_puts(&d->text, "no disagreement: every operation that was begun has ended");
	}
	if (there < t->size)
		buf_printf(&d->text, "; there are dumps of %d of %d ranks", there, t->size);
}

int comm_diagnose(const struct trace *t, struct diagnosis *d, struct err *e)
{
	static int (*const looks[])(const struct trace *, struct diagnosis *, struct err *) = {
		comm_diagnosis_find_mismatch,
		find_message,
		find_deadlock,
		find_missing,
	};
	*d = (struct diagnosis){ .text = BUF_INIT };
	int rc = 0;
	for (size_t i = 0;
	     i < sizeof looks / sizeof *looks && rc == 0 && d->finding == COMM_FINDING_NONE; i++)
		rc = looks[i](t, d, e);
	if (rc == 0 && d->finding == COMM_FINDING_NONE)
		report_nothing(t, d);
	if (rc == 0 && buf_failed(&d->text))
		rc = err_set(e, ERR_NOMEM, "no memory for the diagnosis");
	if (rc)
		comm_diagnosis_fini(d);
	return rc;
}
