#include "launcher/supervise/policy.h"

#include "base/human.h"
#include "launcher/shrink.h"

#include <stdio.h>
#include <string.h>

const char *supervise_recovery_word(enum recovery how)
{
	static const char *const words[RECOVERIES] = {
		[RECOVERY_SAME] = "same",       [RECOVERY_SPARE] = "spare",
		[RECOVERY_DP] = "dp",           [RECOVERY_REPLAN] = "replan",
		[RECOVERY_REQUEUE] = "requeue", [RECOVERY_WAIT] = "wait",
		[RECOVERY_GIVE_UP] = "give up", [RECOVERY_GROW] = "grow",
	};
	return words[how];
}

/* --- Options ------------------------------------------------------------------------ */

static struct policy_option *add_option(struct policy_decision *d, enum recovery how)
{
	struct policy_option *o = &d->options[d->n++];
	*o = (struct policy_option){ .how = how };
	return o;
}

static void note_candidate(const struct shrink_candidate *c, struct policy_option *o)
{
	snprintf(o->text, sizeof o->text, "%s", c->text);
	o->step_s = c->step_s;
	o->possible = c->possible;
}

/* The layout of `like` on what is left. The job's dp may be 0, for as many as the devices allow, so
 * that of the plan counts. True: *out is what would run. */
static bool plan_same_layout(const struct deployment *like, const struct cluster *left,
			     struct policy_option *o, struct deployment **out)
{
	struct shrink_candidate c;
	bool possible = launcher_shrink_try(&like->job, like->plan.layout.dp, 0, left, &c);
	note_candidate(&c, o);
	*out = c.deployment;
	return possible;
}

/* --- Decisions ---------------------------------------------------------------------- */

static void take_option(struct policy_decision *d, enum recovery how, struct deployment *next)
{
	launcher_deployment_free(d->next);
	d->how = how;
	d->next = next;
}

/* The layouts with a lower dp are those of `like`, with at least `least` replicas. */
static struct shrink_request shrink_request_of(const struct policy_request *r,
					       const struct deployment *like, int64_t least,
					       const struct cluster *left)
{
	return (struct shrink_request){ .job = &like->job,
					.dp_most = like->plan.layout.dp - 1,
					.dp_least = least,
					.again = &r->first->job,
					.open = r->job->open,
					.cluster = left,
					.permitted = r->now->job.restart.shrink,
					.asked = r->job };
}

/* Takes the fastest one of the layouts that [restart] shrink permits. */
static bool try_shrinking(const struct policy_request *r, const struct cluster *left,
			  struct policy_decision *d)
{
	static const enum recovery words[SHRINK_WAYS] = {
		[SHRINK_WAY_DP] = RECOVERY_DP, [SHRINK_WAY_REPLAN] = RECOVERY_REPLAN
	};
	const struct shrink_request request = shrink_request_of(r, r->now, 1, left);
	struct shrink_candidate examined[SHRINK_WAYS], *fastest;
	int n = launcher_shrink(&request, examined, &fastest);
	for (int i = 0; i < n; i++)
		note_candidate(&examined[i], add_option(d, words[examined[i].way]));
	if (fastest)
		take_option(d, words[fastest->way], fastest->deployment);
	return fastest;
}

/* Slurm 22.05.8 loses the GPUs of a job if it counts one of the job's nodes as down only after the
 * requeue: the job then starts again without them. */
static bool would_lose_gpus(const struct policy_request *r)
{
	const struct job *job = r->job;
	bool gpus = job->slurm.gpus_per_node > 0 || job->job.device == DEVICE_CUDA;
	bool pending = false; /* Slurm has not noticed the loss of a node */
	for (int i = 0; i < r->pool->machines->n_nodes; i++)
		pending |= r->pool->nodes[i].state == NODE_UNREACHABLE;
	return gpus && pending && r->waited < r->now->job.restart.patience;
}

static bool try_requeue(const struct policy_request *r, struct policy_decision *d)
{
	struct policy_option *o = add_option(d, RECOVERY_REQUEUE);
	bool early = would_lose_gpus(r);
	o->possible = r->can_requeue && r->job->slurm.requeue && !early;
	snprintf(o->text, sizeof o->text, "%s",
		 o->possible              ? "the job begins again in the queue"
		 : !r->job->slurm.requeue ? "[slurm] requeue = no"
		 : r->can_requeue && early
			 ? "once Slurm counts the node as down; before, the job would lose its GPUs"
			 : "this is not a batch job that Slurm requeues");
	if (o->possible)
		take_option(d, RECOVERY_REQUEUE, NULL);
	return o->possible;
}

static bool try_waiting(const struct policy_request *r, struct policy_decision *d)
{
	double patience = r->now->job.restart.patience;
	struct policy_option *o = add_option(d, RECOVERY_WAIT);
	if (!supervise_pool_may_return(r->pool))
		snprintf(o->text, sizeof o->text, "no node is expected to return");
	else if (r->waited >= patience)
		snprintf(o->text, sizeof o->text, "[restart] patience = %g s is over", patience);
	else
		snprintf(o->text, sizeof o->text, "for a node to return, up to %g s more",
			 patience - r->waited);
	o->possible = supervise_pool_may_return(r->pool) && r->waited < patience;
	if (o->possible)
		take_option(d, RECOVERY_WAIT, NULL);
	return o->possible;
}

