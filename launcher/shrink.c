#include "launcher/shrink.h"

#include "base/buf.h"
#include "plan/layout_text.h"
#include "plan/spec/speeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool launcher_shrink_names_devices(const struct job *job)
{
	return speeds_devices(job) > 0;
}

void launcher_shrink_describe(const struct deployment *d, struct shrink_candidate *out)
{
	struct buf text = BUF_INIT;
	plan_print_degrees(&d->plan.layout, " × ", &text);
	snprintf(out->text, sizeof out->text, "%.150s on %d of %d devices", buf_str(&text),
		 d->plan.world, topo_cluster_devices(&d->cluster));
	out->possible = true;
	out->step_s = d->plan.time.total;
	buf_fini(&text);
}

bool launcher_shrink_try(const struct job *job, int64_t dp, uint32_t open, const struct cluster *c,
			 struct shrink_candidate *out)
{
	struct cluster copy;
	struct err e = ERR_BRIEF; /* remedies are for the person who writes the job */
	out->deployment = NULL;
	out->possible = false;
	out->step_s = 0;
	if (topo_cluster_without(c, NULL, 0, &copy, &e) ||
	    launcher_deployment_build(job, dp, open, &copy, &out->deployment, &e)) {
		snprintf(out->text, sizeof out->text, "%.*s", (int)strcspn(e.text, ";"), e.text);
		return false;
	}
	launcher_shrink_describe(out->deployment, out);
	return true;
}

/* As launcher_shrink_try, without the speeds that the planner has chosen for an earlier layout. */
static bool try_afresh(const struct shrink_request *r, const struct job *job, int64_t dp,
		       uint32_t open, struct shrink_candidate *out)
{
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	if (!mine) {
		*out = (struct shrink_candidate){ .way = out->way, .text = "no memory" };
		return false;
	}
	*mine = *job;
	if (!launcher_shrink_names_devices(r->asked))
		memset(mine->launch.speeds, 0, sizeof mine->launch.speeds);
	bool possible = launcher_shrink_try(mine, dp, open, r->cluster, out);
	free(mine);
	return possible;
}

/* The highest dp of those to try for which the cluster has enough devices. */
static int64_t highest_dp(const struct shrink_request *r)
{
	if (r->dp_most <= 0)
		return 0;
	struct layout one = layout_of(r->job, 1);
	int64_t ep = r->job->parallel.ep;
	int64_t most = topo_cluster_devices(r->cluster) / layout_world(&one);
	return (most < r->dp_most ? most : r->dp_most) / ep * ep;
}

bool launcher_shrink_dp(const struct shrink_request *r, struct shrink_candidate *out)
{
	struct shrink_candidate highest = { .text = "the devices that are left hold no replica" };
	int64_t first = highest_dp(r);
	out->way = highest.way = SHRINK_WAY_DP;
	for (int64_t dp = first; dp > 0 && dp >= r->dp_least; dp -= r->job->parallel.ep) {
		if (try_afresh(r, r->job, dp, 0, out))
			return true;
		if (dp == first)
			highest = *out;
	}
	*out = highest;
	return false;
}

bool launcher_shrink_replan(const struct shrink_request *r, struct shrink_candidate *out)
{
	*out = (struct shrink_candidate){ .way = SHRINK_WAY_REPLAN };
	if (job_has_program(r->job)) {
		snprintf(out->text, sizeof out->text,
			 "muster cannot choose the degrees of a program");
		return false;
	}
	/* If memory is short, recomputation and offloading may help. */
	return try_afresh(r, r->again, 0, r->open | OPEN_LAYOUT, out) ||
	       try_afresh(r, r->again, 0, OPEN_ALL, out);
}

static bool refuse_named_devices(const struct shrink_request *r, enum shrink_way way,
				 struct shrink_candidate *out)
{
	*out = (struct shrink_candidate){ .way = way };
	if (!launcher_shrink_names_devices(r->asked))
		return false;
	snprintf(out->text, sizeof out->text,
		 "[launch] speeds or threads names the device of each rank");
	return true;
}

int launcher_shrink(const struct shrink_request *r, struct shrink_candidate out[SHRINK_WAYS],
		    struct shrink_candidate **fastest)
{
	static const struct {
		enum job_shrink least;
		bool (*examine)(const struct shrink_request *, struct shrink_candidate *);
	} ways[SHRINK_WAYS] = {
		[SHRINK_WAY_DP] = { SHRINK_DP, launcher_shrink_dp },
		[SHRINK_WAY_REPLAN] = { SHRINK_ANY, launcher_shrink_replan },
	};
	struct shrink_candidate *best = NULL;
	int n = 0;
	for (int i = 0; i < SHRINK_WAYS && r->permitted >= ways[i].least; i++) {
		struct shrink_candidate *c = &out[n++], *slower = c;
		if (refuse_named_devices(r, i, c) || !ways[i].examine(r, c))
			continue;
		if (!best || c->step_s < best->step_s) {
			slower = best;
			best = c;
		}
		if (slower) {
			launcher_deployment_free(slower->deployment);
			slower->deployment = NULL;
		}
	}
	*fastest = best;
	return n;
}
