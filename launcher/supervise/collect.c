#include "launcher/supervise/collect.h"

#include "base/file.h"
#include "base/human.h"
#include "base/ranges.h"
#include "launcher/supervise/supervisor.h"
#include "plan/spec/job/node_path.h"

#include <stdio.h>
#include <string.h>

static bool stay_on_nodes(const struct supervisor *s)
{
	return job_logs_local(&s->d->job, s->world);
}

/* False: the agent cannot be told. */
static bool tell(struct supervisor *s, int by, int rank, const char *node)
{
	struct err e = ERR_INIT;
	json_t *body = msg_collect_json(&(struct msg_collect){ .rank = rank, .node = node });
	bool told = body &&
		    !launcher_connection_send(s->ranks[by].connection, MSG_COLLECT, body, &e);
	json_decref(body);
	return told;
}

/* In other states the agents leave. */
static bool can_ask(const struct supervisor *s)
{
	return s->state == SUP_STARTING || s->state == SUP_PREPARING || s->state == SUP_TRAINING ||
	       s->state == SUP_STOPPING || s->state == SUP_EXITING;
}

void supervise_collect_begin(struct supervisor *s)
{
	struct err e = ERR_INIT;
	if (job_logs_local(&s->d->job, s->d->plan.world) && rundir_make_logs_id(s->o.run, &e))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn",
					 "%s; the logs of all ranks are in the run folder", e.text);
}

/* --- What consoles ask for ---------------------------------------------------------------------- */

static void end_asked(struct supervisor *s, const struct msg_console_answer *a)
{
	struct collect_state *t = &s->collect;
	t->awaited = t->asked = t->failed = 0;
	for (int r = 0; r < s->world; r++)
		s->ranks[r].log_asked = false;
	supervise_console_tell_all(s, CONSOLE_AWAITS_LOGS, a);
}

/* All ranks have answered. */
static void report_asked(struct supervisor *s)
{
	const struct collect_state *t = &s->collect;
	char text[1300];
	if (t->failed)
		snprintf(text, sizeof text, "%d of %d logs could not be collected: %s", t->failed,
			 t->asked, t->why);
	else
		snprintf(text, sizeof text, "%d log%s collected", t->asked,
			 t->asked == 1 ? " is" : "s are");
	end_asked(s, &(struct msg_console_answer){ .ok = !t->failed, .text = text });
}

static bool is_wanted(const struct supervisor *s, int rank, const struct ranges *ranks,
		      const struct msg_console_ask *m)
{
	const struct rank_state *k = &s->ranks[rank];
	return rank && k->connection && !k->waits && !k->log_shared &&
	       (!m->has_ranks || ranges_count(ranks, rank, rank + 1)) &&
	       (!m->has_node || !strcmp(m->node, supervise_node(s, rank)));
}

/* Tells the agents of these ranks. Returns how many will answer. */
static int tell_wanted(struct supervisor *s, const struct ranges *ranks,
		       const struct msg_console_ask *m)
{
	struct collect_state *t = &s->collect;
	int awaited = 0; /* of this console */
	for (int r = 0; r < s->world; r++) {
		struct rank_state *k = &s->ranks[r];
		if (!is_wanted(s, r, ranks, m))
			continue;
		if (!k->log_asked && tell(s, r, r, supervise_node(s, r))) {
			k->log_asked = true;
			t->awaited++;
			t->asked++;
		}
		awaited += k->log_asked;
	}
	t->generation = s->generation;
	return awaited;
}

void supervise_collect_ask(struct supervisor *s, struct console *k, const struct msg_console_ask *m)
{
	struct ranges ranks = { 0 };
	struct err e = ERR_INIT;
	struct msg_console_answer a = { .ok = true };
	char text[200];
	if (m->has_ranks && ranges_parse(m->ranks, &ranks, &e)) {
		supervise_console_answer(k, &(struct msg_console_answer){ .text = e.text });
		return;
	}
	if (stay_on_nodes(s) && !can_ask(s)) {
		a = (struct msg_console_answer){
			.text = "the logs of these ranks cannot be collected between two "
				"generations; ask again when the run trains"
		};
		supervise_console_answer(k, &a);
		return;
	}
	supervise_collect_check(s);
	int n = stay_on_nodes(s) ? tell_wanted(s, &ranks, m) : 0;
	snprintf(text, sizeof text,
		 n ? "%d log%s collected from the nodes"
		   : "no log of these ranks has to be collected",
		 n, n == 1 ? " is" : "s are");
	a.text = text;
	a.more = n > 0;
	k->awaits = a.more ? CONSOLE_AWAITS_LOGS : k->awaits;
	supervise_console_answer(k, &a);
}