/* Plans on what is left: the same layout, or a smaller one. */
static bool try_planning(const struct policy_request *r, struct policy_decision *d)
{
	struct policy_option *o = add_option(d, RECOVERY_SPARE);
	struct deployment *next;
	struct cluster left;
	struct err e = ERR_INIT;
	if (supervise_pool_cluster(r->pool, &left, &e)) { /* nothing is left */
		snprintf(o->text, sizeof o->text, "%s", e.text);
		return false;
	}
	bool possible = plan_same_layout(r->now, &left, o, &next);
	if (possible)
		take_option(d, RECOVERY_SPARE, next);
	else
		possible = try_shrinking(r, &left, d);
	topo_cluster_free(&left);
	return possible;
}

void supervise_policy_recover(const struct policy_request *r, struct policy_decision *out)
{
	struct shrink_candidate now;
	*out = (struct policy_decision){ .how = RECOVERY_GIVE_UP };
	if (supervise_pool_covers(r->pool, r->now)) {
		launcher_shrink_describe(r->now, &now);
		note_candidate(&now, add_option(out, RECOVERY_SAME));
		out->how = RECOVERY_SAME;
		return;
	}
	if (!try_planning(r, out) && !try_requeue(r, out))
		try_waiting(r, out);
}

/* Whether a change to `next` pays. Of a program no step is predicted; more ranks finish it earlier. */
static bool is_gain(const struct plan *now, const struct plan *next)
{
	return next->time.total > 0 ? next->time.total < now->time.total / POLICY_GAIN_MIN
				    : next->world > now->world;
}

static void take_gain(const struct policy_request *r, struct policy_decision *d,
		      struct deployment *next)
{
	if (is_gain(&r->now->plan, &next->plan))
		take_option(d, RECOVERY_GROW, next);
	else
		launcher_deployment_free(next);
}

/* The layout of the first generation, or, as far as [restart] shrink permits, with a lower dp. */
static bool plan_first_layout(const struct policy_request *r, const struct shrink_request *shrink,
			      struct policy_option *o, struct deployment **out)
{
	struct shrink_candidate c;
	if (plan_same_layout(r->first, shrink->cluster, o, out))
		return true;
	if (shrink->permitted == SHRINK_KEEP || launcher_shrink_names_devices(r->job))
		return false;
	bool possible = launcher_shrink_dp(shrink, &c);
	note_candidate(&c, o);
	*out = c.deployment;
	return possible;
}

/* Plans again what the first generation was asked to run. */
static bool plan_again(const struct policy_request *r, const struct shrink_request *shrink,
		       struct policy_decision *d, struct deployment **out)
{
	struct shrink_candidate c;
	if (shrink->permitted != SHRINK_ANY || launcher_shrink_names_devices(r->job))
		return false;
	bool possible = launcher_shrink_replan(shrink, &c);
	note_candidate(&c, add_option(d, RECOVERY_GROW));
	*out = c.deployment;
	return possible;
}

static void try_growing(const struct policy_request *r, const struct cluster *all,
			struct policy_decision *d)
{
	const struct shrink_request shrink = shrink_request_of(r, r->first,
							       r->now->plan.layout.dp + 1, all);
	struct deployment *next;
	if (plan_first_layout(r, &shrink, add_option(d, RECOVERY_GROW), &next))
		take_gain(r, d, next);
	if (d->how == RECOVERY_SAME && plan_again(r, &shrink, d, &next))
		take_gain(r, d, next);
}

void supervise_policy_grow(const struct policy_request *r, struct policy_decision *out)
{
	struct cluster all;
	*out = (struct policy_decision){ .how = RECOVERY_SAME };
	if (!supervise_pool_cluster(r->pool, &all, NULL)) {
		try_growing(r, &all, out);
		topo_cluster_free(&all);
	}
	if (out->how == RECOVERY_SAME && r->free && r->now->job.restart.regrow == REGROW_REQUEUE)
		try_requeue(r, out);
}

void supervise_policy_leave(const struct policy_request *r, double step_most,
			    struct policy_decision *out)
{
	*out = (struct policy_decision){ .how = RECOVERY_SAME };
	if (try_planning(r, out) && out->next->plan.time.total > step_most)
		take_option(out, RECOVERY_SAME, NULL);
}

/* --- Texts -------------------------------------------------------------------------- */

/* Among several options of one kind it is the last one that was taken. */
const struct policy_option *supervise_policy_chosen(const struct policy_decision *d)
{
	const struct policy_option *chosen = NULL;
	for (int i = 0; i < d->n; i++)
		if (d->options[i].how == d->how && d->options[i].possible &&
		    (!d->next || d->options[i].step_s == d->next->plan.time.total))
			chosen = &d->options[i];
	return chosen;
}

void supervise_policy_print(const struct policy_option *o, struct buf *out)
{
	char step[HUMAN];
	buf_printf(out, "%s: %s", supervise_recovery_word(o->how), o->text);
	if (o->step_s > 0)
		buf_printf(out, ", %s a step predicted", human_seconds(o->step_s, step));
}

json_t *supervise_policy_json(const struct policy_decision *d)
{
	json_t *list = json_array();
	for (int i = 0; i < d->n; i++) {
		const struct policy_option *o = &d->options[i];
		json_t *row = json_pack("{s:s, s:b, s:s}", "how", supervise_recovery_word(o->how),
					"possible", o->possible, "text", o->text);
		if (row && o->step_s > 0)
			json_object_set_new(row, "step_s", json_real(o->step_s));
		json_array_append_new(list, row);
	}
	return list;
}
