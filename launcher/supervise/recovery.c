#include "launcher/supervise/recovery.h"

#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int supervise_recovery_open(struct supervisor *s, struct err *e)
{
	struct pool *p = &s->recovery.pool;
	if (supervise_pool_open(p, s->o.machines, s->d->job.restart.exclude_after, e))
		return -1;
	for (int i = 0; s->o.suspected && i < s->o.machines->n_nodes; i++)
		p->nodes[i].suspect = s->o.suspected[i];
	return 0;
}

void supervise_recovery_close(struct supervisor *s)
{
	struct recovery_state *r = &s->recovery;
	supervise_recovery_stop_survey(s);
	supervise_checks_close(s);
	launcher_deployment_free(r->next);
	launcher_deployment_free(r->own);
	supervise_pool_close(&r->pool);
}

/* --- Surveys ------------------------------------------------------------------------ */

static void report_nodes(struct supervisor *s, const struct survey *found)
{
	struct buf text = BUF_INIT;
	int n = supervise_pool_describe(&s->recovery.pool, &text);
	rundir_event_survey(s->o.run, s->generation,
			    &(struct rundir_survey){ .answered = found->answered,
						     .why = found->why,
						     .lost = n,
						     .text = buf_str(&text) });
	if (!found->answered)
		supervise_terminal_event(s->o.term, TONE_WARN, "nodes", "their manager %s: %s",
					 found->partly ? "has answered only in part"
						       : "does not answer",
					 found->why);
	if (n)
		supervise_terminal_event(s->o.term, TONE_WARN, "nodes", "%s", buf_str(&text));
	buf_fini(&text);
}

static void on_surveyed(void *arg, const struct survey *found)
{
	struct supervisor *s = arg;
	struct recovery_state *r = &s->recovery;
	r->surveying = NULL;
	r->known = true;
	r->silent = !found->answered;
	if (found->job_known)
		r->can_requeue = found->can_requeue;
	r->free = found->free;
	supervise_pool_survey(&r->pool, found);
	if (s->state != SUP_TRAINING)
		report_nodes(s, found);
	else /* it looks for nodes that are back */
		supervise_checks_look(s);
	supervise_handle(s, EV_SURVEYED, NULL, NULL);
}

/* After a loss every node is a suspect: several may have died at the same moment. */
bool supervise_recovery_survey(struct supervisor *s, bool all)
{
	struct recovery_state *r = &s->recovery;
	struct err e = ERR_INIT;
	int n = s->o.machines->n_nodes;
	if (!s->o.ops->survey || r->surveying)
		return r->surveying != NULL;
	bool *suspects = malloc((size_t)n * sizeof *suspects);
	if (!suspects)
		return false;
	for (int i = 0; i < n; i++)
		suspects[i] = all || !supervise_pool_usable(&r->pool, i);
	const struct survey_request request = { .cluster = s->o.machines, .suspects = suspects };
	r->known = false;
	int rc = s->o.ops->survey(s->o.loop, &request, on_surveyed, s, &r->surveying, &e);
	free(suspects);
	if (!rc)
		return true;
	r->surveying = NULL;
	supervise_terminal_event(s->o.term, TONE_WARN, "warn",
				 "the state of the nodes is unknown: %s", e.text);
	return false;
}

void supervise_recovery_stop_survey(struct supervisor *s)
{
	struct recovery_state *r = &s->recovery;
	if (r->surveying)
		s->o.ops->survey_stop(r->surveying);
	r->surveying = NULL;
}

enum node_state supervise_recovery_node_state(const struct supervisor *s, int rank)
{
	const struct recovery_state *r = &s->recovery;
	int node = rank < 0 ? -1 : supervise_pool_find(&r->pool, supervise_node(s, rank));
	return node < 0 || !r->known ? NODE_UP : r->pool.nodes[node].state;
}

bool supervise_recovery_node_lost(const struct supervisor *s)
{
	return !s->recovery.surveying && (!supervise_pool_covers(&s->recovery.pool, s->d) ||
					  supervise_agents_on_dead_node(s));
}

