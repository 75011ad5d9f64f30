#include "launcher/supervise/stacks.h"

#include "base/frame.h"
#include "base/run_paths.h"
#include "launcher/child.h"
#include "launcher/supervise/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An examination has this part of the time; the rest is for its answer. */
static const double part = 0.8;

enum { NOBODY = -2, THIS_PROCESS = -1 };

void supervise_stacks_reset(struct supervisor *s)
{
	supervise_stacks_stop(s);
	s->stacks = (struct stacks_state){ .n = 0 };
}

void supervise_stacks_note_verdict(struct supervisor *s, const struct rundir_verdict *v)
{
	struct stacks_state *k = &s->stacks;
	snprintf(k->finding, sizeof k->finding, "%.15s", v->finding);
	snprintf(k->verdict, sizeof k->verdict, "%.900s", v->text);
	size_t i;
	json_t *rank;
	json_array_foreach(v->ranks, i, rank)
	{
		json_int_t r = json_integer_value(rank);
		if (k->n_blamed < STACKS_BLAMED && json_is_integer(rank) && r >= 0 && r < s->world)
			k->blamed[k->n_blamed++] = (int)r;
	}
}

/* The process to examine: an agent that trains, or the task of one that runs a program. */
static const struct process_id *examined(const struct supervisor *s, int rank)
{
	const struct program_rank *k = s->program.ranks ? &s->program.ranks[rank] : NULL;
	return k && k->task.pid ? &k->task : &s->ranks[rank].id;
}

/* --- Who looks at whom -------------------------------------------------------------------- */

static bool same_host(const struct process_id *a, const struct process_id *b)
{
	return *a->boot && a->pid_space && a->pid_space == b->pid_space &&
	       !strcmp(a->boot, b->boot);
}

/* Its control thread has answered the request for its flight recorder. */
static bool answers(const struct rank_state *k)
{
	return k->connection && k->dumped;
}

static bool is_blamed(const struct supervisor *s, int rank)
{
	bool is = rank == s->cause.rank;
	for (int i = 0; i < s->stacks.n_blamed; i++)
		is |= rank == s->stacks.blamed[i];
	return is;
}

static int choose_looker(const struct supervisor *s, int rank)
{
	const struct process_id *id = &s->ranks[rank].id;
	struct process_id self;
	if (answers(&s->ranks[rank]))
		return rank;
	for (int r = 0; r < s->world; r++) /* a suspect only if there is no other */
		if (answers(&s->ranks[r]) && same_host(&s->ranks[r].id, id) && !is_blamed(s, r))
			return r;
	for (int r = 0; r < s->world; r++)
		if (answers(&s->ranks[r]) && same_host(&s->ranks[r].id, id))
			return r;
	process_id_self(&self);
	return same_host(&self, id) ? THIS_PROCESS : NOBODY;
}

static void add_look(struct supervisor *s, int rank, bool suspect)
{
	struct stacks_state *k = &s->stacks;
	if (rank < 0 || k->n == STACKS_RANKS || !s->ranks[rank].hello)
		return;
	for (int i = 0; i < k->n; i++)
		if (k->looks[i].rank == rank)
			return;
	k->looks[k->n++] = (struct stacks_look){
		.s = s, .rank = rank, .by = choose_looker(s, rank), .suspect = suspect
	};
}

/* A debugger stops its agent, which must be able to answer meanwhile. */
static bool examines_another(const struct stacks_state *k, int rank)
{
	for (int i = 0; i < k->n; i++)
		if (k->looks[i].by == rank && k->looks[i].rank != rank)
			return true;
	return false;
}

/* A rank of the verdict comes before the one that is furthest behind, because it is known that
 * others wait for it. A rank that sends nothing comes before both. */
static void choose_ranks(struct supervisor *s)
{
	struct stacks_state *k = &s->stacks;
	bool quiet = s->cause.rank >= 0 && !answers(&s->ranks[s->cause.rank]);
	if (quiet || !k->n_blamed)
		add_look(s, s->cause.rank, true);
	for (int i = 0; i < k->n_blamed; i++)
		add_look(s, k->blamed[i], true);
	/* Tasks of a program are compared with each other; each is examined by its own agent. */
	int most = s->program.ranks ? STACKS_RANKS : k->n + 1;
	for (int r = 0; r < s->world && k->n < most; r++)
		if (answers(&s->ranks[r]) && !s->ranks[r].finished && !examines_another(k, r))
			add_look(s, r, false);
}

/* --- The examinations --------------------------------------------------------------------- */

