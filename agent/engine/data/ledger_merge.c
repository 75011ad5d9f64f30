#include "agent/engine/data/ledger_merge.h"

#include "agent/engine/data/ledger_lines.h"
#include "base/ranges.h"

#include <stdlib.h>

/* Whether later start lines undo the steps of a line. */
enum side { SIDE_COUNTS, SIDE_UNDONE, SIDE_CUT };

struct ledger_merger {
	int64_t *undo; /* [n + 1]: the least step of the start lines from i on */
	int n, room;
	int seen; /* start lines that were added */

	int64_t generation; /* of the last start line; -1: none */
	struct ranges skips;
	bool stepped; /* the generation has steps lines */
	bool closed;  /* no more lines of the generation are merged */

	struct ledger_line line; /* the line that may be continued, if `open` */
	struct buf text;         /* as it was */
	enum side side;
	bool open, merged;
};

int data_ledger_merger_open(struct ledger_merger **out, struct err *e)
{
	struct ledger_merger *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "no memory to merge a ledger");
	m->generation = -1;
	*out = m;
	return 0;
}

void data_ledger_merger_close(struct ledger_merger *m)
{
	if (!m)
		return;
	data_ledger_line_fini(&m->line);
	buf_fini(&m->text);
	free(m->undo);
	free(m);
}

static int note_start(struct ledger_merger *m, int64_t step, struct err *e)
{
	if (m->n == m->room) {
		int room = m->room ? 2 * m->room : 64;
		int64_t *undo = reallocarray(m->undo, (size_t)room, sizeof *undo);
		if (!undo)
			return err_set(e, ERR_NOMEM, "no memory to merge a ledger");
		m->undo = undo;
		m->room = room;
	}
	m->undo[m->n++] = step;
	for (int i = m->n - 2; i >= 0 && m->undo[i] > step; i--)
		m->undo[i] = step;
	return 0;
}

int data_ledger_merger_look(struct ledger_merger *m, const char *line, size_t n, struct err *e)
{
	struct ledger_line l;
	if (!n || data_ledger_parse(line, n, &l, NULL))
		return 0;
	int rc = 0;
	if (l.kind == LEDGER_HEAD)
		rc = data_ledger_check(&l, e);
	else if (l.kind == LEDGER_START)
		rc = note_start(m, l.step, e);
	data_ledger_line_fini(&l);
	return rc;
}

static int write_text(const char *line, size_t n, struct buf *out, struct err *e)
{
	buf_add(out, line, n);
	buf_puts(out, "\n");
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory to merge a ledger") : 0;
}

/* Writes the line that may be continued. */
static int write_open(struct ledger_merger *m, struct buf *out, struct err *e)
{
	int rc = 0;
	if (m->open)
		rc = m->merged ? data_ledger_write_steps(out, &m->line, e)
			       : write_text(m->text.data, m->text.len, out, e);
	data_ledger_line_fini(&m->line);
	m->open = m->merged = false;
	return rc;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct ledger_replica *x = a, *y = b;
	return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
				      : (x->share > y->share) - (x->share < y->share);
}

/* Sorts the replicas. */
static bool tiles(struct ledger_line *l)
{
	int64_t at = 0;
	if (l->n)
		qsort(l->replicas, (size_t)l->n, sizeof *l->replicas, compare_offsets);
	for (int i = 0; i < l->n; i++) {
		if (l->replicas[i].share && l->replicas[i].offset != at)
			return false;
		at += l->replicas[i].share;
	}
	return at == l->global;
}

static enum side side_of(const struct ledger_merger *m, const struct ledger_line *l)
{
	if (m->seen == m->n || l->to <= m->undo[m->seen])
		return SIDE_COUNTS;
	return l->from >= m->undo[m->seen] ? SIDE_UNDONE : SIDE_CUT;
}

static bool continues(const struct ledger_merger *m, const struct ledger_line *l, enum side side)
{
	const struct ledger_line *was = &m->line;
	if (!m->open || l->pieces || side == SIDE_CUT || side != m->side || l->from != was->to ||
	    l->global != was->global || l->n != was->n || was->n_pieces == LEDGER_PIECES_MAX ||
	    l->to - was->from > RANGES_END / l->global ||
	    l->first != ranges_end(&m->skips, was->first, (was->to - was->from) * was->global))
		return false;
	for (int i = 0; i < l->n; i++)
		if (l->replicas[i].offset != was->replicas[i].offset ||
		    l->replicas[i].share != was->replicas[i].share)
			return false;
	return true;
}

