#include "libcomm/flight/waits.h"

#include <stddef.h>

bool comm_trace_rank_waits(const struct trace *t, int rank)
{
	const struct trace_rank *r = &t->ranks[rank];
	for (int i = 0; i < r->n; i++)
		for (int k = 0; k < r->parts[i].n; k++)
			if (trace_op_waits(&r->parts[i].ops[k]))
				return true;
	return false;
}

struct message_match comm_trace_match_message(const struct trace_part *p,
					      const struct trace_message *m)
{
	const struct trace_part *peer = p->group->part[m->peer];
	for (int i = peer ? peer->n : 0; i-- > 0;) {
		const struct trace_op *op = &peer->ops[i];
		for (int k = 0; k < op->listed; k++) {
			const struct trace_message *o = &op->message[k];
			if (o->send == m->send || o->peer != p->rank || o->nth < m->nth)
				continue;
			return (struct message_match){ o->nth == m->nth && trace_op_waits(op)
							       ? MATCH_FOUND
							       : MATCH_ENDED,
						       op, o };
		}
		if (trace_op_waits(op) && op->messages > op->listed)
			return (struct message_match){ .how = MATCH_UNKNOWN };
	}
	return (struct message_match){ .how = MATCH_NONE };
}

static bool absent(const struct trace_group *g, int member, int64_t seq)
{
	return !g->part[member] || g->part[member]->seq < seq;
}

/* Moves to the next peer that the operation waits for. */
static bool next_peer(struct trace_wait *w)
{
	const struct trace_group *g = w->in->group;
	if (w->what->kind != OP_P2P) {
		for (; w->peer < g->size; w->peer++)
			if (w->peer != w->in->rank && absent(g, w->peer, w->what->seq)) {
				w->whom = g->members[w->peer++];
				return true;
			}
		return false;
	}
	for (; w->peer < w->what->listed; w->peer++) {
		w->message = &w->what->message[w->peer];
		if (w->message->peer == w->in->rank ||
		    comm_trace_match_message(w->in, w->message).how != MATCH_NONE)
			continue;
		w->whom = g->members[w->message->peer];
		w->peer++;
		return true;
	}
	return false;
}

bool comm_trace_next_wait(const struct trace *t, struct trace_wait *w)
{
	const struct trace_rank *r = &t->ranks[w->rank];
	for (; w->part < r->n; w->part++, w->op = 0) {
		w->in = &r->parts[w->part];
		for (; w->op < w->in->n; w->op++, w->peer = 0) {
			w->what = &w->in->ops[w->op];
			w->message = NULL;
			if (trace_op_waits(w->what) && next_peer(w))
				return true;
		}
	}
	return false;
}
