/* rank_map: which rank runs on which device of which node, and how fast each is. */
#include "launcher/report/page.h"
#include "launcher/report/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ranks that are drawn; a larger map is cut. */
enum { RANKS = 4096, AXES = 4, STAGES = 6 };

static const char *const axes[AXES] = { "tp", "cp", "dp", "pp" };

struct map {
	struct buf *out;
	const struct report_run *r;
	json_t *ranks, *nodes;
	int field[AXES], node, slot; /* positions in a rank's list; -1: missing */
	int degree[AXES], ep;
};

static int position(json_t *fields, const char *name)
{
	size_t i;
	json_t *v;
	json_array_foreach(fields, i, v)
	{
		if (json_is_string(v) && !strcmp(json_string_value(v), name))
			return (int)i;
	}
	return -1;
}

static int number_at(json_t *rank, int field)
{
	json_int_t v = field < 0 ? -1 : json_integer_value(json_array_get(rank, (size_t)field));
	return v < 0 || v > 1 << 24 ? -1 : (int)v;
}

static bool open_map(struct map *m)
{
	json_t *fields = json_object_get(m->r->plan, "rank_fields"),
	       *layout = json_object_get(m->r->plan, "layout");
	m->ranks = json_object_get(m->r->plan, "ranks");
	m->nodes = json_object_get(m->r->plan, "nodes");
	for (int i = 0; i < AXES; i++) {
		m->field[i] = position(fields, axes[i]);
		m->degree[i] = (int)json_integer_value(json_object_get(layout, axes[i]));
	}
	m->ep = (int)json_integer_value(json_object_get(layout, "ep"));
	m->node = position(fields, "node");
	m->slot = position(fields, "slot");
	return json_array_size(m->ranks) && m->node >= 0;
}

/* The name that the agent gave, otherwise that of the plan. */
static const char *node_name(const struct map *m, size_t rank, int node)
{
	const struct rundir_history *h = &m->r->history;
	if (rank < h->n_seats && h->seats[rank].node && *h->seats[rank].node)
		return h->seats[rank].node;
	const char *name = json_string_value(json_array_get(m->nodes, (size_t)node));
	return name ? name : "?";
}

/* "t0 d1 p2": the coordinates in the degrees above 1; ep divides dp. */
static void put_coordinates(const struct map *m, json_t *rank)
{
	bool first = true;
	for (int i = 0; i < AXES; i++) {
		int at = number_at(rank, m->field[i]);
		if (m->degree[i] <= 1 || at < 0)
			continue;
		buf_printf(m->out, "%s%c%d", first ? "" : " ", *axes[i], at);
		first = false;
		if (i == 2 && m->ep > 1)
			buf_printf(m->out, " e%d", at % m->ep);
	}
}

static void put_rank(const struct map *m, size_t rank, json_t *of)
{
	const struct rundir_seat *s = rank < m->r->history.n_seats ? &m->r->history.seats[rank]
								   : NULL;
	int stage = number_at(of, m->field[3]);
	bool slow = s && s->slow, known = s && isfinite(s->factor) && s->factor > 0;
	buf_printf(m->out, "<li class=\"s%d%s\"><b>%zu</b><small>", stage < 0 ? 0 : stage % STAGES,
		   slow ? " slow" : "", rank);
	put_coordinates(m, of);
	buf_puts(m->out, "</small>");
	if (known)
		buf_printf(m->out, "<em>%s%.2f×</em>", slow ? "slow " : "", s->factor);
	buf_puts(m->out, "</li>");
}

/* A rank in the order of the devices. */
struct seat {
	int node, slot;
	size_t rank;
};

static int by_device(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;
	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static void put_nodes(const struct map *m)
{
	size_t n = json_array_size(m->ranks);
	struct seat *seats = calloc(n, sizeof *seats);
	if (!seats)
		return;
	for (size_t i = 0; i < n; i++) {
		json_t *of = json_array_get(m->ranks, i);
		seats[i] = (struct seat){ number_at(of, m->node), number_at(of, m->slot), i };
	}
	qsort(seats, n, sizeof *seats, by_device);
	for (size_t i = 0; i < n && i < RANKS; i++) {
		if (!i || seats[i].node != seats[i - 1].node) {
			buf_puts(m->out, i ? "</ol></div>\n" : "");
			buf_puts(m->out, "<div class=\"node\"><h4>");
			report_text_cut(m->out, node_name(m, seats[i].rank, seats[i].node), 80);
			buf_puts(m->out, "</h4><ol>");
		}
		put_rank(m, seats[i].rank, json_array_get(m->ranks, seats[i].rank));
	}
	buf_puts(m->out, "</ol></div>\n");
	free(seats);
}

static void put_summary(const struct map *m)
{
	static const char *const names[AXES] = { "tensor (t)", "context (c)", "data (d)",
						 "pipeline (p)" };
	char count[REPORT_WORD];
	buf_printf(m->out, "<p class=\"note\">%s ranks",
		   report_count((int64_t)json_array_size(m->ranks), count));
	for (int i = 0; i < AXES; i++)
		if (m->degree[i] > 1)
			buf_printf(m->out, " · %s %d", names[i], m->degree[i]);
	if (m->ep > 1)
		buf_printf(m->out, " · expert (e) %d", m->ep);
	buf_puts(m->out, ". A shade is a pipeline stage. A factor is the rank's own time per step, "
			 "over that of its peers, where it was measured.");
	if (json_array_size(m->ranks) > RANKS)
		buf_printf(m->out, " Only the first %d ranks are drawn.", RANKS);
	buf_puts(m->out, "</p>\n");
}

void report_rank_map(struct buf *out, const struct report_run *r)
{
	struct map m = { .out = out, .r = r };
	if (!r->plan)
		return;
	report_section_open(out, r, "ranks", "Rank map");
	if (open_map(&m)) {
		put_summary(&m);
		buf_printf(out, "<div class=\"map\" tabindex=\"0\" role=\"group\" "
				"aria-label=\"Rank map\">\n");
		put_nodes(&m);
		buf_puts(out, "</div>\n");
	} else {
		buf_puts(out, "<p class=\"note\">The plan has no rank map.</p>\n");
	}
	report_section_close(out);
}