static json_t *request_json(const struct supervisor *s, int rank)
{
	const struct process_id *id = examined(s, rank);
	char dir[RUN_PATH], file[RUN_PATH];
	run_path_trace(dir, rundir_path(s->o.run), s->generation);
	run_path_stacks(file, dir, rank);
	return msg_examine_json(&(struct msg_examine){
		.rank = rank,
		.pid = id->pid,
		.start = id->start,
		.pid_space = id->pid_space,
		.boot = id->boot,
		.seconds = part * s->d->job.restart.stacks_timeout,
		.file = file,
	});
}

/* The agents' words are those of agent/stacks/stacks.h. Another one is no word for an event. */
static bool is_word(const char *kind)
{
	return *kind && strlen(kind) < STACKS_WORD &&
	       strspn(kind, "abcdefghijklmnopqrstuvwxyz") == strlen(kind);
}

/* An answer without a text adds nothing to an earlier one. */
static void note_answer(struct stacks_look *look, const struct msg_examined *m)
{
	look->done = m->last;
	if (!*m->text)
		return;
	snprintf(look->kind, sizeof look->kind, "%s", is_word(m->kind) ? m->kind : "unknown");
	snprintf(look->text, sizeof look->text, "%.399s", m->text);
}

static void on_looked(void *arg, int status, const char *output)
{
	struct stacks_look *look = arg;
	struct msg_examined m;
	(void)status; /* the report may not have been written, but there is an answer */
	look->child = NULL;
	for (const char *line = output; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		json_t *o = json_loadb(line, strcspn(line, "\n"), JSON_REJECT_DUPLICATES, NULL);
		if (o && !msg_examined_read(o, &m, NULL))
			note_answer(look, &m);
		json_decref(o);
	}
	look->done = true;
	supervise_handle(look->s, EV_EXAMINED, NULL, NULL);
}

/* This process examines an agent of its own host. */
static void look_here(struct stacks_look *look, json_t *request)
{
	struct supervisor *s = look->s;
	char *word = json_dumps(request, JSON_COMPACT);
	char *argv[] = { (char *)(uintptr_t)s->o.agent, (char[]){ "stacks" }, word, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	struct err e = ERR_INIT;
	if (!word || launcher_child_watch(s->o.loop, &c, on_looked, look, &look->child, &e)) {
		look->child = NULL;
		look->done = true;
	}
	free(word);
}

/* The connection may have been lost while an earlier request was sent to the same agent. */
static int ask_agent(const struct stacks_look *look, json_t *request)
{
	struct connection *c = look->s->ranks[look->by].connection;
	return c ? launcher_connection_send(c, MSG_EXAMINE, request, NULL) : -1;
}

static void start_look(struct stacks_look *look)
{
	json_t *request = look->by == NOBODY ? NULL : request_json(look->s, look->rank);
	if (!request)
		look->done = true;
	else if (look->by == THIS_PROCESS)
		look_here(look, request);
	else if (ask_agent(look, request))
		look->done = true;
	json_decref(request);
}

bool supervise_stacks_start(struct supervisor *s)
{
	struct stacks_state *k = &s->stacks;
	if (s->d->job.restart.stacks_timeout <= 0 ||
	    (s->cause.how != LOST_HUNG && s->cause.how != LOST_SILENT))
		return false;
	k->began = supervise_now(s);
	choose_ranks(s);
	for (int i = 0; i < k->n; i++)
		start_look(&k->looks[i]);
	return k->n > 0;
}

void supervise_stacks_note(struct supervisor *s, int by, const struct msg_examined *m)
{
	for (int i = 0; i < s->stacks.n; i++) {
		struct stacks_look *look = &s->stacks.looks[i];
		if (look->rank == m->rank && look->by == by && !look->done)
			note_answer(look, m);
	}
}

bool supervise_stacks_ready(struct supervisor *s)
{
	bool ready = true;
	for (int i = 0; i < s->stacks.n; i++) {
		const struct stacks_look *look = &s->stacks.looks[i];
		bool lost = look->by >= 0 && !s->ranks[look->by].connection;
		ready &= look->done || lost;
	}
	return ready;
}

void supervise_stacks_stop(struct supervisor *s)
{
	for (int i = 0; i < s->stacks.n; i++) {
		struct stacks_look *look = &s->stacks.looks[i];
		if (!look->child)
			continue;
		launcher_child_signal(look->child, SIGKILL);
		launcher_child_forget(look->child);
		look->child = NULL;
	}
}

/* --- Who hung first ----------------------------------------------------------------------- */

/* Kinds of agent/stacks/stacks.h with which a rank holds up others. */
static bool holds_up(const struct supervisor *s, const struct stacks_look *look)
{
	static const char *const words[] = { "stopped", "kernel",   "call",
					     "gone",    "sleeping", "computing" };
	/* A thread that waits for its device computes on its core. */
	size_t n = sizeof words / sizeof *words - (s->d->job.job.device == DEVICE_CUDA);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(look->kind, words[i]))
			return true;
	return false;
}

