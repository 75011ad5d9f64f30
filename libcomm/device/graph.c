#include "libcomm/device/graph.h"

#include <stdlib.h>
#include <string.h>

struct noted_op {
	struct comm *c;
	struct op op; /* with its lists */
	void *lists;
	int next; /* the part's next one; -1: none */
};

struct graph_part { /* the collectives of one group, or its messages */
	struct comm *c;
	bool messages;
	void *stream; /* the caller's */
	int first, last, count;
	struct stream_mark *mark; /* of the last operation; then of the launch under way */
};

struct earlier_wait { /* for an operation that was started before the graph */
	struct comm *c;
	void *event;
};

struct comm_graph {
	struct noted_op *ops;
	int n, room;
	struct graph_part *parts;
	int n_parts;
	const struct op **order; /* the operations of one part, in their order */
	struct earlier_wait *earlier;
	int n_earlier;
	/* of the repeated calls: the next operation and wait */
	int at, waits;
	bool launched; /* before */
};

/* The graph that this thread records, and the one whose calls it repeats. NULL: none. */
static _Thread_local struct comm_graph *recorded, *repeated;

bool comm_graph_records(void)
{
	return recorded != NULL;
}

bool comm_graph_repeats(void)
{
	return repeated != NULL;
}

bool comm_graph_fits(const struct comm *c)
{
	return !c || (c->device_group && c->device_group->native);
}

/* --- Notes -------------------------------------------------------------------------------- */

static struct graph_part *part_of(struct comm_graph *g, struct comm *c, bool messages)
{
	for (int i = 0; i < g->n_parts; i++)
		if (g->parts[i].c == c && g->parts[i].messages == messages)
			return &g->parts[i];
	struct graph_part *parts = realloc(g->parts, (size_t)(g->n_parts + 1) * sizeof *parts);
	if (!parts)
		return NULL;
	g->parts = parts;
	parts[g->n_parts] = (struct graph_part){ .c = c,
						 .messages = messages,
						 .stream = c->device_group->stream,
						 .first = -1,
						 .last = -1 };
	return &parts[g->n_parts++];
}

static struct noted_op *new_note(struct comm_graph *g)
{
	if (g->n == g->room) {
		int room = g->room ? 2 * g->room : 32;
		struct noted_op *ops = realloc(g->ops, (size_t)room * sizeof *ops);
		if (!ops)
			return NULL;
		g->ops = ops;
		g->room = room;
	}
	return &g->ops[g->n];
}

/* Copies a list to *at, behind which the next one goes. */
static void *copy_list(char **at, const void *list, size_t bytes)
{
	void *copy = memcpy(*at, list, bytes);
	*at += bytes;
	return copy;
}

/* Sets the note's operation to a copy that keeps its lists. */
static bool copy_op(struct noted_op *note, const struct op *op, int ranks)
{
	size_t list = (size_t)ranks * sizeof *op->counts,
	       messages = op->kind == OP_P2P ? (size_t)op->n * sizeof *op->p2p : 0;
	char *at = malloc(messages + 2 * list);
	note->op = *op;
	note->op.mark = NULL;
	note->op.record = 0;
	note->lists = at;
	if (!at)
		return false;
	if (messages)
		note->op.p2p = copy_list(&at, op->p2p, messages);
	if (op->counts)
		note->op.counts = copy_list(&at, op->counts, list);
	if (op->out_counts)
		note->op.out_counts = copy_list(&at, op->out_counts, list);
	return true;
}

int comm_graph_note(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e)
{
	struct comm_graph *g = recorded;
	struct noted_op *note = new_note(g);
	bool noted = note && copy_op(note, op, c->size);
	/* A part is made last, because it must have an operation and a mark. */
	struct graph_part *p = noted ? part_of(g, c, op->kind == OP_P2P) : NULL;
	if (!p) {
		if (noted)
			free(note->lists);
		return err_set(e, ERR_NOMEM, "no memory for an operation in a graph");
	}
	note->c = c;
	note->next = -1;
	if (p->count++)
		g->ops[p->last].next = g->n;
	else
		p->first = g->n;
	p->last = g->n++;
	p->mark = m;
	return 0;
}

/* --- Calls -------------------------------------------------------------------------------- */

