#include "launcher/supervise/exclude.h"

#include "base/human.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Seconds of a step by the plan above which the run stays. */
static double longest_step(const struct supervisor *s, double delay)
{
	double measured = s->step_s, healthy = fmax(measured - delay, 1e-3 * measured),
	       predicted = s->d->plan.time.total;
	return measured > 0 ? predicted * measured / healthy / POLICY_GAIN_MIN : predicted;
}

static void explain_stay(const struct policy_decision *d, double most, char *why, size_t size)
{
	const struct policy_option *best = NULL;
	char step[HUMAN], longest[HUMAN];
	for (int i = 0; i < d->n; i++)
		if (d->options[i].possible && (!best || d->options[i].step_s < best->step_s))
			best = &d->options[i];
	if (best)
		snprintf(why, size,
			 "a step without it is predicted to take %s, and leaving it pays below %s",
			 human_seconds(best->step_s, step), human_seconds(most, longest));
	else
		snprintf(why, size, "the run does not fit on the other nodes: %.200s",
			 d->n ? d->options[d->n - 1].text : "nothing is left");
}

/* Plans without the node. NULL: it stays, and `why` says why. */
static struct deployment *plan_without(struct supervisor *s, int node, double delay, char *why,
				       size_t size, struct policy_decision *d)
{
	struct pool *pool = &s->recovery.pool;
	double most = longest_step(s, delay);
	const struct policy_request request = {
		.job = s->o.job, .first = s->o.first, .now = s->d, .pool = pool
	};
	supervise_pool_leave(pool, node, true);
	supervise_policy_leave(&request, most, d);
	if (!d->next) {
		supervise_pool_leave(pool, node, false);
		explain_stay(d, most, why, size);
	}
	return d->next;
}

/* Why the run does not even try; NULL: it may leave the node. */
static const char *find_obstacle(const struct supervisor *s, int node)
{
	const struct pool *pool = &s->recovery.pool;
	if (s->d->job.health.slow_policy == SLOW_WARN)
		return "[health] slow_policy = warn";
	if (s->state != SUP_TRAINING || s->recovery.growing)
		return "the generation is about to end";
	if (supervise_pool_count(pool) <= supervise_pool_usable(pool, node))
		return "no other node is usable";
	if (pool->nodes[node].was_slow)
		return "the run has left it before, and needed it again";
	if (s->exclude.at > 0 && supervise_now(s) - s->exclude.at < EXCLUDE_REST_S)
		return "the run has just left another slow node, so the cause may not be the node";
	return NULL;
}

static void report(struct supervisor *s, int node, bool left, const char *text)
{
	const char *name = s->o.machines->nodes[node].name;
	char line[500];
	snprintf(line, sizeof line, "%s %s: %.400s", name, left ? "is left" : "stays", text);
	rundir_event_slow_node(
		s->o.run, s->generation,
		&(struct rundir_slow_node){ .node = name, .excluded = left, .text = line });
	supervise_terminal_event(s->o.term, TONE_WARN, "slow node", "%s", line);
}

bool supervise_exclude_consider(struct supervisor *s, int rank, double delay, const char *evidence,
				bool again)
{
	int node = supervise_pool_find(&s->recovery.pool, supervise_node(s, rank));
	struct policy_decision d = { .how = RECOVERY_SAME };
	struct deployment *next = NULL;
	char why[400] = "", did[450] = "";
	if (node < 0)
		return false;
	const char *obstacle = find_obstacle(s, node);
	if (obstacle)
		snprintf(why, sizeof why, "%s", obstacle);
	else
		next = plan_without(s, node, delay, why, sizeof why, &d);
	if (again && !next)
		return false;
	bool asked = s->d->job.health.slow_policy == SLOW_EXCLUDE;
	if (next)
		snprintf(did, sizeof did, "the run went on without it");
	else if (asked)
		snprintf(did, sizeof did, "nothing: %s", why);
	supervise_suspect_note(s, node, SUSPECT_SLOW, evidence, did);
	if (asked)
		report(s, node, next != NULL,
		       next ? "the run writes a checkpoint and goes on without it" : why);
	if (!next)
		return false;
	s->exclude.at = supervise_now(s);
	snprintf(s->exclude.reason, sizeof s->exclude.reason, "node %.100s is slow",
		 s->o.machines->nodes[node].name);
	supervise_recovery_leave(s, &d);
	return true;
}
