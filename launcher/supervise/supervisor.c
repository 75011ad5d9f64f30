#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double supervise_now(const struct supervisor *s)
{
	return s->o.now();
}

const char *supervise_node(const struct supervisor *s, int rank)
{
	return rank < 0 ? "" : s->d->cluster.nodes[s->d->plan.ranks[rank].node].name;
}

/* A failure needs no report: the closed connection is an event of its own. */
void supervise_send_all(struct supervisor *s, enum msg_type type, json_t *body,
			bool (*to)(const struct rank_state *k))
{
	struct buf packed = BUF_INIT;
	bool ok = !msg_pack(type, s->generation, body, &packed, NULL); /* NULL: {} */
	for (int r = 0; ok && r < s->world; r++)
		if (s->ranks[r].connection && (!to || to(&s->ranks[r])))
			launcher_connection_send_packed(s->ranks[r].connection, &packed, NULL);
	buf_fini(&packed);
	json_decref(body);
}

void supervise_broadcast(struct supervisor *s, enum msg_type type, json_t *body)
{
	supervise_send_all(s, type, body, NULL);
}

void supervise_lose_rank(struct supervisor *s, int rank, enum lost_how how, enum err_code code,
			 const char *text)
{
	struct lost_rank l = { .rank = rank, .how = how, .code = code, .at = supervise_now(s) };
	snprintf(l.text, sizeof l.text, "%s", text);
	supervise_handle(s, EV_LOST, &l, NULL);
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	struct supervisor *s = arg;
	if (rank < 0) {
		supervise_report_refused(s, why->text);
		return;
	}
	if (rank >= s->most) {
		supervise_regroup_note_closed(s, rank - s->most);
		return;
	}
	struct rank_state *k = &s->ranks[rank];
	k->connection = NULL;
	if (!k->finished)
		supervise_lose_rank(s, rank, why->code == ERR_NET ? LOST_CLOSED : LOST_PROTOCOL,
				    why->code == ERR_NET ? ERR_PEER : why->code, why->text);
}

static void on_drained(void *arg, struct connection *c)
{
	struct supervisor *s = arg;
	int rank = launcher_connection_rank(c);
	if (rank < s->world && s->ranks[rank].connection == c)
		supervise_rendezvous_go_on(s, rank);
}

static void on_trouble(void *arg, const struct err *why)
{
	supervise_report_trouble(arg, why->text);
}

const char *supervise_resume(const struct supervisor *s)
{
	return s->restart.best_ckpt >= 0 ? "auto" : s->d->job.checkpoint.resume;
}

static void on_guard(void *arg, const char *node, const char *text)
{
	struct supervisor *s = arg;
	rundir_event_guard(s->o.run, s->generation,
			   &(struct rundir_guard){ .node = node, .text = text });
}

/* A run without a guard is better than no run. */
static void open_guard(struct supervisor *s)
{
	struct err e = ERR_INIT;
	const struct supervise_guard_options g = {
		.loop = s->o.loop,
		.ops = s->o.ops,
		.job = s->o.job,
		.run_dir = rundir_path(s->o.run),
		.address = s->o.address,
		.auth = s->auth,
		.voucher = s->munge.work ? &s->munge : NULL,
		.now = s->o.now,
		.report = on_guard,
		.arg = s,
	};
	if (supervise_guard_open(&g, &s->guard, &e))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", e.text);
}

/* Chosen once for all generations: if credentials are required, an error of munged later does not
 * make a generation run without them. */
static const struct voucher *choose_auth(struct supervisor *s)
{
	struct err warning = ERR_INIT;
	strcpy(s->auth, "secret");
	if (s->o.ops->auth)
		s->o.ops->auth(s->auth, &warning);
	if (*warning.text)
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", warning.text);
	return munge_parse(s->auth, &s->munge, NULL) == 1 ? &s->munge : NULL;
}

static int open_predecessors(struct supervisor *s, struct err *e)
{
	struct err why = ERR_INIT;
	if (supervise_predecessors_open(&s->predecessors, e))
		return -1;
	if (supervise_predecessors_load(s->predecessors, rundir_path(s->o.run), &why))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn",
					 "agents of earlier generations may not be found: %s",
					 why.text);
	return 0;
}

static int max_ranks_per_node(const struct supervise_options *o)
{
	const struct plan *p = &o->first->plan;
	int most = 1;
	for (int i = 0; i < o->machines->n_kinds; i++)
		most = o->machines->kinds[i].devices > most ? o->machines->kinds[i].devices : most;
	for (int r = 0; r < p->world; r++)
		most = p->ranks[r].node_ranks > most ? p->ranks[r].node_ranks : most;
	return most;
}