static void note_asked(struct supervisor *s, int by, const struct msg_collected *m)
{
	struct collect_state *t = &s->collect;
	struct rank_state *k = &s->ranks[by];
	k->log_asked = false;
	if (m->has_error && !t->failed++)
		snprintf(t->why, sizeof t->why, "rank %d on %.200s: %.800s", by,
			 supervise_node(s, by), m->error);
	if (--t->awaited == 0)
		report_asked(s);
}

void supervise_collect_check(struct supervisor *s)
{
	const struct collect_state *t = &s->collect;
	if (t->awaited && !(can_ask(s) && t->generation == s->generation))
		end_asked(s, &(struct msg_console_answer){
				     .text = "the generation ended before all logs were collected; "
					     "ask again when the run trains" });
}

/* --- Ranks that were lost ------------------------------------------------------------------------- */

static struct collect_lost *find_lost(struct supervisor *s, const char *node, int rank)
{
	struct collect_state *t = &s->collect;
	for (int i = 0; i < t->n_lost; i++)
		if (t->lost[i].rank == rank && !strcmp(t->lost[i].node, node))
			return &t->lost[i];
	return NULL;
}

static void forget(struct supervisor *s, struct collect_lost *l)
{
	struct collect_state *t = &s->collect;
	size_t after = (size_t)(&t->lost[t->n_lost] - (l + 1));
	memmove(l, l + 1, after * sizeof *l);
	t->n_lost--;
}

/* An agent of that node which can be told: that of the rank, if it lives. -1: there is none. */
static int find_agent(const struct supervisor *s, const struct collect_lost *l)
{
	int found = -1;
	for (int r = 0; r < s->world; r++) {
		const struct rank_state *k = &s->ranks[r];
		if (!k->connection || k->failed || strcmp(supervise_node(s, r), l->node))
			continue;
		if (found < 0 || r == l->rank)
			found = r;
	}
	return found;
}

static void ask_for_lost(struct supervisor *s, const struct collect_lost *l)
{
	int by = find_agent(s, l);
	if (by >= 0)
		tell(s, by, l->rank, l->node);
}

static bool is_shared(const struct supervisor *s, int rank)
{
	char path[RUN_PATH];
	run_path_rank_log(path, rundir_path(s->o.run), supervise_node(s, rank), rank);
	return file_exists(path);
}

void supervise_collect_lost(struct supervisor *s, int rank)
{
	struct collect_state *t = &s->collect;
	if (rank <= 0 || rank >= s->world || !stay_on_nodes(s) || is_shared(s, rank) ||
	    find_lost(s, supervise_node(s, rank), rank))
		return;
	if (t->n_lost == COLLECT_LOST)
		forget(s, t->lost);
	struct collect_lost *l = &t->lost[t->n_lost++];
	*l = (struct collect_lost){ .rank = rank };
	snprintf(l->node, sizeof l->node, "%s", supervise_node(s, rank));
}

void supervise_collect_ready(struct supervisor *s)
{
	for (int i = 0; i < s->collect.n_lost; i++)
		ask_for_lost(s, &s->collect.lost[i]);
}

/* What fails otherwise than because there is no such log is tried again in the next generation. */
static void note_lost(struct supervisor *s, struct collect_lost *l, const struct msg_collected *m)
{
	char text[1300];
	if (m->has_error) {
		snprintf(text, sizeof text, "the log of rank %d, which was lost, %s %.200s: %.900s",
			 l->rank, m->has_gone ? "is not on" : "stays on", l->node, m->error);
		supervise_report_log(s, l->rank < s->world ? l->rank : 0, "warn", text);
	}
	if (!m->has_error || m->has_gone)
		forget(s, l);
}

void supervise_collect_note(struct supervisor *s, int by, const struct msg_collected *m)
{
	struct collect_lost *l = find_lost(s, m->node, m->rank);
	bool own = m->rank == by && !strcmp(m->node, supervise_node(s, by));
	if (own && !m->has_error)
		s->ranks[by].log_shared = true;
	if (l)
		note_lost(s, l, m);
	if (own && s->ranks[by].log_asked)
		note_asked(s, by, m);
}

void supervise_collect_end(struct supervisor *s)
{
	char folder[RUN_PATH];
	for (int i = 0; i < s->collect.n_lost; i++) {
		const struct collect_lost *l = &s->collect.lost[i];
		if (job_logs_folder(&s->d->job, rundir_path(s->o.run), l->node, NULL, folder, NULL))
			continue;
		supervise_terminal_event(
			s->o.term, TONE_WARN, "log",
			"rank %d was lost, and its log is still on %s: %s/%s-%d.log", l->rank,
			l->node, folder, l->node, l->rank);
	}
}
