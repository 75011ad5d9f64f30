#include "launcher/top/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As launcher/supervise/spots.c has them in a small world. */
static const double silent_s = 3, still_s = 30;

static const char *const names[TOP_SORT_COUNT] = {
#define TOP_SORT_NAME(id, name) [TOP_BY_##id] = name,
	TOP_SORTS(TOP_SORT_NAME)
#undef TOP_SORT_NAME
};

const char *top_sort_name(enum top_sort sort)
{
	return names[sort];
}

/* --- what stands out ---------------------------------------------------------------------- */

/* What the supervisor has found about the rank; rank -1: about the node as a whole. */
static bool find_spot(const struct top_facts *f, int rank, const char *node, char *what,
		      size_t size)
{
	size_t i;
	json_t *of;
	json_array_foreach(f->look.state.stand_out, i, of)
	{
		struct rundir_state_spot spot;
		if (rundir_state_spot_read(of, &spot, NULL))
			continue;
		if (spot.has_rank ? spot.rank == rank : rank < 0 && !strcmp(spot.node, node)) {
			snprintf(what, size, "%s", spot.what);
			return true;
		}
	}
	return false;
}

enum top_mark top_rows_mark(const struct top_facts *f, int rank, char *what, size_t size)
{
	const struct top_rank *r = &f->ranks[rank];
	bool trains = f->look.id == RUNDIR_STATE_TRAINING;
	*what = 0;
	if (!r->heard || !f->look.live)
		return TOP_MARK_NONE;
	if (!*r->phase) {
		snprintf(what, size, "not connected");
		if (trains)
			find_spot(f, rank, "", what, size);
		return trains ? TOP_MARK_BAD : TOP_MARK_NONE;
	}
	bool spot = find_spot(f, rank, "", what, size);
	if (r->silent_s > silent_s) {
		snprintf(what, size, "silent %.0f s", r->silent_s);
		return TOP_MARK_BAD;
	}
	if (r->slow && r->peers_s > 0 && r->own_s > r->peers_s)
		snprintf(what, size, "slow %.1f×", r->own_s / r->peers_s);
	else if (!spot && trains && r->still_s > still_s)
		snprintf(what, size, "still %.0f s", r->still_s);
	return *what ? TOP_MARK_WARN : TOP_MARK_NONE;
}

/* --- rows of ranks -------------------------------------------------------------------------- */

static void fill_rank(const struct top_facts *f, int rank, struct top_row *to)
{
	const struct top_rank *r = &f->ranks[rank];
	*to = (struct top_row){
		.rank = rank,
		.node = r->node,
		.place = r->place,
		.phase = r->phase,
		.step = r->step,
		.own_s = r->own_s,
		.wait_s = r->wait_s,
		.peak_bytes = r->peak_bytes,
	};
	to->mark = top_rows_mark(f, rank, to->what, sizeof to->what);
}

/* --- rows of nodes -------------------------------------------------------------------------- */

static int compare_node(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;
	int by = strverscmp(x->node, y->node);
	return by ? by : x->rank - y->rank;
}

/* What stands out about a rank becomes what stands out about its node. They may be the same row. */
static void take_mark(struct top_row *to, const struct top_row *r)
{
	char what[sizeof r->what] = "";
	if (r->mark)
		snprintf(what, sizeof what, "rank %d: %.250s", r->rank, r->what);
	to->mark = r->mark;
	memcpy(to->what, what, sizeof what);
}

static void join(struct top_row *to, const struct top_row *r)
{
	to->ranks++;
	to->step = r->step < to->step ? r->step : to->step;
	to->own_s = fmax(to->own_s, r->own_s); /* fmax() takes the number if one is NAN */
	to->wait_s = fmax(to->wait_s, r->wait_s);
	to->peak_bytes = fmax(to->peak_bytes, r->peak_bytes);
	if (strcmp(to->phase, r->phase))
		to->phase = "several";
	if (r->mark > to->mark)
		take_mark(to, r);
}

/* Begins the row of a node with that of its first rank. */
static void begin(const struct top_facts *f, struct top_row *to, const struct top_row *r)
{
	if (to != r)
		*to = *r;
	to->ranks = 1;
	to->place = "";
	if (!to->mark && f->look.live && find_spot(f, -1, to->node, to->what, sizeof to->what))
		to->mark = TOP_MARK_WARN;
	else
		take_mark(to, to);
}

/* Joins the rows of each node. */
static void join_nodes(const struct top_facts *f, struct top_rows *rows)
{
	int n = 0;
	if (rows->n)
		qsort(rows->of, (size_t)rows->n, sizeof *rows->of, compare_node);
	for (int i = 0; i < rows->n; i++) {
		const struct top_row *r = &rows->of[i];
		if (n && !strcmp(rows->of[n - 1].node, r->node))
			join(&rows->of[n - 1], r);
		else
			begin(f, &rows->of[n++], r);
	}
	rows->n = n;
}

/* --- order ------------------------------------------------------------------------------------ */

/* The greater number comes first, and unknown ones last. */
static int down(double x, double y)
{
	if (isnan(x) || isnan(y))
		return isnan(x) - isnan(y);
	return x < y ? 1 : x > y ? -1 : 0;
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct top_row *x = a, *y = b;
	const struct top_order *o = arg;
	int by = 0;
	switch (o->sort) {
	case TOP_BY_NODE:
		by = strverscmp(x->node, y->node);
		break;
	case TOP_BY_STEP: /* those that are behind come first */
		by = (x->step > y->step) - (x->step < y->step);
		break;
	case TOP_BY_OWN:
		by = down(x->own_s, y->own_s);
		break;
	case TOP_BY_WAIT:
		by = down(x->wait_s, y->wait_s);
		break;
	case TOP_BY_MEMORY:
		by = down(x->peak_bytes, y->peak_bytes);
		break;
	case TOP_BY_MARK:
		by = (int)y->mark - (int)x->mark;
		break;
	default:
		break;
	}
	by = by ? by : x->rank - y->rank;
	return o->reverse ? -by : by;
}

static void note_columns(struct top_rows *rows)
{
	for (int i = 0; i < rows->n; i++) {
		const struct top_row *r = &rows->of[i];
		rows->has_own |= !isnan(r->own_s);
		rows->has_wait |= !isnan(r->wait_s);
		rows->has_memory |= !isnan(r->peak_bytes);
		rows->has_phase |= *r->phase != 0;
	}
}

int top_rows_make(struct top_rows *rows, const struct top_facts *f, const struct top_order *o,
		  struct err *e)
{
	*rows = (struct top_rows){ .of = calloc((size_t)f->world + 1, sizeof *rows->of) };
	if (!rows->of)
		return err_set(e, ERR_NOMEM, "no memory for %d rows", f->world);
	for (int r = 0; r < f->world; r++)
		if (!*o->filter || strcasestr(f->ranks[r].node, o->filter))
			fill_rank(f, r, &rows->of[rows->n++]);
	if (o->nodes)
		join_nodes(f, rows);
	note_columns(rows);
	if (rows->n)
		qsort_r(rows->of, (size_t)rows->n, sizeof *rows->of, compare, (void *)o);
	return 0;
}

void top_rows_free(struct top_rows *rows)
{
	free(rows->of);
	*rows = (struct top_rows){ .n = 0 };
}

int top_rows_find(const struct top_rows *rows, const struct top_facts *f, int rank, bool nodes)
{
	for (int i = 0; i < rows->n; i++)
		if (rows->of[i].rank == rank ||
		    (nodes && rank < f->world && !strcmp(rows->of[i].node, f->ranks[rank].node)))
			return i;
	return -1;
}
