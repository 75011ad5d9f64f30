#include "launcher/supervise/hellos.h"

#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_AGENTS = 256 /* at most, in a line */ };

/* --- lines ---------------------------------------------------------------------------------- */

/* 0: both can be in one line. */
static int compare_places(const struct rank_state *x, const struct rank_state *y)
{
	int c = strcmp(x->host, y->host);
	c = c ? c : strcmp(x->id.boot, y->id.boot);
	return c ? c : (x->id.pid_space > y->id.pid_space) - (x->id.pid_space < y->id.pid_space);
}

static int compare_agents(const void *a, const void *b)
{
	const struct hello_agent *x = a, *y = b;
	int c = compare_places(x->state, y->state);
	return c ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

static void write_line(struct supervisor *s, const struct hello_agent *list, int n, bool kept)
{
	const struct rank_state *first = list->state;
	json_t *agents = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(agents, rundir_agent_json(&(struct rundir_agent){
						      .rank = list[i].rank,
						      .pid = list[i].state->id.pid,
						      .start = list[i].state->id.start }));
	rundir_event_hello(s->o.run, s->generation,
			   &(struct rundir_hello){ .node = first->host,
						   .boot = first->id.boot,
						   .pid_space = first->id.pid_space,
						   .has_kept = kept,
						   .kept = kept,
						   .agents = agents });
	json_decref(agents);
}

void supervise_hellos_write(struct supervisor *s, struct hello_agent *list, int n, bool kept)
{
	qsort(list, (size_t)n, sizeof *list, compare_agents);
	for (int first = 0, end; first < n; first = end) {
		for (end = first + 1; end < n && end - first < LINE_AGENTS &&
				      !compare_places(list[first].state, list[end].state);)
			end++;
		write_line(s, &list[first], end - first, kept);
	}
}

/* --- agents that wait ----------------------------------------------------------------------- */

static void welcome(struct supervisor *s, int rank)
{
	struct rank_state *k = &s->ranks[rank];
	struct err e = ERR_INIT;
	if (k->connection && supervise_send_welcome(s, k->connection, rank, k->host, &e)) {
		struct lost_rank loss = {
			.rank = rank, .how = LOST_PROTOCOL, .code = e.code, .at = supervise_now(s)
		};
		snprintf(loss.text, sizeof loss.text, "cannot send the welcome: %.900s", e.text);
		supervise_handle(s, EV_LOST, &loss, NULL);
	}
}

/* Records and welcomes those of the ranks that wait. */
static void admit(struct supervisor *s, const int *ranks, int n)
{
	struct hello_agent list[LINE_AGENTS];
	uint32_t generation = s->generation;
	for (int from = 0, of; from < n && s->generation == generation; from = of) {
		int found = 0;
		for (of = from; of < n && found < LINE_AGENTS; of++) {
			struct rank_state *k = &s->ranks[ranks[of]];
			if (!k->waits)
				continue;
			k->waits = false;
			s->hellos_waiting.waiting--;
			list[found++] = (struct hello_agent){ ranks[of], k };
		}
		supervise_hellos_write(s, list, found, false);
		for (int i = 0; i < found && s->generation == generation; i++)
			welcome(s, list[i].rank);
	}
}

/* The ranks of a rank's node. */
static const int *node_of(const struct supervisor *s, int rank, int *n)
{
	const int *begin = &s->wiring.begin[s->d->plan.ranks[rank].node];
	*n = begin[1] - begin[0];
	return &s->wiring.ranks[begin[0]];
}

static bool is_complete(const struct supervisor *s, const int *ranks, int n)
{
	int i = 0;
	while (i < n && s->ranks[ranks[i]].hello)
		i++;
	return i == n;
}

void supervise_hellos_add(struct supervisor *s, int rank)
{
	int n;
	const int *ranks = node_of(s, rank, &n);
	s->ranks[rank].waits = true;
	if (!s->hellos_waiting.waiting++)
		s->hellos_waiting.since = supervise_now(s);
	if (is_complete(s, ranks, n))
		admit(s, ranks, n);
}

void supervise_hellos_end(struct supervisor *s)
{
	uint32_t generation = s->generation;
	for (int r = 0; r < s->world && s->hellos_waiting.waiting && s->generation == generation;
	     r++) {
		int n;
		const int *ranks = node_of(s, r, &n);
		if (s->ranks[r].waits)
			admit(s, ranks, n);
	}
}

double supervise_hellos_due(const struct supervisor *s)
{
	return s->hellos_waiting.waiting ? s->hellos_waiting.since + HELLOS_WAIT_S : INFINITY;
}

void supervise_hellos_tick(struct supervisor *s)
{
	if (supervise_now(s) >= supervise_hellos_due(s))
		supervise_hellos_end(s);
}