/* --- After a loss ------------------------------------------------------------------- */

/* The name of the rank's device; "": it has none. */
static const char *device_of(const struct supervisor *s, int rank)
{
	const struct plan_rank *r = &s->d->plan.ranks[rank];
	const struct node_kind *k = topo_cluster_kind(&s->d->cluster, r->node);
	return k->parts ? k->parts[r->slot].name : "";
}

bool supervise_recovery_blame(struct supervisor *s)
{
	struct recovery_state *r = &s->recovery;
	int rank = s->cause.rank, node = -1;
	struct err e = ERR_INIT;
	if (rank >= 0)
		node = supervise_pool_find(&r->pool, supervise_node(s, rank));
	if (node < 0)
		return false;
	/* Whatever fails on a node that has just come back: the run was well without it. */
	if (s->fault->suspect || r->pool.nodes[node].returned)
		supervise_pool_blame(&r->pool, node, supervise_now(s));
	if (s->cause.code == ERR_DEVICE &&
	    supervise_pool_lose_device(&r->pool, node, device_of(s, rank), &e))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", e.text);
	bool usable = supervise_pool_usable(&r->pool, node);
	if (s->fault->suspect)
		supervise_suspect_note(s, node, s->fault->suspect, s->cause.text,
				       usable ? "" : "the run does not use the node any more");
	return !usable;
}

/* Prints what is done first, then the alternatives. */
static void report_decision(struct supervisor *s, const struct policy_decision *d)
{
	const struct policy_option *chosen = supervise_policy_chosen(d);
	struct buf text = BUF_INIT;
	json_t *options = supervise_policy_json(d);
	if (chosen)
		supervise_policy_print(chosen, &text);
	else
		buf_puts(&text, "the run cannot continue");
	rundir_event_decision(s->o.run, s->generation,
			      &(struct rundir_decision){ .how = supervise_recovery_word(d->how),
							 .text = buf_str(&text),
							 .options = options });
	supervise_terminal_event(s->o.term, TONE_WARN, "decision", "%s", buf_str(&text));
	for (int i = 0; i < d->n; i++) {
		if (&d->options[i] == chosen)
			continue;
		buf_clear(&text);
		supervise_policy_print(&d->options[i], &text);
		supervise_terminal_event(s->o.term, TONE_PLAIN, "instead of", "%s", buf_str(&text));
	}
	json_decref(options);
	buf_fini(&text);
}

/* Makes `next` the current deployment. What was measured under the old plan is not comparable. */
static void adopt(struct supervisor *s, struct deployment *next)
{
	struct recovery_state *r = &s->recovery;
	launcher_deployment_free(r->own);
	s->d = r->own = next;
	r->usable = supervise_pool_count(&r->pool);
	s->world = s->d->plan.world;
	s->contract = (struct contract){ 0 };
	s->measured_s = s->tokens = s->step_s = 0;
	s->measured = 0;
}

/* A job that is requeued again and again is limited as restarts are, unless this start of it has
 * committed a checkpoint: requeues at time limits count, too. */
static bool may_requeue(const struct supervisor *s)
{
	const char *count = getenv("SLURM_RESTART_COUNT");
	long long before = count ? strtoll(count, NULL, 10) : 0;
	return s->recovery.can_requeue && s->o.ops->requeue &&
	       (s->ckpt_step >= 0 || before < s->d->job.restart.max_restarts);
}

/* A program that reports no checkpoints is not asked to stop in order to grow, because nobody knows what
 * it would lose: it grows when it starts again anyway. */
static bool grows_at_a_start(const struct supervisor *s)
{
	return s->program.ranks && s->ckpt_step < 0 && s->d->job.restart.regrow != REGROW_NO &&
	       s->d->plan.world < s->o.first->plan.world;
}

