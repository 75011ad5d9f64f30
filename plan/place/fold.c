#include "plan/place/fold.h"

#include <math.h>

/* TRIED_MAX limits the folds that are tried, so that three levels of a large machine take
 * milliseconds. */
enum { TRIED_MAX = 40000, AXES = 4 };

struct fold_search {
	const struct regular_cluster *y;
	const struct layout *l;
	const struct traffic *t;
	const bool *fits;
	struct fold *out;
	int n, most, devices, tried;
	struct fold now;
};

int place_box_ranks(const struct rank_box *f)
{
	return f->tp * f->cp * f->dp * f->pp;
}

static void axes_of(const struct rank_box *f, int at[AXES])
{
	at[0] = f->tp;
	at[1] = f->cp;
	at[2] = f->dp;
	at[3] = f->pp;
}

static void keep_fold(struct fold_search *w)
{
	int at = w->n;
	if (w->n == w->most && w->now.seconds >= w->out[w->n - 1].seconds)
		return;
	w->n += w->n < w->most;
	for (at = at < w->n ? at : w->n - 1;
	     at > 0 && w->now.seconds < w->out[at - 1].seconds * (1 - 1e-9); at--)
		w->out[at] = w->out[at - 1];
	w->out[at] = w->now;
}

static void rate_fold(struct fold_search *w)
{
	struct group_links group_links[GROUP_KINDS];
	place_group_links_nested(w->y, w->l, &w->now.node, w->now.below, group_links);
	w->now.seconds = 0;
	w->tried++;
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		w->now.seconds += (1 - w->t->hidden[kind]) *
				  place_traffic_seconds(w->t, kind, &group_links[kind]);
	keep_fold(w);
}

static int least_prime(int n)
{
	for (int p = 2; p * p <= n; p++)
		if (n % p == 0)
			return p;
	return n;
}

/* Whether a box fits and no degree can be larger in it. fits: NULL if only the room counts. */
static bool is_full(const int rest[AXES], const int part[AXES], int room, const bool *fits)
{
	int64_t all = (int64_t)part[0] * part[1] * part[2] * part[3];
	for (int i = 0; i < AXES; i++) {
		int64_t more = rest[i] > part[i] ? all * least_prime(rest[i] / part[i]) : room + 1;
		if (more <= room && (!fits || fits[more]))
			return false;
	}
	return !fits || fits[all];
}

static void try_level(struct fold_search *w, int at);

static void choose_box(struct fold_search *w, int at, const int have[AXES], const int part[AXES])
{
	struct rank_box f = { have[0] * part[0], have[1] * part[1], have[2] * part[2],
			      have[3] * part[3] };
	if (at < 0)
		w->now.node = f;
	else
		w->now.below[at] = f;
	try_level(w, at + 1);
}

/* Tries all full boxes of `rest` in `room`, those with the largest tp first. So block order is the
 * first one. */
static void try_boxes(struct fold_search *w, int at, int axis, const int have[AXES],
		      const int rest[AXES], int part[AXES], int room)
{
	if (axis == AXES) {
		if (is_full(rest, part, room, at < 0 ? w->fits : NULL))
			choose_box(w, at, have, part);
		return;
	}
	int left = room;
	for (int i = 0; i < axis; i++)
		left /= part[i];
	for (int d = rest[axis] < left ? rest[axis] : left; d >= 1 && w->tried < TRIED_MAX; d--)
		if (rest[axis] % d == 0) {
			part[axis] = d;
			try_boxes(w, at, axis + 1, have, rest, part, room);
		}
}

/* Whether the uplinks of this level or of a level above it limit the bandwidth. */
static bool is_bounded(const struct regular_cluster *y, int at)
{
	for (; at < y->levels; at++)
		if (!isinf(y->level[at].up))
			return true;
	return false;
}

/* Tries only one box: as much of each degree as fits, tp first. */
static void try_first_box(struct fold_search *w, int at, const int have[AXES], const int rest[AXES],
			  int room)
{
	int part[AXES];
	for (int i = 0; i < AXES; i++) {
		part[i] = rest[i] < room ? rest[i] : room;
		while (rest[i] % part[i])
			part[i]--;
		room /= part[i];
	}
	choose_box(w, at, have, part);
}

/* at: -1 is a node, otherwise a level of switches. */
static void try_level(struct fold_search *w, int at)
{
	const int degrees[AXES] = { w->l->tp, w->l->cp, w->l->dp, w->l->pp };
	int have[AXES] = { 1, 1, 1, 1 }, rest[AXES], part[AXES], room = w->devices;
	if (at >= 0)
		axes_of(at ? &w->now.below[at - 1] : &w->now.node, have);
	if (at == w->y->levels) {
		rate_fold(w);
		return;
	}
	for (int i = 0; i < AXES; i++)
		rest[i] = degrees[i] / have[i];
	if (at >= 0) { /* counted in boxes of the level below */
		int each = w->devices / place_box_ranks(&w->now.node),
		    before = at ? w->y->level[at - 1].units * each : 1;
		room = w->y->level[at].units * each / before;
	}
	room = room > 0 ? room : 1;
	if (at >= 0 && !is_bounded(w->y, at))
		try_first_box(w, at, have, rest, room);
	else
		try_boxes(w, at, 0, have, rest, part, room);
}

int place_fold_best(const struct regular_cluster *y, const struct layout *l,
		    const struct traffic *t, int devices, const bool *fits, int most,
		    struct fold *out, int n)
{
	struct fold_search w = { .y = y,
				 .l = l,
				 .t = t,
				 .fits = fits,
				 .out = out,
				 .n = n,
				 .most = most,
				 .devices = devices,
				 .now.levels = y->levels };
	try_level(&w, -1);
	return w.n;
}

/* The box that counts as one unit at level i: a single rank, a node's box, the boxes below
 * switches. */
static void inner_of(const struct fold *f, int i, int at[AXES])
{
	axes_of(i == 0   ? &(struct rank_box){ 1, 1, 1, 1 }
		: i == 1 ? &f->node
			 : &f->below[i - 2],
		at);
}

/* The position is a number of mixed radix: the levels from the top, in each of them pp, dp, cp,
 * tp. */
int place_fold_position(const struct layout *l, const struct fold *f, int rank)
{
	struct coords c = layout_coords(l, rank);
	const int x[AXES] = { c.tp, c.cp, c.dp, c.pp };
	int place = 0, outer[AXES] = { l->tp, l->cp, l->dp, l->pp };
	for (int i = f->levels + 1; i >= 0; i--) {
		int inner[AXES];
		inner_of(f, i, inner);
		for (int axis = AXES - 1; axis >= 0; axis--)
			place = place * (outer[axis] / inner[axis]) +
				x[axis] % outer[axis] / inner[axis];
		for (int axis = 0; axis < AXES; axis++)
			outer[axis] = inner[axis];
	}
	return place;
}