static bool same_messages(const struct op *a, const struct op *b)
{
	for (int i = 0; i < a->n && i < b->n; i++) {
		const struct comm_p2p *x = &a->p2p[i], *y = &b->p2p[i];
		if (x->send != y->send || x->data != y->data || x->count != y->count ||
		    x->type != y->type || x->peer != y->peer)
			return false;
	}
	return a->n == b->n;
}

static bool same_call(const struct noted_op *note, const struct comm *c, const struct op *op)
{
	if (note->c != c || note->op.kind != op->kind)
		return false;
	if (op->kind == OP_P2P)
		return same_messages(&note->op, op);
	return note->op.in == op->in && note->op.out == op->out && note->op.count == op->count &&
	       note->op.type == op->type && note->op.redop == op->redop;
}

/* The graph has this operation already. The calls that are repeated are some of those that were
 * recorded, in the same order. */
static int answer(struct comm_graph *g, const struct comm *c, const struct op *op, struct err *e)
{
	while (g->at < g->n)
		if (same_call(&g->ops[g->at++], c, op))
			return 0;
	return err_set(e, ERR_INTERNAL,
		       "%s on group %s is not what the graph that is replayed has recorded",
		       comm_op_word(op->kind), c->name);
}

int comm_graph_call(struct comm *c, const struct op *op, struct err *e)
{
	if (repeated)
		return answer(repeated, c, op, e);
	if (!recorded || comm_graph_fits(c))
		return 1;
	return err_set(e, ERR_INTERNAL, "%s on group %s cannot be recorded in a graph",
		       comm_op_word(op->kind), c->name);
}

/* --- Waiting for earlier operations -------------------------------------------------------- */

int comm_graph_prepare(struct comm *c, struct err *e)
{
	struct device_group *d = c->device_group;
	if (!comm_graph_fits(c) || !d->api->graph_wait || d->relay)
		return 0;
	return d->api->stream_open(d->device, &d->relay, e);
}

bool comm_graph_awaits(const struct comm *c)
{
	return comm_graph_fits(c) && c && c->device_group->relay;
}

/* A new wait in the graph that is recorded. */
static struct earlier_wait *new_wait(struct comm_graph *g, struct comm *c, struct err *e)
{
	struct device_group *d = c->device_group;
	struct earlier_wait *all = realloc(g->earlier,
					   (size_t)(g->n_earlier + 1) * sizeof *g->earlier);
	if (!all) {
		err_set(e, ERR_NOMEM, "no memory for a wait in a graph");
		return NULL;
	}
	g->earlier = all;
	all[g->n_earlier] = (struct earlier_wait){ .c = c };
	if (d->api->event_open(d->device, &all[g->n_earlier].event, e))
		return NULL;
	return &all[g->n_earlier++];
}

int comm_graph_await(struct comm *c, struct stream_mark *m, struct err *e)
{
	struct device_group *d = c->device_group;
	struct comm_graph *g = repeated ? repeated : recorded;
	struct earlier_wait *w = repeated && g->waits < g->n_earlier ? &g->earlier[g->waits++]
								     : NULL;
	if (!d->relay || (repeated && (!w || w->c != c)))
		return err_set(e, ERR_INTERNAL,
			       "group %s: a graph would wait for an operation that it does not "
			       "know",
			       c->name);
	if (!repeated && !(w = new_wait(g, c, e)))
		return -1;
	if (d->api->stream_wait(d->device, d->relay, m->end, e) ||
	    d->api->event_record(d->device, w->event, d->relay, e))
		return -1;
	return repeated ? 0 : d->api->graph_wait(d->device, d->stream, w->event, e);
}

/* --- Recording ---------------------------------------------------------------------------- */

int comm_graph_begin(struct comm_graph **out, struct err *e)
{
	if (recorded || repeated)
		return err_set(e, ERR_INTERNAL, "this thread records a graph already");
	*out = recorded = calloc(1, sizeof *recorded);
	return recorded ? 0 : err_set(e, ERR_NOMEM, "no memory for a graph");
}

/* The streams of all groups join the caller's, also if a request is still open. */
static int join_streams(struct comm_graph *g, struct err *e)
{
	for (int i = 0; i < g->n_parts; i++) {
		struct device_group *d = g->parts[i].c->device_group;
		if (d->api->stream_wait(d->device, g->parts[i].stream, g->parts[i].mark->end, e))
			return -1;
	}
	return 0;
}