/* Ranks wait for each other, or do not call the same operations. */
static bool is_crossed(const struct stacks_state *k)
{
	return !strcmp(k->finding, "deadlock") || !strcmp(k->finding, "mismatch") ||
	       !strcmp(k->finding, "message");
}

/* The task of a program that is elsewhere than the others. NULL: none stands out. */
static const struct stacks_look *find_odd_task(const struct stacks_state *k)
{
	const char *clauses[STACKS_RANKS];
	for (int i = 0; i < k->n; i++)
		clauses[i] = *k->looks[i].text ? k->looks[i].text : NULL;
	int odd = frame_odd(clauses, k->n);
	return odd < 0 ? NULL : &k->looks[odd];
}

/* A rank that sends nothing is the first suspect, and the loss. */
static const struct stacks_look *choose_first(const struct supervisor *s)
{
	const struct stacks_state *k = &s->stacks;
	const struct stacks_look *first = &k->looks[0];
	const struct stacks_look *odd = s->program.ranks && !k->n_blamed ? find_odd_task(k) : NULL;
	if (odd && s->cause.how != LOST_SILENT)
		return odd;
	for (int i = k->n - 1; i >= 0 && s->cause.how != LOST_SILENT; i--)
		if (k->looks[i].suspect && holds_up(s, &k->looks[i]))
			first = &k->looks[i];
	return first;
}

static enum hang_cause find_cause(const struct supervisor *s, const struct stacks_look *first)
{
	if (is_crossed(&s->stacks) && !holds_up(s, first))
		return HANG_COLLECTIVES;
	return !strcmp(first->kind, "stopped")  ? HANG_STOPPED
	       : !strcmp(first->kind, "kernel") ? HANG_KERNEL
						: HANG_UNKNOWN;
}

/* Why nothing is known of the rank's threads. */
static const char *explain_silence(const struct stacks_look *look)
{
	return look->by == NOBODY
		       ? "its agent does not answer, and no other process of muster runs "
			 "on its host to examine it"
		       : "its threads could not be examined in time";
}

static void describe(const struct supervisor *s, const struct stacks_look *first, char *out,
		     size_t size)
{
	const struct stacks_state *k = &s->stacks;
	if (k->cause == HANG_COLLECTIVES)
		snprintf(out, size, "ranks are in different collectives, so that none can go on");
	else
		snprintf(out, size, "%s", *first->text ? first->text : explain_silence(first));
}

static void report_hang(struct supervisor *s, const struct stacks_look *first, const char *clause)
{
	const struct stacks_state *k = &s->stacks;
	const struct rank_state *rank = &s->ranks[first->rank];
	char dir[RUN_PATH], file[RUN_PATH], who[256], text[2000], where[RUN_PATH + 40] = "";
	run_path_trace(dir, rundir_path(s->o.run), s->generation);
	run_path_stacks(file, dir, first->rank);
	bool written = !access(file, R_OK);
	supervise_describe_lost_rank(s, who, sizeof who);
	snprintf(text, sizeof text, "%s, hung first: %s%s%s", who, clause, *k->verdict ? "; " : "",
		 k->verdict);
	rundir_event_hang(s->o.run, s->generation,
			  &(struct rundir_hang){
				  .rank = first->rank,
				  .node = supervise_node(s, first->rank),
				  .step = rank->step,
				  .phase = rank->phase,
				  .kind = k->cause == HANG_COLLECTIVES ? "collectives"
					  : *first->kind               ? first->kind
								       : "unknown",
				  .text = text,
				  .still_s = s->cause.at - rank->moved,
				  .examined_s = supervise_now(s) - k->began,
				  .has_file = written,
				  .file = file,
			  });
	if (written)
		snprintf(where, sizeof where, "; the stacks of its threads are in %s", file);
	supervise_terminal_event(s->o.term, TONE_BAD, "hang", "%s, hung first: %s%s", who, clause,
				 where);
}

void supervise_stacks_finish(struct supervisor *s)
{
	struct stacks_state *k = &s->stacks;
	char clause[STACKS_TEXT + 100], text[sizeof s->cause.text];
	char *guess = strstr(s->cause.text, SUPERVISE_GUESS);
	supervise_stacks_stop(s);
	if (!k->n)
		return;
	const struct stacks_look *first = choose_first(s);
	k->cause = find_cause(s, first);
	describe(s, first, clause, sizeof clause);
	s->cause.rank = first->rank;
	report_hang(s, first, clause);
	if (guess)
		*guess = '\0';
	snprintf(text, sizeof text, "%.400s; %s", s->cause.text, clause);
	snprintf(s->cause.text, sizeof s->cause.text, "%s", text);
	k->n = 0;
}