int supervise_open(const struct supervise_options *o, struct supervisor **out, struct err *e)
{
	struct supervisor *s = calloc(1, sizeof *s);
	int most = launcher_deployment_most_ranks(o->first, o->machines);
	struct rank_state *ranks = calloc((size_t)most, sizeof *ranks);
	struct kept_agent *kept = supervise_regroup_room(most);
	if (!s || !ranks || !kept) {
		err_set(e, ERR_NOMEM, "no memory to supervise %d ranks", most);
		goto free_all;
	}
	s->o = *o;
	s->d = o->first;
	s->ranks = ranks;
	s->regroup.kept = kept;
	s->most = most;
	s->world = o->first->plan.world;
	s->step = s->ckpt_step = s->uploads.left = -1;
	s->opened = s->last_tick = o->now();
	supervise_restart_init(
		&s->restart,
		&(struct restart_limits){ .max_restarts = o->first->job.restart.max_restarts,
					  .max_futile = o->first->job.restart.max_futile,
					  .backoff = o->first->job.restart.backoff,
					  .patience = o->first->job.restart.patience });
	struct connections_options co = {
		.loop = o->loop,
		.listener = o->listener,
		.most = o->limits.strangers + most,
		.most_per_address = o->limits.strangers + max_ranks_per_node(o),
		.patience = o->limits.handshake,
		.voucher = choose_auth(s),
		.message = supervise_message,
		.closed = on_closed,
		.drained = on_drained,
		.trouble = on_trouble,
		.arg = s,
	};
	if (supervise_recovery_open(s, e) || open_predecessors(s, e) ||
	    supervise_rollback_open(s, e) || supervise_program_open(s, e) ||
	    supervise_times_open(s, e) || launcher_connections_open(&co, &s->connections, e))
		goto free_all;
	open_guard(s);
	supervise_exporting_open(s);
	supervise_notices_open(s);
	*out = s;
	return 0;

free_all:
	if (s) {
		supervise_recovery_close(s);
		supervise_predecessors_close(s->predecessors);
		supervise_rollback_close(s);
		supervise_program_close(s);
		supervise_times_close(s);
	}
	free(kept);
	free(ranks);
	free(s);
	return -1;
}

void supervise_start(struct supervisor *s)
{
	supervise_warn_open(s);
	supervise_state_write(s);
	supervise_console_open(s);
	supervise_uploads_look(s);
	supervise_start_first(s);
}

void supervise_tick(struct supervisor *s)
{
	double now = supervise_now(s);
	supervise_note_sleep(s);
	launcher_connections_tick(s->connections, now);
	supervise_hellos_tick(s);
	if ((s->settle_at && now >= s->settle_at) || (s->deadline > 0 && now >= s->deadline))
		supervise_handle(s, EV_TIMEOUT, NULL, NULL);
	if (s->state == SUP_REGROUPING)
		supervise_handle(s, EV_IDLE, NULL, NULL);
	supervise_checks_tick(s);
	supervise_program_watch(s); /* it knows more of a hang than the watchdog */
	supervise_watchdog(s);
	supervise_stragglers_tick(s);
	supervise_links_tick(s);
	supervise_stop_tick(s);
	supervise_chain_tick(s);
	supervise_uploads_tick(s);
	supervise_thinning_tick(s);
	supervise_comment_tick(s);
	supervise_times_tick(s);
	supervise_warn_tick(s);
	supervise_notices_tick(s);
	const char *trouble = rundir_trouble(s->o.run);
	if (trouble)
		supervise_terminal_event(s->o.term, TONE_BAD, "warn", "%s", trouble);
	supervise_guard_tick(s->guard, s->stepped);
	supervise_console_tick(s);
	supervise_state_tick(s);
	supervise_exporting_tick(s);
	s->last_tick = now;
}

/* Ticks of the real loop are not closer to each other, either. */
double supervise_due(const struct supervisor *s)
{
	static const double least_s = 0.05;
	double due = s->last_tick +
		     (s->state == SUP_REGROUPING ? 2 * least_s : SUPERVISE_TICK_MOST);
	if (s->deadline > 0)
		due = fmin(due, s->deadline);
	if (s->settle_at > 0)
		due = fmin(due, s->settle_at);
	due = fmin(due, supervise_hellos_due(s));
	return fmax(due, s->last_tick + least_s);
}

void supervise_adopt(struct supervisor *s, int fd)
{
	launcher_connections_adopt(s->connections, fd, NULL);
}

int supervise_attach(struct supervisor *s, const struct connection_carrier *by,
		     const unsigned char secret[AUTH_SECRET_BYTES], struct connection **out,
		     struct err *e)
{
	struct err why = ERR_INIT;
	if (!launcher_connections_attach(s->connections, by, secret, out, &why))
		return 0;
	supervise_report_refused(s, why.text);
	return err_set(e, why.code, "%s", why.text);
}

void supervise_stop(struct supervisor *s, const char *reason, bool now)
{
	if (!now)
		supervise_stop_ask(s);
	supervise_handle(s, now ? EV_STOP_NOW : EV_STOP, NULL, reason);
}

bool supervise_done(const struct supervisor *s, int *status)
{
	if (s->state != SUP_DONE)
		return false;
	*status = s->status;
	return true;
}

void supervise_close(struct supervisor *s)
{
	if (!s)
		return;
	supervise_verdict_stop(s);
	supervise_stacks_stop(s);
	supervise_recovery_close(s);
	supervise_stragglers_close(s);
	supervise_evidence_close(s);
	supervise_links_close(s);
	supervise_rollback_close(s);
	supervise_stop_close(s);
	supervise_chain_close(s);
	supervise_uploads_close(s);
	supervise_thinning_close(s);
	supervise_comment_close(s);
	supervise_exporting_close(s);
	supervise_times_close(s);
	supervise_guard_close(s->guard);
	supervise_console_close(s);
	launcher_connections_close(s->connections);
	supervise_predecessors_close(s->predecessors);
	explicit_bzero(s->group_secret, sizeof s->group_secret);
	supervise_rendezvous_close(s);
	supervise_wiring_fini(&s->wiring);
	supervise_program_close(s);
	supervise_agents_close(s);
	supervise_notices_close(s);
	free(s->regroup.kept);
	free(s->ranks);
	free(s);
}