static int add_piece(struct ledger_line *l, int64_t steps, struct err *e)
{
	if (l->n_pieces && l->pieces[l->n_pieces - 1].steps == steps) {
		l->pieces[l->n_pieces - 1].count++;
		return 0;
	}
	struct ledger_piece *pieces = reallocarray(l->pieces, (size_t)l->n_pieces + 1,
						   sizeof *pieces);
	if (!pieces)
		return err_set(e, ERR_NOMEM, "no memory to merge a ledger");
	l->pieces = pieces;
	l->pieces[l->n_pieces++] = (struct ledger_piece){ steps, 1 };
	return 0;
}

/* Makes the line a merged one with one piece. */
static int make_merged(struct ledger_merger *m, struct err *e)
{
	struct ledger_line *l = &m->line;
	m->merged = true;
	if (l->pieces)
		return 0;
	for (int i = 0; i < l->n; i++) {
		struct digest chain = { { 0 } };
		data_ledger_chain(&chain, &l->replicas[i].digest);
		l->replicas[i].digest = chain;
	}
	return add_piece(l, l->to - l->from, e);
}

static int take_in(struct ledger_merger *m, const struct ledger_line *l, struct err *e)
{
	if (make_merged(m, e) || add_piece(&m->line, l->to - l->from, e))
		return -1;
	for (int i = 0; i < l->n; i++)
		data_ledger_chain(&m->line.replicas[i].digest, &l->replicas[i].digest);
	m->line.to = m->line.whole = l->to;
	return 0;
}

static int add_steps(struct ledger_merger *m, struct ledger_line *l, const char *line, size_t n,
		     struct buf *out, struct err *e)
{
	enum side side = side_of(m, l);
	m->stepped |= l->generation == m->generation;
	if (l->generation != m->generation || m->closed || !tiles(l))
		return write_open(m, out, e) || write_text(line, n, out, e) ? -1 : 0;
	if (continues(m, l, side))
		return take_in(m, l, e);
	if (write_open(m, out, e))
		return -1;
	m->line = *l;
	*l = (struct ledger_line){ 0 };
	m->side = side;
	m->open = true;
	buf_clear(&m->text);
	buf_add(&m->text, line, n);
	return buf_failed(&m->text) ? err_set(e, ERR_NOMEM, "no memory to merge a ledger") : 0;
}

/* An audit must find the positions where these lines end, so a generation whose skips are not known
 * before its steps keeps its lines. */
static void add_skip(struct ledger_merger *m, const struct ledger_line *l)
{
	if (l->generation != m->generation)
		return;
	if (m->stepped || ranges_add(&m->skips, l->first, l->count, NULL))
		m->closed = true;
}

static void add_start(struct ledger_merger *m, const struct ledger_line *l)
{
	m->generation = l->generation;
	m->skips = (struct ranges){ 0 };
	m->stepped = m->closed = false;
}

static void add_place(struct ledger_merger *m, const struct ledger_line *l)
{
	if (l->kind == LEDGER_START)
		add_start(m, l);
	else if (l->kind == LEDGER_SKIP)
		add_skip(m, l);
	else if (l->kind == LEDGER_STEPS)
		m->stepped |= l->generation == m->generation;
}

int data_ledger_merger_precede(struct ledger_merger *m, const char *line, size_t n, struct err *e)
{
	struct ledger_line l;
	(void)e;
	if (!n || data_ledger_parse(line, n, &l, NULL))
		return 0;
	add_place(m, &l);
	data_ledger_line_fini(&l);
	return 0;
}

int data_ledger_merger_add(struct ledger_merger *m, const char *line, size_t n, struct buf *out,
			   struct err *e)
{
	struct ledger_line l;
	if (!n)
		return 0;
	if (data_ledger_parse(line, n, &l, NULL))
		return write_open(m, out, e) || write_text(line, n, out, e) ? -1 : 0;
	int rc = 0;
	if (l.kind == LEDGER_STEPS) {
		rc = add_steps(m, &l, line, n, out, e);
	} else if (l.kind != LEDGER_HEAD) {
		rc = write_open(m, out, e) || write_text(line, n, out, e) ? -1 : 0;
		m->seen += l.kind == LEDGER_START;
		add_place(m, &l);
	}
	data_ledger_line_fini(&l);
	return rc;
}

int data_ledger_merger_end(struct ledger_merger *m, struct buf *out, struct err *e)
{
	return write_open(m, out, e);
}
