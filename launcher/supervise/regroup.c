#include "launcher/supervise/regroup.h"

#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* srun reports the end of a task late, and its words are in the launch log then. */
static const double words_s = 0.25;

struct kept_agent {
	struct rank_state agent;
	char node[sizeof(((struct cluster_node *)0)->name)];
	int slot;
	int rank; /* that it becomes; -1: none */
};

struct kept_agent *supervise_regroup_room(int most)
{
	return calloc((size_t)most, sizeof(struct kept_agent));
}

/* --- the survivors leave the generation ---------------------------------------------- */

static bool may_regroup(const struct supervisor *s)
{
	const struct regroup_state *r = &s->regroup;
	return s->d->job.restart.warm && s->outcome == OUTCOME_RESTART && s->lost &&
	       s->cause.rank >= 0 && (s->trained || !s->by_pmix) && r->futile < REGROUP_FUTILE;
}

static bool is_trusted(const struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	return k->connection && k->process.launched && rank != s->cause.rank && !k->finished &&
	       !k->exited && !k->failed && !k->helper_lost;
}

void supervise_regroup_exclude(struct supervisor *s, int rank)
{
	struct rank_state *k = &s->ranks[rank];
	k->lives_on = false;
	if (k->connection)
		launcher_connection_drop(k->connection); /* the agent leaves because of that */
	k->connection = NULL;
	supervise_agents_kill_rank(s, rank);
}

static bool lives_on(const struct rank_state *k)
{
	return k->lives_on;
}

bool supervise_regroup_start(struct supervisor *s)
{
	struct regroup_state *r = &s->regroup;
	int kept = 0;
	if (s->restart.progress)
		r->futile = 0;
	bool may = may_regroup(s);
	r->futile = may ? r->futile + 1 : 0;
	r->overdue = false;
	r->distrust &= !s->trained;
	r->distrust |= s->cause.wrong_results || s->cause.code == ERR_NUMERIC ||
		       s->cause.code == ERR_REPLICAS;
	for (int i = 0; i < s->world; i++) {
		s->ranks[i].lives_on = may && is_trusted(s, i);
		kept += s->ranks[i].lives_on;
	}
	if (!kept)
		return false;
	supervise_send_all(s, MSG_REGROUP,
			   msg_regroup_json(&(struct msg_regroup){ .reason = s->cause.text }),
			   lives_on);
	for (int i = 0; i < s->world; i++)
		if (!s->ranks[i].lives_on)
			supervise_regroup_exclude(s, i);
	return true;
}

bool supervise_regroup_note_idle(struct supervisor *s, int rank)
{
	struct rank_state *k = &s->ranks[rank];
	if (s->state != SUP_REGROUPING || !k->lives_on || k->idle)
		return false;
	k->idle = true;
	return true;
}

/* Whether everything that the backend can say of the process's end is known. */
static bool end_is_known(const struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	struct symptom known;
	if (k->exited || !k->process.launched)
		return true;
	if (s->o.ops->kill_agent)
		return false;
	if (rank != s->cause.rank || supervise_now(s) >= s->cause.at + words_s)
		return true;
	supervise_symptoms(s, &known);
	return known.signal || known.status;
}

static bool is_awaited(const struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	return k->lives_on ? !k->idle && k->connection : !end_is_known(s, rank);
}

/* Asked after each answer, so it begins with the rank that it found the last time. */
bool supervise_regroup_ready(struct supervisor *s)
{
	int *first = &s->regroup.awaited;
	for (int i = 0; i < s->world; i++) {
		int rank = (*first + i) % s->world;
		if (is_awaited(s, rank)) {
			*first = rank;
			return false;
		}
	}
	return true;
}

bool supervise_regroup_read_out(struct supervisor *s)
{
	uint32_t generation = s->generation;
	for (int r = 0; r < s->world && s->generation == generation; r++) {
		const struct rank_state *k = &s->ranks[r];
		if (s->state != SUP_REGROUPING)
			break;
		if (k->lives_on && !k->idle && k->connection)
			launcher_connection_read_out(k->connection);
	}
	return s->generation != generation || s->state != SUP_REGROUPING;
}

bool supervise_regroup_give_up(struct supervisor *s)
{
	int left = 0;
	if (s->regroup.overdue) /* a process that was killed does not end */
		return false;
	s->regroup.overdue = true;
	for (int r = 0; r < s->world; r++)
		if (s->ranks[r].lives_on && !s->ranks[r].idle)
			supervise_regroup_exclude(s, r);
		else
			left += s->ranks[r].lives_on;
	return left > 0;
}

/* --- between two generations --------------------------------------------------------- */

void supervise_regroup_keep(struct supervisor *s)
{
	struct regroup_state *r = &s->regroup;
	r->n = 0;
	for (int i = 0; i < s->world; i++) {
		struct rank_state *k = &s->ranks[i];
		if (!k->lives_on || !k->connection || !k->idle)
			continue;
		struct kept_agent *a = &r->kept[r->n];
		*a = (struct kept_agent){ .agent = *k, .slot = s->d->plan.ranks[i].slot };
		snprintf(a->node, sizeof a->node, "%s", supervise_node(s, i));
		launcher_connection_claim(k->connection, s->most + r->n++);
		k->connection = NULL;
		k->process.launched = NULL; /* its end is the kept agent's */
	}
	rundir_event_regrouped(
		s->o.run, s->generation,
		&(struct rundir_regrouped){ .kept = r->n,
					    .since_lost_s = supervise_now(s) - s->cause.at });
}

