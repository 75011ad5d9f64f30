#include "launcher/supervise/burn_in_judge.h"

#include "base/messages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With more peers than this, the node itself among them does not change the median. */
enum { PEERS_EXACT = 256, DEVICES_MAX = 1024, FIGURES_MAX = 4096, FIRST_CAP = 64 };

/* clang-format off */
static const struct {
	const char *word, *name, *unit;
	double scale;
	bool less;
	double exponent, harmless;
} whats[] = {
#define ROW(id, word, name, unit, scale, less, exponent, harmless) \
	[id] = { word, name, unit, scale, less, exponent, harmless },
	BURN_IN_FIGURES(ROW)
#undef ROW
};
/* clang-format on */

const char *supervise_burn_in_word(enum burn_in_what what)
{
	return whats[what].word;
}

/* Larger is better. */
static double goodness(enum burn_in_what what, double value)
{
	return !whats[what].less ? value : value > 0 ? 1 / value : HUGE_VAL;
}

static bool is_link(enum burn_in_what what)
{
	return what == BURN_IN_SEND || what == BURN_IN_RECEIVE;
}

/* --- The table ---------------------------------------------------------------------------- */

int supervise_burn_in_table_init(struct burn_in_table *t, int n_nodes, struct err *e)
{
	*t = (struct burn_in_table){ .last = calloc((size_t)n_nodes + 1, sizeof *t->last),
				     .n_nodes = n_nodes };
	return t->last ? 0 : err_set(e, ERR_NOMEM, "no memory to measure %d nodes", n_nodes);
}

void supervise_burn_in_table_fini(struct burn_in_table *t)
{
	free(t->rows);
	free(t->last);
	*t = (struct burn_in_table){ .rows = NULL };
}

int supervise_burn_in_add(struct burn_in_table *t, const struct burn_in_figure *f, struct err *e)
{
	for (int i = t->last[f->node] - 1; i >= 0; i = t->rows[i].before) {
		struct burn_in_figure *old = &t->rows[i];
		if (old->peer != f->peer || old->what != f->what || old->device != f->device)
			continue;
		if (goodness(f->what, f->value) > goodness(f->what, old->value))
			old->value = f->value;
		return 0;
	}
	if (t->n == t->cap) {
		int cap = t->cap ? 2 * t->cap : FIRST_CAP;
		struct burn_in_figure *rows = realloc(t->rows, (size_t)cap * sizeof *rows);
		if (!rows)
			return err_set(e, ERR_NOMEM, "no memory for the figures of the nodes");
		t->rows = rows;
		t->cap = cap;
	}
	t->rows[t->n] = *f;
	t->rows[t->n].before = t->last[f->node] - 1;
	t->last[f->node] = ++t->n;
	return 0;
}

static int find_what(const char *word)
{
	for (int w = 0; w < BURN_IN_COUNT; w++)
		if (!strcmp(whats[w].word, word))
			return w;
	return -1;
}

static bool is_figure(double v)
{
	return v >= 0 && v < 1e24; /* false for NaN, too */
}

static int read_figure(struct burn_in_table *t, int node, int peer, const json_t *json,
		       struct err *e)
{
	struct msg_burn_in_figure m;
	if (msg_burn_in_figure_read(json, &m, e))
		return -1;
	int what = find_what(m.what);
	if (what < 0 || is_link((enum burn_in_what)what) != (peer >= 0) || m.device < 0 ||
	    m.device >= DEVICES_MAX || !is_figure(m.value))
		return err_set(e, ERR_PROTO,
			       "message burn_in_result: the figure \"%.40s\" of device %d is "
			       "unknown, or has an invalid value",
			       m.what, m.device);
	return supervise_burn_in_add(
		t,
		&(struct burn_in_figure){ .node = node,
					  .peer = peer,
					  .what = (enum burn_in_what)what,
					  .device = m.device,
					  .value = m.value,
					  .own = m.has_own && is_figure(m.own) ? m.own : 0 },
		e);
}

int supervise_burn_in_read(struct burn_in_table *t, int node, int peer, const json_t *figures,
			   struct err *e)
{
	if (!json_is_array(figures) || json_array_size(figures) > FIGURES_MAX)
		return err_set(e, ERR_PROTO,
			       "message burn_in_result: figures is no list of at most %d figures",
			       FIGURES_MAX);
	for (size_t i = 0; i < json_array_size(figures); i++)
		if (read_figure(t, node, peer, json_array_get(figures, i), e))
			return -1;
	return 0;
}

/* --- The judgement ------------------------------------------------------------------------ */

void supervise_burn_in_findings_fini(struct burn_in_findings *f)
{
	free(f->of);
	*f = (struct burn_in_findings){ .of = NULL };
}