static void decide(struct supervisor *s, struct policy_decision *d)
{
	struct recovery_state *r = &s->recovery;
	const struct policy_request request = {
		.job = s->o.job,
		.first = s->o.first,
		.now = s->d,
		.pool = &r->pool,
		.can_requeue = may_requeue(s),
		.waited = r->waiting_since > 0 ? supervise_now(s) - r->waiting_since : 0,
	};
	supervise_policy_recover(&request, d);
	if (d->how == RECOVERY_SAME && grows_at_a_start(s))
		supervise_policy_grow(&request, d);
}

enum recovery supervise_recovery_decide(struct supervisor *s)
{
	struct recovery_state *r = &s->recovery;
	struct policy_decision d;
	decide(s, &d);
	/* A node that failed often is better than none. */
	if (d.how >= RECOVERY_REQUEUE && supervise_pool_use_again(&r->pool)) {
		decide(s, &d);
	}
	bool again = d.how == RECOVERY_WAIT && r->waiting_since > 0;
	if (d.how != RECOVERY_SAME && !again)
		report_decision(s, &d);
	if (d.how == RECOVERY_GIVE_UP)
		snprintf(s->reason, sizeof s->reason,
			 "the nodes that are left cannot run the job, and %s",
			 r->waiting_since > 0 ? "no other one came back within [restart] patience"
					      : "no other one is expected back");
	if (d.next)
		adopt(s, d.next);
	bool waits = d.how == RECOVERY_WAIT || d.how == RECOVERY_REQUEUE;
	if (!waits)
		r->waiting_since = 0;
	else if (r->waiting_since <= 0)
		r->waiting_since = supervise_now(s);
	return d.how;
}

int supervise_recovery_requeue(struct supervisor *s, struct err *e)
{
	struct buf lost = BUF_INIT;
	int nodes = launcher_deployment_nodes(s->o.first);
	supervise_pool_lost_names(&s->recovery.pool, &lost);
	int rc = s->o.ops->requeue(buf_str(&lost), nodes, nodes + (int)s->o.job->slurm.spares, e);
	buf_fini(&lost);
	return rc;
}

/* --- Growing ------------------------------------------------------------------------ */

void supervise_recovery_look_for_nodes(struct supervisor *s)
{
	const struct plan *now = &s->d->plan, *first = &s->o.first->plan;
	bool shrunk = now->world < first->world ||
		      now->time.total > POLICY_GAIN_MIN * first->time.total;
	double at = supervise_now(s);
	if (!shrunk || s->d->job.restart.regrow == REGROW_NO || s->state != SUP_TRAINING ||
	    at - s->recovery.looked < s->o.limits.look)
		return;
	s->recovery.looked = at;
	supervise_recovery_survey(s, false);
}

bool supervise_recovery_wants_to_grow(struct supervisor *s)
{
	struct recovery_state *r = &s->recovery;
	struct policy_decision d;
	const struct policy_request request = {
		.job = s->o.job,
		.first = s->o.first,
		.now = s->d,
		.pool = &r->pool,
		.can_requeue = may_requeue(s),
		.free = r->refused ? 0 : r->free,
	};
	if (supervise_pool_count(&r->pool) > r->usable && supervise_checks_start(s))
		return false;
	int usable = supervise_pool_count(&r->pool); /* a check may have failed */
	bool more = usable > r->usable || request.free;
	r->usable = usable;
	if (!more)
		return false;
	supervise_policy_grow(&request, &d);
	r->growing = d.how != RECOVERY_SAME;
	if (r->growing) {
		report_decision(s, &d);
		launcher_deployment_free(r->next);
		r->next = d.next;
	}
	return r->growing;
}

void supervise_recovery_leave(struct supervisor *s, struct policy_decision *d)
{
	struct recovery_state *r = &s->recovery;
	report_decision(s, d);
	launcher_deployment_free(r->next);
	r->next = d->next;
	r->growing = true;
}

bool supervise_recovery_grow(struct supervisor *s)
{
	struct recovery_state *r = &s->recovery;
	struct deployment *next = r->next;
	r->growing = false;
	r->next = NULL;
	supervise_restart_go_on(&s->restart);
	if (next)
		adopt(s, next);
	return next != NULL;
}
