#include "launcher/fit.h"

#include "base/human.h"
#include "plan/capacity.h"
#include "plan/layout_text.h"
#include "plan/spec/speeds.h"

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

/* Whether the layout may differ from the job's because the nodes may be fewer. */
static bool may_have_fewer(const struct job *job, bool requeued)
{
	return requeued || job->slurm.nodes.min < job->slurm.nodes.max;
}

static int refuse_keep(const struct cluster *c, const struct layout *l, struct err *e)
{
	struct buf degrees = BUF_INIT;
	plan_print_degrees(l, " × ", &degrees);
	err_set(e, ERR_NOFIT,
		"%s = %d ranks, and the %d node%s of the allocation have %d devices; [restart] "
		"shrink = keep allows no other layout: request more nodes, or use shrink = dp or "
		"any",
		buf_str(&degrees), layout_world(l), c->n_nodes, human_s(c->n_nodes),
		plan_devices(c));
	buf_fini(&degrees);
	return -1;
}

int launcher_fit_job(struct job *job, const struct cluster *c, bool requeued, struct buf *said,
		     struct err *e)
{
	struct layout l =
		layout_of(job, (int)(job->parallel.dp > 0 ? job->parallel.dp : job->parallel.ep));
	/* Degrees that are not fixed adapt by themselves. A list of devices fits one number of
	 * ranks. */
	if (job->open || speeds_devices(job) || !may_have_fewer(job, requeued) ||
	    layout_world(&l) <= plan_devices(c))
		return 0;
	if (job->restart.shrink == SHRINK_KEEP)
		return refuse_keep(c, &l, e);
	struct layout lower = l;
	lower.dp = plan_fill_dp(job, c, &l);
	const char *nodes = c->n_nodes > 1 ? "nodes hold" : "node holds";
	if (layout_world(&lower) <= plan_devices(c)) {
		job->parallel.dp = lower.dp;
		buf_printf(said,
			   "dp = %d instead of %d: %d %s no more; the global batch stays %lld\n",
			   lower.dp, l.dp, c->n_nodes, nodes, (long long)job->batch.global);
	} else if (job->restart.shrink == SHRINK_ANY) {
		job->open = OPEN_TP | OPEN_CP | OPEN_PP | OPEN_DP | OPEN_EP | OPEN_CHUNKS |
			    OPEN_STAGES | OPEN_SCHEDULE | OPEN_SP | OPEN_ZERO_SHARD;
		buf_printf(said,
			   "another layout than the job's: %d %s not one replica of it; the "
			   "global batch stays %lld\n",
			   c->n_nodes, nodes, (long long)job->batch.global);
	}
	return 0;
}
