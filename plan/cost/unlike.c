#include "plan/cost/unlike.h"

#include <math.h>
#include <stdlib.h>

/* A list of speeds may be rounded by this share. */
#define ROUNDED 0.03

/* One layer of one sequence on one device, whatever the job's own layout is. */
static void make_plain(struct job *job)
{
	job->batch.micro = 1;
	job->parallel.sp = false;
	job->parallel.schedule = SCHEDULE_1F1B;
	job->recompute.mode = RECOMPUTE_NONE;
	job->recompute.every = 1;
	job->offload.activations = false;
}

double cost_unlike_rate(const struct job *job, const struct model_shape *m,
			const struct cost_machine *machine)
{
	struct job *plain = malloc(sizeof *plain); /* too large for a small stack */
	struct layout l = { .tp = 1, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 };
	struct stage layer = { 0, 1, false, false };
	struct group_links links[GROUP_KINDS] = { { .ranks = 1 } };
	if (!plain)
		return 0;
	*plain = *job;
	make_plain(plain);
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		links[kind].ranks = links[kind].nodes = links[kind].per_node = 1;
	struct cost_pass t =
		cost_pass_of(&(struct cost_case){ .job = plain,
						  .shape = m,
						  .layout = &l,
						  .stages = &layer,
						  .group_links = links,
						  .machine = machine,
						  .engine = cost_engines[job->plan.engine],
						  .micros = 1 },
			     &layer);
	free(plain);
	return 1 / (t.fwd + t.bwd);
}

struct cost_device cost_unlike_device(const struct cost_machine *machine, double rate, double best,
				      double named, bool on_cpu)
{
	double slower = on_cpu ? 1 / named : rate / best / named;
	return (struct cost_device){ .machine = machine,
				     .scale = on_cpu || slower > 1 + ROUNDED ? slower : 1,
				     .rate = on_cpu ? 1 : rate };
}

struct cost_device cost_unlike_slower(struct cost_device a, struct cost_device b)
{
	return a.rate / a.scale <= b.rate / b.scale ? a : b;
}

bool cost_unlike_node(const struct node_kind *k, struct regular_cluster *out)
{
	struct node_kind kind = *k;
	struct cluster_node node = { .leaf = -1, .domain = -1 };
	struct cluster one = { .kinds = &kind, .n_kinds = 1, .nodes = &node, .n_nodes = 1 };
	if (k->links && !k->switched)
		return false;
	return !place_regular_cluster_of(&one, out, NULL);
}

void cost_unlike_links(const struct regular_cluster *node, const struct cost_machine *machine,
		       const struct layout *l, const struct group_links all[GROUP_KINDS],
		       struct group_links own[GROUP_KINDS])
{
	static const enum group_kind layers[] = { GROUP_TP, GROUP_CP, GROUP_EP };
	struct group_links mine[GROUP_KINDS];
	struct rank_box box = place_block_box(node, l);
	place_group_links_regular(node, l, &box, mine);
	cost_machine_links(machine, mine);
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		own[kind] = all[kind];
	for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
		enum group_kind kind = layers[i];
		if (all[kind].nodes == 1 && mine[kind].nodes == 1 &&
		    mine[kind].inside.bandwidth > 0)
			own[kind].inside = mine[kind].inside;
	}
}
