#include "launcher/supervise/policy.h"

#include "base/human.h"
#include "plan/layout_text.h"
#include "plan/spec/speeds.h"

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

static void describe_deployment(const struct deployment *d, struct policy_option *o)
{
	struct buf text = BUF_INIT;
	plan_print_degrees(&d->plan.layout, " × ", &text);
	snprintf(o->text, sizeof o->text, "%.150s on %d of %d devices", buf_str(&text),
		 d->plan.world, topo_cluster_devices(&d->cluster));
	o->step_s = d->plan.time.total;
	o->possible = true;
	buf_fini(&text);
}

/* Plans the job on what is left. True: *out is what would run. */
static bool plan_option(const struct policy_request *r, const struct job *job, int64_t dp,
			uint32_t open, struct policy_option *o, struct deployment **out)
{
	struct cluster left;
	struct err e = ERR_INIT;
	if (supervise_pool_cluster(r->pool, &left, &e) ||
	    launcher_deployment_build(job, dp, open, &left, out, &e)) {
		/* Without the remedy, which is for the person who writes the job. */
		snprintf(o->text, sizeof o->text, "%.*s", (int)strcspn(e.text, ";"), e.text);
		return false;
	}
	describe_deployment(*out, o);
	return true;
}

/* The job's dp may be 0, for as many as the devices allow, so that of the plan counts. */
static bool plan_same_layout(const struct policy_request *r, const struct deployment *like,
			     struct policy_option *o, struct deployment **out)
{
	return plan_option(r, &like->job, like->plan.layout.dp, 0, o, out);
}

/* The highest dp below `dp` that the devices of the pool may hold. */
static int64_t lower_dp(const struct policy_request *r, const struct deployment *like, int64_t dp)
{
	struct cluster left;
	int replica = like->plan.world / like->plan.layout.dp;
	int64_t ep = like->job.parallel.ep;
	if (supervise_pool_cluster(r->pool, &left, NULL))
		return 0;
	int64_t most = topo_cluster_devices(&left) / replica;
	topo_cluster_free(&left);
	return (most < dp - 1 ? most : dp - 1) / ep * ep;
}

/* The layout of `like` with the highest dp that fits, from `least` on. */
static bool plan_lower_dp(const struct policy_request *r, const struct deployment *like,
			  int64_t least, struct policy_option *o, struct deployment **out)
{
	const struct job *job = &like->job;
	struct policy_option first = *o;
	for (int64_t dp = lower_dp(r, like, like->plan.layout.dp); dp > 0 && dp >= least;
	     dp -= job->parallel.ep) {
		if (plan_option(r, job, dp, 0, o, out))
			return true;
		if (!*first.text)
			first = *o;
	}
	if (!*first.text)
		snprintf(first.text, sizeof first.text,
			 "the devices that are left hold no replica");
	*o = first;
	return false;
}

static bool plan_dp(const struct policy_request *r, struct policy_option *o,
		    struct deployment **out)
{
	return plan_lower_dp(r, r->now, 1, o, out);
}

static bool plan_again(const struct policy_request *r, struct policy_option *o,
		       struct deployment **out)
{
	const struct job *job = &r->first->job;
	/* If memory is short, recomputation and offloading may help. */
	return plan_option(r, job, 0, r->job->open | OPEN_LAYOUT, o, out) ||
	       plan_option(r, job, 0, OPEN_ALL, o, out);
}

/* --- Decisions ---------------------------------------------------------------------- */

static void take_option(struct policy_decision *d, enum recovery how, struct deployment *next)
{
	launcher_deployment_free(d->next);
	d->how = how;
	d->next = next;
}

/* A job that names the devices of its ranks cannot be planned on fewer of them. */
static bool names_devices(const struct job *job)
{
	return speeds_devices(job) > 0;
}

/* Takes the faster one of the layouts that [restart] shrink permits. */
static bool try_shrinking(const struct policy_request *r, struct policy_decision *d)
{
	static const struct {
		enum recovery how;
		enum job_shrink least;
		bool (*plan)(const struct policy_request *, struct policy_option *,
			     struct deployment **);
	} ways[] = {
		{ RECOVERY_DP, SHRINK_DP, plan_dp },
		{ RECOVERY_REPLAN, SHRINK_ANY, plan_again },
	};
	bool found = false;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		struct deployment *next;
		if (r->now->job.restart.shrink < ways[i].least)
			continue;
		struct policy_option *o = add_option(d, ways[i].how);
		if (names_devices(r->job)) {
			snprintf(o->text, sizeof o->text,
				 "[launch] speeds or threads names the device of each rank");
			continue;
		}
		if (!ways[i].plan(r, o, &next))
			continue;
		if (found && d->next->plan.time.total <= o->step_s)
			launcher_deployment_free(next);
		else
			take_option(d, ways[i].how, next);
		found = true;
	}
	return found;
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

void supervise_policy_recover(const struct policy_request *r, struct policy_decision *out)
{
	struct deployment *next;
	*out = (struct policy_decision){ .how = RECOVERY_GIVE_UP };
	if (supervise_pool_covers(r->pool, r->now)) {
		describe_deployment(r->now, add_option(out, RECOVERY_SAME));
		out->how = RECOVERY_SAME;
		return;
	}
	if (plan_same_layout(r, r->now, add_option(out, RECOVERY_SPARE), &next)) {
		take_option(out, RECOVERY_SPARE, next);
		return;
	}
	if (!try_shrinking(r, out) && !try_requeue(r, out))
		try_waiting(r, out);
}

/* Takes `next` if its step is predicted to be faster than that of all before; frees it otherwise. */
static void take_faster(struct policy_decision *d, struct deployment *next, double *fastest)
{
	if (next->plan.time.total >= *fastest) {
		launcher_deployment_free(next);
		return;
	}
	*fastest = next->plan.time.total;
	take_option(d, RECOVERY_GROW, next);
}

/* The layout of the first generation, or, as far as [restart] shrink permits, with a lower dp. */
static bool plan_first_layout(const struct policy_request *r, struct policy_decision *d,
			      struct deployment **out)
{
	struct policy_option *o = add_option(d, RECOVERY_GROW);
	if (plan_same_layout(r, r->first, o, out))
		return true;
	*o = (struct policy_option){ .how = RECOVERY_GROW };
	return r->now->job.restart.shrink != SHRINK_KEEP && !names_devices(r->job) &&
	       plan_lower_dp(r, r->first, r->now->plan.layout.dp + 1, o, out);
}

void supervise_policy_grow(const struct policy_request *r, struct policy_decision *out)
{
	double fastest = r->now->plan.time.total / POLICY_GAIN_MIN;
	struct deployment *next;
	*out = (struct policy_decision){ .how = RECOVERY_SAME };
	if (plan_first_layout(r, out, &next))
		take_faster(out, next, &fastest);
	if (out->how == RECOVERY_SAME && r->now->job.restart.shrink == SHRINK_ANY &&
	    !names_devices(r->job) && plan_again(r, add_option(out, RECOVERY_GROW), &next))
		take_faster(out, next, &fastest);
	if (out->how == RECOVERY_SAME && r->free && r->now->job.restart.regrow == REGROW_REQUEUE)
		try_requeue(r, out);
}

/* --- Texts -------------------------------------------------------------------------- */

/* Among several options of one kind it is the last one that was taken. */
const struct policy_option *supervise_policy_chosen(const struct policy_decision *d)
{
	const struct policy_option *chosen = NULL;
	for (int i = 0; i < d->n; i++)
		if (d->options[i].how == d->how &&
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