static void forget_process(struct kept_agent *a)
{
	a->agent.process.launched = NULL;
}

void supervise_regroup_note_exit(struct supervisor *s, const struct launched *l, int started_as)
{
	for (int i = 0; i < s->regroup.n; i++) {
		struct kept_agent *a = &s->regroup.kept[i];
		if (a->agent.process.launched == l && a->agent.process.started_as == started_as)
			forget_process(a);
	}
}

void supervise_regroup_note_end(struct supervisor *s, const struct launched *l)
{
	for (int i = 0; i < s->regroup.n; i++)
		if (s->regroup.kept[i].agent.process.launched == l)
			forget_process(&s->regroup.kept[i]);
}

void supervise_regroup_note_closed(struct supervisor *s, int i)
{
	if (i < s->regroup.n)
		s->regroup.kept[i].agent.connection = NULL;
}

/* --- the next generation -------------------------------------------------------------- */

struct place {
	int node, slot, rank;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	return x->node != y->node ? (x->node < y->node ? -1 : 1)
				  : (x->slot > y->slot) - (x->slot < y->slot);
}

/* The places of all ranks, sorted. NULL: no memory. */
static struct place *list_places(const struct supervisor *s)
{
	struct place *list = calloc((size_t)s->world, sizeof *list);
	for (int r = 0; list && r < s->world; r++)
		list[r] = (struct place){ s->d->plan.ranks[r].node, s->d->plan.ranks[r].slot, r };
	if (list)
		qsort(list, (size_t)s->world, sizeof *list, compare_places);
	return list;
}

/* The number of the node with this name; `near` is tried first. -1: the plan does not have it. */
static int find_node(const struct supervisor *s, const char *name, int near)
{
	const struct cluster *c = &s->d->cluster;
	for (int i = 0; i < c->n_nodes; i++) {
		int node = (near + i) % c->n_nodes;
		if (!strcmp(c->nodes[node].name, name))
			return node;
	}
	return -1;
}

/* Which rank each kept agent becomes; -1: none. */
static void choose_ranks(struct supervisor *s)
{
	struct regroup_state *r = &s->regroup;
	struct place *places = list_places(s);
	int node = 0;
	for (int i = 0; i < r->n; i++) {
		struct kept_agent *a = &r->kept[i];
		int here = find_node(s, a->node, node);
		const struct place key = { here, a->slot, 0 };
		const struct place *at = places && here >= 0 && a->agent.connection &&
							 a->agent.process.launched
						 ? bsearch(&key, places, (size_t)s->world,
							   sizeof *places, compare_places)
						 : NULL;
		a->rank = at ? at->rank : -1;
		node = here >= 0 ? here : node;
	}
	free(places);
}

/* Remembers the agent under its new rank, so that no welcome lists it as a predecessor. */
static void rename_agent(struct supervisor *s, const struct kept_agent *a)
{
	const struct rank_state *k = &a->agent;
	const struct msg_hello as = { .rank = a->rank,
				      .node = k->host,
				      .pid = k->id.pid,
				      .start = k->id.start,
				      .pid_space = k->id.pid_space,
				      .boot = k->id.boot };
	supervise_predecessors_keep(s->predecessors, s->generation, &as);
}

/* Without memory each has a line of its own. */
static void record_agents(struct supervisor *s)
{
	const struct regroup_state *r = &s->regroup;
	struct hello_agent *list = r->n ? calloc((size_t)r->n, sizeof *list) : NULL, one;
	int n = 0;
	for (int i = 0; i < r->n; i++) {
		if (r->kept[i].rank < 0)
			continue;
		one = (struct hello_agent){ r->kept[i].rank, &r->kept[i].agent };
		if (list)
			list[n++] = one;
		else
			supervise_hellos_write(s, &one, 1, true);
	}
	if (n)
		supervise_hellos_write(s, list, n, true);
	free(list);
}

/* The agent becomes its rank. If the welcome cannot be sent, a new agent takes its place. */
static void welcome_agent(struct supervisor *s, const struct kept_agent *a)
{
	const struct rank_state *old = &a->agent;
	struct connection *c = old->connection;
	double now = supervise_now(s);
	if (a->rank < 0 || supervise_send_welcome(s, c, a->rank, old->host, NULL)) {
		launcher_connection_drop(c);
		return;
	}
	launcher_connection_claim(c, a->rank);
	launcher_connection_advance(c, s->generation);
	struct rank_state *k = &s->ranks[a->rank];
	*k = *old;
	k->connection = c;
	k->beat = k->moved = now;
	k->step = -1;
	k->count = 0;
	k->endpoints = 0;
	*k->phase = '\0';
	k->ready = k->dumped = k->blamed_peer = k->lives_on = k->idle = false;
	s->hellos++;
}

void supervise_regroup_place(struct supervisor *s)
{
	struct regroup_state *r = &s->regroup;
	choose_ranks(s);
	s->by_pmix = !s->program.ranks;
	for (int i = 0; i < r->n; i++)
		if (r->kept[i].rank >= 0) {
			s->by_pmix = false;
			rename_agent(s, &r->kept[i]);
		}
	record_agents(s);
	for (int i = 0; i < r->n; i++)
		if (r->kept[i].agent.connection)
			welcome_agent(s, &r->kept[i]);
	r->n = 0;
}
