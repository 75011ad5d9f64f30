#include "launcher/fit.h"

#include "base/human.h"
#include "launcher/shrink.h"
#include "plan/layout_text.h"
#include "plan/search/config.h"

#include <stdlib.h>

int launcher_spares_count(const struct job *job, const struct cluster *all)
{
	int64_t idle = all->n_nodes - job->slurm.nodes.max;
	if (idle < 0)
		idle = 0;
	return (int)(job->slurm.spares < idle ? job->slurm.spares : idle);
}

int launcher_nodes_first(struct cluster *c, int n, struct err *e)
{
	int out = c->n_nodes - n;
	if (out <= 0)
		return 0;
	struct cluster_slot *gone = calloc((size_t)out, sizeof *gone);
	struct cluster rest;
	if (!gone)
		return err_set(e, ERR_NOMEM, "no memory for a list of %d nodes", out);
	for (int i = 0; i < out; i++)
		gone[i] = (struct cluster_slot){ .node = n + i, .device = -1 };
	int rc = topo_cluster_without(c, gone, out, &rest, e);
	free(gone);
	if (rc)
		return -1;
	topo_cluster_free(c);
	*c = rest;
	return 0;
}

int launcher_spares_keep(const struct job *job, struct cluster *c, json_t **spares, struct err *e)
{
	int n = launcher_spares_count(job, c);
	json_t *list = json_array();
	for (int i = c->n_nodes - n; i < c->n_nodes; i++)
		json_array_append_new(list, json_string(c->nodes[i].name));
	int rc = json_array_size(list) == (size_t)n
			 ? 0
			 : err_set(e, ERR_NOMEM, "no memory for the names of %d spare nodes", n);
	if (!rc)
		rc = launcher_nodes_first(c, c->n_nodes - n, e);
	if (rc)
		json_decref(list);
	else
		*spares = list;
	return rc;
}

void launcher_spares_print(const json_t *spares, struct buf *out)
{
	size_t i, n = json_array_size(spares);
	json_t *name;
	if (!n)
		return;
	buf_printf(out, "%zu spare node%s:", n, human_s((int64_t)n));
	json_array_foreach(spares, i, name) buf_printf(out, " %s", json_string_value(name));
	buf_puts(out, "\n");
}

int launcher_spares_name(const json_t *spares, struct err *e)
{
	struct buf text = BUF_INIT;
	launcher_spares_print(spares, &text);
	if (text.len && e->code == ERR_NOFIT)
		err_prefix(e, "[slurm] spares leaves out %.*s", (int)text.len - 1, text.data);
	buf_fini(&text);
	return -1;
}

/* Whether another layout may run than the one that the job asks for. */
static bool may_change(const struct job *job, bool requeued)
{
	return !launcher_shrink_names_devices(job) &&
	       (requeued || job->slurm.nodes.min < job->slurm.nodes.max);
}

/* Plans the job as it is on a copy of the cluster. */
static int build_as_asked(const struct job *job, const struct cluster *used,
			  struct deployment **out, struct err *e)
{
	struct cluster copy;
	return topo_cluster_without(used, NULL, 0, &copy, e) ||
			       launcher_deployment_build(job, job->parallel.dp, job->open, &copy,
							 out, e)
		       ? -1
		       : 0;
}

/* Builds the fastest layout that the job permits instead of its own; NULL: none fits. */
static struct deployment *build_instead(const struct job *job, const struct cluster *used)
{
	const struct shrink_request request = {
		.job = job,
		/* For a job with open keys the planner has tried every dp. */
		.dp_most = job->open ? 0 : job->parallel.dp - 1,
		.again = job,
		.open = job->open,
		.cluster = used,
		.permitted = job->restart.shrink,
		.asked = job,
	};
	struct shrink_candidate examined[SHRINK_WAYS], *fastest;
	launcher_shrink(&request, examined, &fastest);
	return fastest ? fastest->deployment : NULL;
}

static void print_change(const struct job *job, const struct deployment *d, struct buf *said)
{
	struct search_config c = search_config_of(&d->job, d->plan.layout.dp);
	int nodes = d->cluster.n_nodes;
	buf_printf(said, "%d node%s cannot hold the layout of the job; it runs with ", nodes,
		   human_s(nodes));
	if (job_has_program(job)) {
		plan_print_degrees(&d->plan.layout, " × ", said);
		buf_puts(said, "\n");
		return;
	}
	search_config_print(&c, said);
	buf_printf(said, ", and the global batch stays %lld\n", (long long)job->batch.global);
}

int launcher_fit_build(const struct job *job, struct cluster *used, bool requeued,
		       struct deployment **out, struct buf *said, struct err *e)
{
	struct err why = ERR_INIT;
	int rc = build_as_asked(job, used, out, &why);
	struct deployment *d = NULL;
	bool change = rc && why.code == ERR_NOFIT && may_change(job, requeued);
	if (change)
		d = build_instead(job, used);
	topo_cluster_free(used);
	if (!rc)
		return 0;
	if (!d)
		return err_set(e, why.code, "%s%s", why.text,
			       change && job->restart.shrink == SHRINK_KEEP
				       ? "; [restart] shrink = keep allows no other layout: "
					 "request more nodes, or use shrink = dp or any"
				       : "");
	print_change(job, d, said);
	*out = d;
	return 0;
}
