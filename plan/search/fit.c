#include "plan/search/fit.h"

#include "base/human.h"
#include "plan/search/config.h"
#include "plan/search/leaner.h"
#include "plan/search/nearest.h"
#include "plan/search/search.h"
#include "plan/layout_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The part of a GPU's memory that a job's tensors cannot use: the runtime's context and the
 * libraries' workspaces, about half a GiB; NCCL's buffers, which are GPU_NCCL of it where they are
 * not known or less. Besides, a card of "80 GB" has 79.1 to 79.6 GiB by nvidia-smi. */
#define GPU_RUNTIME (2.0 * 1024 * 1024 * 1024)
#define GPU_NCCL    (GPU_RUNTIME / 4)

double search_fit_limit(const struct node_kind *k, int agents)
{
	/* CPU agents share the memory of their node, however many of its slots are used. */
	if (plan_on_cpu(k) && k->memory > 0)
		return k->memory / (agents > 0 ? agents : 1);
	return k->device_memory > 0 && !plan_on_cpu(k)
		       ? fmax(k->device_memory - GPU_RUNTIME, k->device_memory / 2)
		       : k->device_memory;
}

double search_fit_beside(double limit, double library)
{
	return fmax(limit - fmax(library - GPU_NCCL, 0), limit / 2);
}

/* The part of a node's memory that is left to ranks: the system, page cache for data and
 * checkpoints, pinned buffers of NCCL and the drivers have the rest. */
#define HOST_SHARE 0.85

double search_fit_host(const struct node_kind *k, int agents)
{
	return HOST_SHARE * k->memory / (agents > 0 ? agents : 1);
}

static const struct {
	const char *name;
	size_t offset;
} parts[FIT_PARTS] = {
	{ "parameters", offsetof(struct plan_rank, params) },
	{ "gradients", offsetof(struct plan_rank, grads) },
	{ "optimizer state", offsetof(struct plan_rank, optimizer) },
	{ "activations", offsetof(struct plan_rank, activations) },
	{ "buffers", offsetof(struct plan_rank, buffers) },
	{ "a checkpoint's snapshot", offsetof(struct plan_rank, snapshot) },
};

const char *search_fit_part_name(int part)
{
	return parts[part].name;
}

double search_fit_part(const struct plan_rank *r, int part)
{
	return *(const double *)((const char *)r + parts[part].offset);
}

/* Prints the parts that make up most of it, the largest first. */
static void print_parts(const struct plan_rank *r, struct buf *out)
{
	bool done[FIT_PARTS] = { false };
	double said = 0;
	for (int n = 0; n < FIT_PARTS && said < 0.95 * r->total; n++) {
		char text[HUMAN];
		int largest = -1;
		for (int i = 0; i < FIT_PARTS; i++)
			if (!done[i] &&
			    (largest < 0 || search_fit_part(r, i) > search_fit_part(r, largest)))
				largest = i;
		done[largest] = true;
		said += search_fit_part(r, largest);
		buf_printf(out, "%s%s %s", n ? ", " : "", parts[largest].name,
			   human_bytes(search_fit_part(r, largest), text));
	}
}

/* Prints what muster plan --auto finds if the job gives no key of its layout, or that nothing
 * fits. */
static void print_fastest(const struct job *job, const struct cluster *c,
			  const struct search_config *from, struct buf *out)
{
	struct job *mine = malloc(sizeof *mine);
	struct search *found = calloc(1, sizeof *found);
	char time[HUMAN];
	if (mine && found) {
		*mine = *job;
		mine->open = OPEN_ALL;
	}
	if (mine && found && job->parallel.sync != SYNC_SERVER &&
	    !search_run(mine, c, &(struct search_options){ .finalists = SEARCH_FINALISTS }, found,
			NULL)) {
		buf_puts(out, "no nearby degrees fit; muster plan --auto finds ");
		search_config_changes(from, &found->found[0].leaf.config, out);
		buf_printf(out, " (%s per step)", human_seconds(found->found[0].time.total, time));
	} else {
		buf_puts(out, "no degrees fit: use more or larger devices, or a smaller model, "
			      "batch.micro or model.seq");
	}
	free(found);
	free(mine);
}

void search_fit_hint(const struct job *job, const struct cluster *c, const struct layout *asked,
		     struct buf *out)
{
	struct eval_leaf near[NEAREST_MAX];
	struct search_config from = search_config_of(job, asked->dp);
	int n = search_nearest(job, c, asked, near);
	if (!n) {
		print_fastest(job, c, &from, out);
		return;
	}
	buf_printf(out, "nearest that fit%s:", n > 1 ? "" : "s");
	for (int i = 0; i < n; i++) {
		char time[HUMAN];
		buf_puts(out, i ? "; or " : " ");
		search_config_changes(&from, &near[i].config, out);
		buf_printf(out, " (%s per step)", human_seconds(near[i].time.total, time));
	}
}