static int add_finding(struct burn_in_findings *all, const struct burn_in_finding *f, struct err *e)
{
	if (all->n == all->cap) {
		int cap = all->cap ? 2 * all->cap : FIRST_CAP;
		struct burn_in_finding *of = realloc(all->of, (size_t)cap * sizeof *of);
		if (!of)
			return err_set(e, ERR_NOMEM, "no memory to compare the nodes");
		all->of = of;
		all->cap = cap;
	}
	all->of[all->n++] = *f;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The worse one of the two in the middle. 0: there is none. Sorts good[]. */
static double median_of(double *good, int n)
{
	if (n)
		qsort(good, (size_t)n, sizeof *good, by_value);
	return n ? good[(n - 1) / 2] : 0;
}

/* How many times worse a figure is than it may be if `reference` is right; both by goodness(). It
 * is bad above 1. */
static double excess_of(enum burn_in_what what, double good, double reference, double factor)
{
	double harmless = whats[what].harmless;
	if (harmless > 0 && good >= goodness(what, harmless))
		return 0;
	return reference / (fmax(good, 1e-300) * pow(factor, whats[what].exponent));
}

/* The figures of a kind of nodes, by goodness: of a link, only each node's best one. */
struct entry {
	int node;
	int row; /* of the table */
	double good;
};

static int collect(const struct burn_in_table *t, enum burn_in_what what, const int *kinds,
		   int kind, int *at, int n_nodes, struct entry *out)
{
	int n = 0;
	for (int i = 0; i < n_nodes; i++)
		at[i] = -1;
	for (int i = 0; i < t->n; i++) {
		const struct burn_in_figure *f = &t->rows[i];
		double good = goodness(what, f->value);
		if (f->what != what || kinds[f->node] != kind)
			continue;
		int old = is_link(what) ? at[f->node] : -1;
		if (old < 0)
			at[f->node] = old = n++;
		else if (good <= out[old].good)
			continue;
		out[old] = (struct entry){ f->node, i, good };
	}
	return n;
}

struct judging {
	const struct burn_in_table *t;
	const int *kinds;
	int n_nodes;
	double factor;
	struct burn_in_findings *out;
	/* scratch */
	int *at;
	struct entry *entries;
	double *good;
	bool *blamed; /* for its links, by node */
};

static double median_of_peers(struct judging *j, int n, int node)
{
	int peers = 0;
	for (int i = 0; i < n; i++)
		if (j->entries[i].node != node)
			j->good[peers++] = j->entries[i].good;
	return median_of(j->good, peers);
}

static bool has_two_nodes(const struct entry *entries, int n)
{
	for (int i = 1; i < n; i++)
		if (entries[i].node != entries[0].node)
			return true;
	return false;
}

static int judge_kind(struct judging *j, enum burn_in_what what, int kind, struct err *e)
{
	int n = collect(j->t, what, j->kinds, kind, j->at, j->n_nodes, j->entries);
	double all = n > PEERS_EXACT ? median_of_peers(j, n, -1) : 0;
	if (!has_two_nodes(j->entries, n))
		return 0;
	for (int i = 0; i < n; i++) {
		const struct entry *at = &j->entries[i];
		double reference = n > PEERS_EXACT ? all : median_of_peers(j, n, at->node);
		const struct burn_in_finding f = {
			.fault = BURN_IN_PEERS,
			.figure = j->t->rows[at->row],
			.reference = goodness(what, reference),
			.excess = excess_of(what, at->good, reference, j->factor),
		};
		if (f.excess <= 1)
			continue;
		j->blamed[at->node] |= is_link(what);
		if (add_finding(j->out, &f, e))
			return -1;
	}
	return 0;
}

/* Links whose ends are not blamed. One that does not work is always a finding. */
static int judge_links(struct judging *j, enum burn_in_what what, struct err *e)
{
	int n = 0;
	for (int i = 0; i < j->t->n; i++)
		if (j->t->rows[i].what == what)
			j->good[n++] = j->t->rows[i].value;
	double reference = median_of(j->good, n);
	for (int i = 0; i < j->t->n; i++) {
		const struct burn_in_figure *g = &j->t->rows[i];
		if (g->what != what || j->blamed[g->node] || j->blamed[g->peer])
			continue;
		const struct burn_in_finding f = {
			.fault = BURN_IN_LINK,
			.figure = *g,
			.reference = reference,
			.excess = g->value > 0 ? excess_of(what, g->value, reference, j->factor)
					       : HUGE_VAL,
		};
		if (f.excess > 1 && add_finding(j->out, &f, e))
			return -1;
	}
	return 0;
}

static int judge_own(struct judging *j, struct err *e)
{
	for (int i = 0; i < j->t->n; i++) {
		const struct burn_in_figure *g = &j->t->rows[i];
		if (g->own <= 0)
			continue;
		const struct burn_in_finding f = {
			.fault = BURN_IN_OWN,
			.figure = *g,
			.reference = g->own,
			.excess = excess_of(g->what, goodness(g->what, g->value),
					    goodness(g->what, g->own), j->factor),
		};
		if (f.excess > 1 && add_finding(j->out, &f, e))
			return -1;
	}
	return 0;
}

/* The worst one first; otherwise in the order of the nodes. */
static int by_excess(const void *a, const void *b)
{
	const struct burn_in_finding *x = a, *y = b;
	if (x->excess != y->excess)
		return (y->excess > x->excess) - (y->excess < x->excess);
	return (x->figure.node > y->figure.node) - (x->figure.node < y->figure.node);
}

static int judge_all(struct judging *j, struct err *e)
{
	int kinds = 0;
	for (int i = 0; i < j->n_nodes; i++)
		kinds = j->kinds[i] >= kinds ? j->kinds[i] + 1 : kinds;
	for (int w = 0; w < BURN_IN_COUNT; w++)
		for (int k = 0; k < kinds; k++)
			if (judge_kind(j, (enum burn_in_what)w, k, e))
				return -1;
	return judge_links(j, BURN_IN_SEND, e) || judge_links(j, BURN_IN_RECEIVE, e) ||
			       judge_own(j, e)
		       ? -1
		       : 0;
}

int supervise_burn_in_judge(const struct burn_in_table *t, const int *kinds, int n_nodes,
			    double factor, struct burn_in_findings *out, struct err *e)
{
	struct judging j = {
		.t = t,
		.kinds = kinds,
		.n_nodes = n_nodes,
		.factor = factor,
		.out = out,
		.at = calloc((size_t)n_nodes + 1, sizeof *j.at),
		.entries = calloc((size_t)t->n + 1, sizeof *j.entries),
		.good = calloc((size_t)t->n + 1, sizeof *j.good),
		.blamed = calloc((size_t)n_nodes + 1, sizeof *j.blamed),
	};
	out->n = 0;
	int rc = j.at && j.entries && j.good && j.blamed
			 ? judge_all(&j, e)
			 : err_set(e, ERR_NOMEM, "no memory to compare %d nodes", n_nodes);
	if (out->n)
		qsort(out->of, (size_t)out->n, sizeof *out->of, by_excess);
	free(j.at);
	free(j.entries);
	free(j.good);
	free(j.blamed);
	return rc;
}

double supervise_burn_in_median(const struct burn_in_table *t, enum burn_in_what what)
{
	double *good = calloc((size_t)t->n + 1, sizeof *good);
	int n = 0;
	for (int i = 0; good && i < t->n; i++)
		if (t->rows[i].what == what)
			good[n++] = goodness(what, t->rows[i].value);
	double median = good ? median_of(good, n) : 0;
	free(good);
	return n ? goodness(what, median) : 0;
}

/* --- For people --------------------------------------------------------------------------- */

void supervise_burn_in_print(enum burn_in_what what, double value, struct buf *out)
{
	buf_printf(out, "%s %.3g %s", whats[what].name, value / whats[what].scale,
		   whats[what].unit);
}

static void describe_link(const struct burn_in_finding *f, const char *const *names,
			  struct buf *out)
{
	const struct burn_in_figure *g = &f->figure;
	bool back = g->what == BURN_IN_RECEIVE;
	buf_printf(out, "the link from %s to %s ", names[back ? g->peer : g->node],
		   names[back ? g->node : g->peer]);
	if (g->value <= 0)
		buf_puts(out, "does not work");
	else
		buf_printf(out, "is slow: %.3g %s, the median of all links is %.3g",
			   g->value / whats[g->what].scale, whats[g->what].unit,
			   f->reference / whats[g->what].scale);
}

void supervise_burn_in_describe(const struct burn_in_finding *f, const char *const *names,
				struct buf *out)
{
	const struct burn_in_figure *g = &f->figure;
	if (f->fault == BURN_IN_LINK) {
		describe_link(f, names, out);
		return;
	}
	if (f->fault == BURN_IN_OWN)
		buf_printf(out, "%s: ", names[g->node]);
	if (g->device > 0)
		buf_printf(out, "device %d: ", g->device);
	supervise_burn_in_print(g->what, g->value, out);
	buf_printf(out, ", %s is %.3g",
		   f->fault == BURN_IN_OWN ? "its calibration" : "the median of its peers",
		   f->reference / whats[g->what].scale);
}

/* --- Pairs -------------------------------------------------------------------------------- */

/* The first round in which both are free; -1: there is none, or they are partners already. */
static int find_round(const int *a, const int *b, int node)
{
	for (int r = 0; r < BURN_IN_ROUNDS; r++)
		if (a[r] == node)
			return -1;
	for (int r = 0; r < BURN_IN_ROUNDS; r++)
		if (a[r] < 0 && b[r] < 0)
			return r;
	return -1;
}

/* Every second link of the ring comes first, so that neighbours need only two rounds. */
int supervise_burn_in_pairs(int n_nodes, int *partners)
{
	int rounds = 0;
	for (int i = 0; i < n_nodes * BURN_IN_ROUNDS; i++)
		partners[i] = -1;
	for (int distance = 1; distance <= 2 && distance < n_nodes; distance++)
		for (int turn = 0; turn < 2 * n_nodes; turn++) {
			int a = turn % n_nodes, b = (a + distance) % n_nodes;
			if (a / distance % 2 != turn / n_nodes)
				continue;
			int r = find_round(&partners[a * BURN_IN_ROUNDS],
					   &partners[b * BURN_IN_ROUNDS], b);
			if (r < 0)
				continue;
			partners[a * BURN_IN_ROUNDS + r] = b;
			partners[b * BURN_IN_ROUNDS + r] = a;
			rounds = r + 1 > rounds ? r + 1 : rounds;
		}
	return rounds;
}
