/* Finds the rank that needs the most memory: among all pipeline ranks and the unlike ranks of a
 * tensor-parallel group (TP_KINDS), in the first replica. */
#include "plan/search/eval_levels.h"

#include "plan/spec/speeds.h"

#include <math.h>

static void set_sizes(struct eval *v, bool splits, struct memory_sizes *sizes)
{
	for (int end = 0; end < TP_KINDS; end++)
		plan_memory_sizes_of(&v->job, &v->space->shape, &v->layout, v->tp_ranks[end],
				     splits, &sizes[end]);
}

const struct memory_sizes *search_eval_sizes(struct eval *v)
{
	struct eval_stream *s = v->stream;
	bool splits = schedule_splits(v->config.schedule), offloaded = v->config.activations;
	if (v->job.batch.logits != v->space->job->batch.logits) {
		set_sizes(v, splits, v->less);
		return v->less;
	}
	if (!s->sized[splits][offloaded]) {
		set_sizes(v, splits, s->sizes[splits][offloaded]);
		s->sized[splits][offloaded] = true;
	}
	return s->sizes[splits][offloaded];
}

static void add_rank(struct eval *v, int pp, const struct live_chunk *live,
		     const struct memory_sizes *sizes)
{
	struct eval_kind *k = &v->kinds[v->kind_of[pp]];
	int chunks = v->layout.chunks;
	struct stage mine[LAYOUT_CHUNKS_MAX];
	for (int c = 0; c < chunks; c++)
		mine[c] = v->cost.stages[layout_stage(&v->layout, pp, c)];
	v->away[pp] = 0;
	for (int end = 0; end < v->tp_kinds; end++) {
		double sum = sizes[end].immense, away = 0,
		       shared = sum > 0 ? 0 : plan_memory_shared(&sizes[end], mine, chunks);
		for (int c = 0; c < chunks && !(sizes[end].immense > 0); c++) {
			sum += plan_memory_slots(&sizes[end], &mine[c], live[c].live, live[c].whole,
						 live[c].turns);
			away += live[c].live * plan_memory_offloaded(&sizes[end], &mine[c]);
		}
		v->away[pp] = fmax(v->away[pp], away);
		if (sum + shared > k->activations[end] + k->shared[end]) {
			k->activations[end] = sum;
			k->shared[end] = shared;
			k->most[end] = pp;
		}
	}
}

bool search_eval_activations(struct eval *v)
{
	const struct memory_sizes *sizes = search_eval_sizes(v);
	const struct live_chunk *live = search_live_of(v->live, v->config.schedule, &v->layout,
						       v->cost.micros);
	if (!live)
		return false;
	for (int k = 0; k < v->n_kinds; k++)
		for (int end = 0; end < TP_KINDS; end++)
			v->kinds[k].activations[end] = v->kinds[k].shared[end] = -1;
	for (int pp = 0; pp < v->layout.pp; pp++)
		add_rank(v, pp, live + pp * v->layout.chunks, sizes);
	return true;
}

/* The bytes of parameters and their state, and of a checkpoint's copy of them. */
static const struct plan_rank *state_bytes(struct eval *v, const struct eval_kind *k, int end)
{
	int zero = (int)v->job.parallel.zero * 2 + (v->job.parallel.zero_shard == ZERO_SHARD_NODE);
	struct eval_state *s = &v->states[k->state];
	if (s->set[zero])
		return &s->bytes[zero][end];
	int counts[UNIT_KINDS] = { [UNIT_LAYER] = s->layers,
				   [UNIT_EXPERTS] = s->layers,
				   [UNIT_TOKENS] = s->first,
				   [UNIT_POSITIONS] = s->first,
				   [UNIT_NORM] = s->last,
				   [UNIT_HEAD] = s->last && !(s->first && v->space->shape.tied) };
	struct zero_cut cuts[ZERO_CLASSES];
	bool offloaded = v->job.offload.optimizer;
	v->job.offload.optimizer = false; /* the leaf adds its staging memory */
	zero_cuts(&v->layout, (struct coords){ 0 }, (int)v->job.parallel.zero,
		  v->job.parallel.zero_shard == ZERO_SHARD_NODE ? v->cost.node_replicas : 0, cuts);
	for (int e = 0; e < v->tp_kinds; e++) {
		struct stage chunks[LAYOUT_CHUNKS_MAX];
		struct share share = layout_share(
			&v->layout, (struct coords){ .tp = v->tp_ranks[e], .pp = k->example },
			v->config.sp, v->cost.stages, chunks);
		plan_memory_state(&v->job, &v->space->shape, &v->layout, &share,
				  v->units[e].elements, counts, cuts, &s->bytes[zero][e]);
		s->bytes[zero][e].snapshot =
			4 * plan_memory_images(&v->job) *
			(zero_saved(&v->space->shape, &share, (int)v->job.parallel.zero, cuts) +
			 optimizer_saved(v->job.optimizer.kind, &v->space->shape, &share,
					 (int)v->job.parallel.zero, cuts));
	}
	v->job.offload.optimizer = offloaded;
	s->set[zero] = true;
	return &s->bytes[zero][end];
}

/* The most bytes that a node's ranks keep in its memory, as a mean over them. Neighbours in the
 * pipeline share a node as far as the box of block order reaches. */
static double fullest_host(const struct eval *v)
{
	int side = v->fold.pp > 1 ? v->fold.pp : 1;
	double most = 0;
	for (int first = 0; first < v->layout.pp; first += side) {
		double sum = 0;
		for (int pp = first; pp < first + side; pp++)
			sum += v->kinds[v->kind_of[pp]].host + v->away[pp];
		most = fmax(most, sum / side);
	}
	return most;
}

double search_eval_largest(struct eval *v, struct plan_rank *out)
{
	int cores = topo_cluster_kind(v->space->cluster, 0)->cores / search_eval_agents(v),
	    asked = speeds_threads(&v->job, 0);
	double rest = plan_memory_rest(&v->job, v->cost.micros, asked ? asked : cores);
	*out = (struct plan_rank){ .total = -1 };
	for (int i = 0; i < v->n_kinds; i++) {
		struct eval_kind *k = &v->kinds[i];
		k->host = 0;
		for (int end = 0; end < v->tp_kinds; end++) {
			struct plan_rank r = *state_bytes(v, k, end);
			r.activations = k->activations[end];
			r.buffers += k->shared[end] + rest + plan_memory_staged(&v->job);
			plan_memory_sum(&v->job, v->on_cpu, &r);
			k->host = fmax(k->host, r.host);
			r.at = (struct coords){ .tp = v->tp_ranks[end], .pp = k->most[end] };
			if (r.total > out->total)
				*out = r;
		}
	}
	return fullest_host(v);
}