static int refuse_memory(const struct job *job, const struct cluster *c, const struct plan *p,
			 const struct plan_rank *r, double limit, struct err *e)
{
	char need[HUMAN], has[HUMAN], over[HUMAN];
	struct buf at = BUF_INIT, made = BUF_INIT;
	if (!e)
		return -1;
	plan_print_coords(&p->layout, &r->at, &at);
	print_parts(r, &made);
	if (!e->brief) {
		search_leaner_print(job, c, p, r, &made);
		buf_puts(&made, "; ");
		search_fit_hint(job, c, &p->layout, &made);
	}
	err_set(e, ERR_NOFIT,
		"rank %d (%s) needs %s, %s more than the %s that a device of %s leaves it: %s",
		layout_rank(&p->layout, r->at), buf_str(&at), human_bytes(r->total, need),
		human_bytes(r->total - limit, over), human_bytes(limit, has), c->name,
		buf_str(&made));
	buf_fini(&made);
	buf_fini(&at);
	return -1;
}

static int count_ranks(const struct plan *p, int node)
{
	int n = 0;
	for (int i = 0; i < p->world; i++)
		n += p->ranks[i].node == node;
	return n;
}

/* Judges a node whose ranks keep `held` bytes in its memory: prints a warning without an offload,
 * and refuses with one. Only what a step cannot do without is a reason to refuse. */
static int judge_host(const struct job *job, const struct cluster *c, struct plan *p, int node,
		      double held, struct err *e)
{
	const struct node_kind *k = topo_cluster_kind(c, node);
	bool offloads = job->offload.optimizer || job->offload.activations;
	char needs[HUMAN], has[HUMAN];
	human_bytes(held, needs);
	if (k->memory > 0 && offloads)
		return err_set(e, ERR_NOFIT,
			       "the %d ranks of node %s keep %s in its memory (offload, snapshot), "
			       "and %s leaves them %s; offload less, or use more devices",
			       count_ranks(p, node), c->nodes[node].name, needs, k->name,
			       human_bytes(search_fit_host(k, 1), has));
	if (k->memory > 0)
		plan_warn(p,
			  "a checkpoint's snapshot takes %s of a node's memory, and %s leaves %s: "
			  "it may not fit; use more nodes, or fewer copies "
			  "(checkpoint.memory_every, checkpoint.copies)",
			  needs, k->name, human_bytes(search_fit_host(k, 1), has));
	else if (offloads)
		plan_warn(p,
			  "%s are offloaded to each node's memory, and how much %s has is unknown; "
			  "compare it yourself, or name its \"memory\" in a file of muster topo "
			  "--json",
			  needs, k->name);
	return 0;
}

/* Judges the node whose memory is exceeded the most, where that is known. */
static int fit_hosts(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	double *held = calloc((size_t)c->n_nodes + 1, sizeof *held), over = 0;
	int worst = -1, rc = 0;
	bool known = false; /* the memory of the worst node */
	if (!held)
		return err_set(e, ERR_NOMEM, "no memory for %d nodes; close other programs",
			       c->n_nodes);
	for (int i = 0; i < p->world; i++)
		held[p->ranks[i].node] += p->ranks[i].host;
	for (int n = 0; n < c->n_nodes; n++) {
		const struct node_kind *k = topo_cluster_kind(c, n);
		double more = held[n] - search_fit_host(k, 1);
		bool mine = k->memory > 0;
		if (!plan_on_cpu(k) && held[n] > 0 && more > 0 &&
		    (mine != known ? mine : more > over)) {
			worst = n;
			over = more;
			known = mine;
		}
	}
	if (worst >= 0)
		rc = judge_host(job, c, p, worst, held[worst], e);
	free(held);
	return rc;
}

double search_fit_of_rank(const struct cluster *c, const struct plan *p, const struct plan_rank *r)
{
	return search_fit_beside(search_fit_limit(topo_cluster_kind(c, r->node), r->node_ranks),
				 p->library);
}

bool search_fit_devices(const struct cluster *c, const struct plan *p)
{
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		double limit = search_fit_of_rank(c, p, r);
		if (limit > 0 && r->total > limit)
			return false;
	}
	return true;
}

int search_fit_memory(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	const struct plan_rank *worst = NULL; /* the rank that lacks the most */
	double over = 0;
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		double limit = search_fit_of_rank(c, p, r);
		if (limit > 0 && (!p->memory || limit < p->memory))
			p->memory = limit;
		if (limit > 0 && r->total > limit &&
		    (!worst || r->total - limit > worst->total - over)) {
			worst = r;
			over = limit;
		}
	}
	return worst ? refuse_memory(job, c, p, worst, over, e) : fit_hosts(job, c, p, e);
}