int comm_graph_end(struct comm_graph *g, struct err *e)
{
	recorded = NULL;
	if (join_streams(g, e))
		return -1;
	g->order = malloc((size_t)(g->n + 1) * sizeof *g->order);
	return g->order ? 0 : err_set(e, ERR_NOMEM, "no memory for a graph's operations");
}

void comm_graph_give_up(struct comm_graph *g)
{
	if (repeated == g)
		repeated = NULL;
}

void comm_graph_free(struct comm_graph *g)
{
	if (!g)
		return;
	if (recorded == g)
		recorded = NULL;
	comm_graph_give_up(g);
	for (int i = 0; i < g->n; i++)
		free(g->ops[i].lists);
	for (int i = 0; i < g->n_earlier; i++) {
		struct device_group *d = g->earlier[i].c->device_group;
		d->api->event_close(d->device, g->earlier[i].event);
	}
	free(g->earlier);
	free(g->ops);
	free(g->parts);
	free(g->order);
	free(g);
}

/* --- Launching ---------------------------------------------------------------------------- */

/* Waits for all that a part's launch needs, so that launch_part does not wait. */
static int prepare_part(struct comm_graph *g, struct graph_part *p, struct err *e)
{
	struct op any = g->ops[p->first].op;
	if (g->launched && p->c->open_requests) /* the recording itself may have left some */
		return err_set(e, ERR_INTERNAL,
			       "group %s: a graph is launched while %d operations are open",
			       p->c->name, p->c->open_requests);
	if (p->c->device_group->stream != p->stream)
		return err_set(e, ERR_INTERNAL, "group %s: the graph is another stream's",
			       p->c->name);
	if (comm_native_await_room(p->c, e) || comm_device_group_mark(p->c, &any, e))
		return -1;
	p->mark = any.mark;
	return 0;
}

/* Announces a part's operations. */
static int launch_part(struct comm_graph *g, struct graph_part *p, struct err *e)
{
	int n = 0;
	for (int i = p->first; i >= 0; i = g->ops[i].next)
		g->order[n++] = &g->ops[i].op;
	return comm_native_launch(p->c, g->order, n, g->n_parts > 1, p->mark, e);
}

/* Returns the number of parts before the one that failed. */
static int for_parts(struct comm_graph *g,
		     int (*run)(struct comm_graph *g, struct graph_part *p, struct err *e),
		     struct err *e)
{
	int i = 0;
	for (; i < g->n_parts; i++) {
		struct err why = ERR_INIT;
		struct comm *c = g->parts[i].c;
		if (world_failed(c->world)) {
			comm_world_error(c->world, e);
			break;
		}
		if (run(g, &g->parts[i], &why)) {
			comm_device_group_fail(c, "the launch of a graph", &why, e);
			break;
		}
	}
	return i;
}

int comm_graph_repeat(struct comm_graph *g, struct err *e)
{
	if (recorded || repeated)
		return err_set(e, ERR_INTERNAL,
			       "this thread records or repeats another graph already");
	g->at = g->waits = 0;
	repeated = g;
	return 0;
}

int comm_graph_launch(struct comm_graph *g, struct err *e)
{
	bool waits = repeated == g ? g->waits == g->n_earlier : !g->launched || !g->n_earlier;
	repeated = NULL;
	if (!waits)
		return err_set(e, ERR_INTERNAL,
			       "a graph would wait for %d operations, not the %d recorded ones",
			       g->waits, g->n_earlier);
	if (for_parts(g, prepare_part, e) < g->n_parts)
		return -1;
	int begun = for_parts(g, launch_part, e);
	if (begun == g->n_parts) {
		g->launched = true;
		return 0;
	}
	while (begun-- > 0)
		comm_native_not_launched(g->parts[begun].c);
	return -1;
}

int comm_graph_launched(struct comm_graph *g, struct err *e)
{
	struct err why = ERR_INIT;
	struct comm *failed = NULL;
	for (int i = 0; i < g->n_parts; i++) { /* all of them, since each keeps a communicator */
		struct comm *c = g->parts[i].c;
		if (comm_native_launched(c, g->parts[i].mark, failed ? NULL : &why) && !failed)
			failed = c;
	}
	return failed ? comm_device_group_fail(failed, "the launch of a graph", &why, e) : 0;
}
