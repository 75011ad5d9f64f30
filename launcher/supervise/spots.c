/* spots: the ranks and nodes that stand out now, for state.json and for consoles. */
#include "base/human.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Seconds; heartbeat.h adds to them. A rank is named as silent or still long before the run is given up
 * because of it. */
static const double silent_s = 3, still_s = 30, still_steps = 10;

struct spots {
	const struct supervisor *s;
	json_t *list;
};

/* rank: -1: the whole node. */
static void add(struct spots *p, int rank, const char *node, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void add(struct spots *p, int rank, const char *node, const char *fmt, ...)
{
	char text[500];
	va_list ap;
	if (json_array_size(p->list) >= STATE_SPOTS)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	json_array_append_new(
		p->list,
		rundir_state_spot_json(&(struct rundir_state_spot){
			.has_rank = rank >= 0, .rank = rank, .node = node, .what = text }));
}

static void add_lost(struct spots *p)
{
	const struct supervisor *s = p->s;
	if (s->lost && s->cause.rank >= 0 && s->cause.rank < s->world)
		add(p, s->cause.rank, supervise_node(s, s->cause.rank), "lost: %s", s->cause.text);
}

static void add_silent(struct spots *p, int rank, double now)
{
	const struct supervisor *s = p->s;
	const struct rank_state *k = &s->ranks[rank];
	double silent = now - k->beat, still = now - k->moved, late = supervise_heartbeat_late(s);
	if (!k->connection || k->finished)
		return;
	if (silent > silent_s + late)
		add(p, rank, supervise_node(s, rank), "sent nothing for %.0f s", silent);
	else if (s->state == SUP_TRAINING && still > fmax(still_s, still_steps * s->step_s) + late)
		add(p, rank, supervise_node(s, rank), "made no progress for %.0f s (%s)", still,
		    k->phase);
}

static void add_slow(struct spots *p, int rank, double now)
{
	const struct pace *t = &p->s->stragglers.ranks[rank];
	char since[32];
	if (!t->straggler)
		return;
	supervise_terminal_duration(now - t->since, since, sizeof since);
	add(p, rank, supervise_node(p->s, rank),
	    "slow: %.1f times as long per step as %s, for %s%s%s",
	    t->reference > 0 ? t->pace / t->reference : 1, t->alone ? "before" : "its peers", since,
	    *t->reason ? "; the likely cause: " : "", t->reason);
}

/* Defects that the rank's agent sees now. */
static void add_alarms(struct spots *p, int rank)
{
	const struct supervisor *s = p->s;
	const json_t *all = s->evidence.ranks[rank].findings;
	for (size_t i = 0; i < json_array_size(all); i++) {
		struct msg_finding f;
		if (!msg_finding_read(json_array_get(all, i), &f, NULL) && f.alarm)
			add(p, f.node ? -1 : rank, supervise_node(s, rank), "%s", f.text);
	}
}

static void add_links(struct spots *p, int rank)
{
	const struct supervisor *s = p->s;
	char rate[HUMAN], usual[HUMAN];
	for (int i = 0; i < LINKS_MOST; i++) {
		const struct link_state *l = &s->links.links[(size_t)rank * LINKS_MOST + (size_t)i];
		if (l->reported)
			add(p, rank, supervise_node(s, rank),
			    "the link to rank %d on %s (group %s) is slow: %s, the others' median "
			    "is "
			    "%s",
			    l->peer, supervise_node(s, l->peer), l->group,
			    human_count(l->rate, "B/s", rate),
			    human_count(l->reference, "B/s", usual));
	}
}

/* Nodes of the run that earlier runs suspect, or that the run does not use any more. */
static void add_nodes(struct spots *p)
{
	const struct pool *pool = &p->s->recovery.pool;
	for (int i = 0; pool->nodes && i < pool->machines->n_nodes; i++) {
		const struct pool_node *n = &pool->nodes[i];
		const char *name = pool->machines->nodes[i].name;
		if (n->slow || n->excluded || n->unfit)
			add(p, -1, name, "left out: %s",
			    n->slow       ? "a rank on it was slow"
			    : n->excluded ? "it had too many faults"
					  : "it failed its check");
		else if (n->state != NODE_UP)
			add(p, -1, name, "not usable now");
		else if (n->suspect)
			add(p, -1, name, "suspect since earlier runs; muster nodes says why");
	}
}

json_t *supervise_spots_json(const struct supervisor *s)
{
	struct spots p = { s, json_array() };
	double now = supervise_now(s);
	if (!p.list)
		return NULL;
	add_lost(&p);
	for (int r = 0; r < s->world; r++) {
		add_silent(&p, r, now);
		if (s->stragglers.ranks && s->stragglers.world == s->world)
			add_slow(&p, r, now);
		if (s->evidence.ranks && s->evidence.world == s->world)
			add_alarms(&p, r);
		if (s->links.links && s->links.world == s->world)
			add_links(&p, r);
	}
	add_nodes(&p);
	return p.list;
}
