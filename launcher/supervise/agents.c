#include "launcher/supervise/agents.h"

#include "launcher/oom.h"
#include "launcher/rundir/traces.h"
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

struct launched {
	struct supervisor *s;
	struct launch *launch;
	struct launched *next;
	/* [most]: by the rank that a process was started as, the rank that it had when it was looked for
	 * last, which is the first guess the next time */
	int *guesses;
	bool *nodes; /* [n_nodes of the machines] it has started processes there */
};

static struct launched *new_launched(struct supervisor *s)
{
	struct launched *l = calloc(1, sizeof *l);
	int *guesses = calloc((size_t)s->most, sizeof *guesses);
	bool *nodes = calloc((size_t)s->o.machines->n_nodes, sizeof *nodes);
	if (!l || !guesses || !nodes) {
		free(l);
		free(guesses);
		free(nodes);
		return NULL;
	}
	*l = (struct launched){ .s = s, .guesses = guesses, .nodes = nodes };
	for (int r = 0; r < s->most; r++)
		guesses[r] = r;
	return l;
}

static void free_launched(struct launched *l)
{
	free(l->guesses);
	free(l->nodes);
	free(l);
}

/* --- ends --------------------------------------------------------------------------- */

static void describe_status(int status, char *out, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(out, size, "killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
	else
		snprintf(out, size, "exited with status %d", WEXITSTATUS(status));
}

static bool is_process_of(const struct supervisor *s, int rank, const struct launched *l,
			  int started_as)
{
	const struct agent_process *p = &s->ranks[rank].process;
	return p->launched == l && p->started_as == started_as;
}

/* The rank whose process was started by this launch as that rank; -1: no rank of the generation. All
 * of 10,000 processes may end together. */
static int find_rank(const struct supervisor *s, const struct launched *l, int started_as)
{
	int *guess = &l->guesses[started_as];
	if (*guess < s->world && is_process_of(s, *guess, l, started_as))
		return *guess;
	for (int r = 0; r < s->world; r++)
		if (is_process_of(s, r, l, started_as))
			return *guess = r;
	return -1;
}

static void on_exited(void *arg, int started_as, int status)
{
	struct launched *l = arg;
	struct supervisor *s = l->s;
	char text[128];
	describe_status(status, text, sizeof text);
	if (started_as < 0) { /* the launcher itself, such as srun; all_gone follows */
		if (status && !(s->lost && s->program.ranks)) /* as its tasks did */
			supervise_terminal_event(s->o.term, TONE_PLAIN, s->o.ops->name, "%s", text);
		return;
	}
	int rank = find_rank(s, l, started_as);
	if (rank < 0) {
		supervise_regroup_note_exit(s, l, started_as);
		return;
	}
	struct rank_state *k = &s->ranks[rank];
	k->exited = true;
	supervise_predecessors_ended(s->predecessors, s->generation, rank, k->host);
	k->status = status;
	if (k->connection)
		launcher_connection_read_out(k->connection);
	if ((s->lost && rank == s->cause.rank) ||
	    (k->finished && status && s->state == SUP_EXITING))
		supervise_report_exit(s, rank);
	if (!k->finished)
		supervise_lose_rank(s, rank, LOST_EXITED, ERR_PEER, text);
}

static void unlink_launch(struct launched *l)
{
	struct launched **at = &l->s->launches;
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
}

/* The launch has ended while others live: its ranks are lost. The first one may already lead to the
 * next generation, in which none of them is kept and the numbers are those of other agents. */
static void lose_ranks(struct supervisor *s, const bool *of)
{
	uint32_t generation = s->generation;
	for (int r = 0; r < s->world; r++)
		s->ranks[r].lives_on &= !of[r];
	for (int r = 0; r < s->world && s->generation == generation; r++)
		if (of[r])
			supervise_lose_rank(s, r, LOST_EXITED, ERR_PEER, "its process has ended");
}

static void on_all_gone(void *arg)
{
	struct launched *l = arg;
	struct supervisor *s = l->s;
	bool *of = calloc((size_t)s->most, sizeof *of); /* ranks that were not seen to end */
	for (int r = 0; r < s->world; r++) {
		struct rank_state *k = &s->ranks[r];
		if (k->process.launched != l)
			continue;
		if (k->connection)
			launcher_connection_read_out(k->connection);
		if (of)
			of[r] = !k->finished && !k->exited;
		k->process.launched = NULL;
	}
	supervise_regroup_note_end(s, l);
	unlink_launch(l);
	s->o.ops->close(l->launch);
	free_launched(l);
	if (!s->launches)
		supervise_handle(s, EV_ALL_GONE, NULL, NULL);
	else if (of)
		lose_ranks(s, of);
	free(of);
}

static void on_noted(void *arg, enum launch_note what, const char *node, const char *text)
{
	struct supervisor *s = ((struct launched *)arg)->s;
	s->pmix_refused |= what == LAUNCH_NOTE_PMIX_REFUSED;
	for (int r = 0; r < s->world && what == LAUNCH_NOTE_HELPER_LOST; r++)
		if (!strcmp(supervise_node(s, r), node)) {
			s->ranks[r].helper_lost = true;
			s->ranks[r].lives_on = false; /* their ends follow, one by one */
		}
	supervise_report_note(s, what, node, text);
}

void supervise_agents_kill(struct supervisor *s, bool node_lost)
{
	for (struct launched *l = s->launches, *next; l; l = next) {
		next = l->next;
		s->o.ops->kill(l->launch, node_lost);
	}
}

void supervise_agents_kill_rank(struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	if (s->o.ops->kill_agent && k->process.launched && !k->exited)
		s->o.ops->kill_agent(k->process.launched->launch, k->process.started_as);
}

uint32_t supervise_launch_of(const struct supervisor *s, int rank)
{
	return rank < 0 ? s->generation : s->ranks[rank].process.generation;
}

void supervise_agents_close(struct supervisor *s)
{
	for (struct launched *l = s->launches, *next; l; l = next) {
		next = l->next;
		free_launched(l);
	}
	s->launches = NULL;
}

bool supervise_agents_on_dead_node(const struct supervisor *s)
{
	for (const struct launched *l = s->launches; l; l = l->next)
		for (int i = 0; i < s->o.machines->n_nodes; i++)
			if (l->nodes[i] && supervise_pool_is_dead(&s->recovery.pool, i))
				return true;
	return false;
}

bool supervise_agents_left(const struct supervisor *s)
{
	return s->launches != NULL;
}

/* --- starts ------------------------------------------------------------------------- */

static void reset_generation(struct supervisor *s)
{
	for (int r = 0; r < s->world; r++)
		s->ranks[r] = (struct rank_state){ .step = -1 };
	s->hellos_waiting = (struct hellos_state){ .waiting = 0 };
	s->hellos = s->readies = s->finishes = s->refusals = 0;
	s->lost = s->stepped = s->gone = s->pmix_refused = s->rollback.bad = s->trained = false;
	s->recovery.known = s->recovery.silent = s->recovery.growing = false;
	s->settle_at = s->stop.stepped = 0;
	s->outcome = OUTCOME_NONE;
	supervise_stragglers_reset(s);
	supervise_warn_reset(s);
	supervise_evidence_reset(s);
	supervise_links_reset(s);
	supervise_stacks_reset(s);
	supervise_rendezvous_reset(s);
	supervise_program_reset(s);
}

/* The ranks that no agent has taken. The caller frees the list. */
static int *find_missing(const struct supervisor *s, int *n)
{
	int *list = calloc((size_t)s->world, sizeof *list);
	*n = 0;
	for (int r = 0; list && r < s->world; r++)
		if (!s->ranks[r].hello)
			list[(*n)++] = r;
	return list;
}

static void note_processes(struct supervisor *s, struct launched *l, const int *ranks, int n)
{
	for (int i = 0, node = 0; i < n; i++) {
		s->ranks[ranks[i]].process = (struct agent_process){
			.launched = l,
			.started_as = ranks[i],
			.generation = s->generation,
			.task = i,
		};
		node = supervise_pool_find_near(&s->recovery.pool, supervise_node(s, ranks[i]),
						node < 0 ? 0 : node);
		if (node >= 0)
			l->nodes[node] = true;
	}
}

static int launch(struct supervisor *s, const char *secret, const int *ranks, int n, struct err *e)
{
	struct launched *l = new_launched(s);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to start %d agents", n);
	const struct launch_request request = {
		.job = &s->d->job,
		.cluster = &s->d->cluster,
		.plan = &s->d->plan,
		.ranks = n < s->world ? ranks : NULL,
		.n_ranks = n,
		.generation = s->generation,
		.address = s->o.address,
		.secret = secret,
		.run_dir = rundir_path(s->o.run),
		.agent = s->o.agent,
		.auth = s->auth,
		.voucher = s->munge.work ? &s->munge : NULL,
	};
	const struct launch_events events = {
		.exited = on_exited, .all_gone = on_all_gone, .arg = l, .noted = on_noted
	};
	note_processes(s, l, ranks, n);
	if (s->o.ops->start(s->o.loop, &request, &events, &l->launch, e)) {
		for (int i = 0; i < n; i++)
			s->ranks[ranks[i]].process.launched = NULL;
		free_launched(l);
		return -1;
	}
	l->next = s->launches;
	s->launches = l;
	return 0;
}

/* The agents that live on get their new places, and the missing ones are started. */
static int start_ranks(struct supervisor *s, const unsigned char *secret, const char *hex,
		       struct err *e)
{
	int n, rc = 0;
	supervise_regroup_place(s);
	launcher_connections_renew(s->connections, secret, s->generation, s->started);
	int *missing = find_missing(s, &n);
	if (!missing)
		return err_set(e, ERR_NOMEM, "no memory to start %d agents", s->world);
	if (rundir_renew(s->o.run, e) || (n && launch(s, hex, missing, n, e)))
		rc = -1;
	free(missing);
	return rc;
}

/* A former `muster run` may have begun a generation whose plan it did not write. */
static uint32_t first_generation(const struct supervisor *s)
{
	uint32_t next = rundir_next_generation(s->o.run),
		 newest = supervise_predecessors_newest(s->predecessors);
	return newest >= next ? newest + 1 : next;
}

int supervise_agents_start(struct supervisor *s, struct err *e)
{
	unsigned char secret[AUTH_SECRET_BYTES];
	char hex[AUTH_SECRET_HEX];
	double lost_at = s->lost ? s->cause.at : 0;
	s->first = s->generation == 0;
	s->generation = s->first ? first_generation(s) : s->generation + 1;
	reset_generation(s);
	supervise_times_generation(s);
	rundir_prune_traces(rundir_path(s->o.run), s->generation);
	s->cause.at = lost_at; /* the event first-step reports the time since then */
	s->started = supervise_now(s);
	if (s->first)
		s->oom_kills = launcher_oom_kills(s->o.root);
	supervise_report_started(s, supervise_resume(s), supervise_restart_start(&s->restart));
	auth_secret_new(secret);
	auth_secret_hex(secret, s->group_secret);
	auth_secret_new(secret); /* a second secret, which travels in the agents' environment */
	auth_secret_hex(secret, hex);
	int rc = supervise_wiring_set(&s->wiring, &s->d->plan, s->d->cluster.n_nodes, e) ||
				 start_ranks(s, secret, hex, e)
			 ? -1
			 : 0;
	explicit_bzero(secret, sizeof secret);
	explicit_bzero(hex, sizeof hex);
	if (rc)
		return -1;
	rundir_event_started(s->o.run, s->generation, NULL);
	supervise_guard_nodes(s->guard, &s->recovery.pool, s->d);
	/* Written while the processes start. They continue if the plan cannot be written. */
	struct err lost = ERR_INIT;
	if (rundir_save_plan(s->o.run, s->generation, s->d->plan_doc, &lost))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", lost.text);
	return 0;
}
