/* Evaluates a line: the pipeline's ranks and its time. */
#include "plan/search/eval_levels.h"

#include "plan/cost/unlike.h"
#include "plan/spec/batch.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_MAX = 1 << 22 };

/* The model split into n stages for equal devices; NULL: it cannot be. */
static const struct stage *cut(struct eval *v, int n)
{
	const struct model_shape *m = &v->space->shape;
	if (v->uncut[n])
		return NULL;
	if (!v->stages[n]) {
		v->stages[n] = calloc((size_t)n, sizeof *v->stages[n]);
		if (!v->stages[n] ||
		    layout_stages(m, n, v->job.parallel.stages, layout_bare_ends(&v->job), NULL,
				  v->stages[n], NULL)) {
			v->uncut[n] = true;
			return NULL;
		}
	}
	return v->stages[n];
}

/* Sets the kind of each rank's node. */
static void set_kinds(struct eval *v)
{
	const struct cluster *c = v->space->cluster;
	struct eval_devices *own = &v->own;
	if (own->tp == v->layout.tp)
		return;
	place_in_order(c, &v->layout, own->slots);
	own->tp = v->layout.tp;
	own->best = 0;
	for (int r = 0; r < v->space->named; r++) {
		own->kinds[r] = c->nodes[own->slots[r].node].kind;
		own->best = fmax(own->best, own->rates[own->kinds[r]]);
	}
}

/* Sets the slowest device of each pipeline rank of all replicas, as a plan does
 * (plan/cost/cost.c). */
static void set_holders(struct eval *v)
{
	struct eval_devices *own = &v->own;
	int each = v->layout.tp * v->layout.cp;
	double fastest = speeds_fastest(&v->job);
	set_kinds(v);
	for (int rank = 0; rank < v->space->named; rank++) {
		struct coords at = layout_coords(&v->layout, rank);
		int kind = own->kinds[rank], i = at.dp * v->layout.pp + at.pp;
		struct cost_device mine = cost_unlike_device(search_eval_machine(v, kind + 1),
							     own->rates[kind], own->best,
							     speeds_rank(&v->job, rank) / fastest,
							     own->rates[kind] <= 0);
		own->holders[i] = rank % each ? cost_unlike_slower(own->holders[i], mine) : mine;
		own->speeds[i] = own->holders[i].rate / own->holders[i].scale;
	}
	own->set = true;
}

/* The index of a pipeline rank's machine in a stream's passes. */
static int machine_at(const struct eval *v, int pp)
{
	const struct cost_machine *m = cost_device_at(&v->cost, pp).machine;
	return m == v->cost.machine ? 0 : (int)(m - v->own.machines) + 1;
}

/* Sets stages, shares of the batch and the slowest replica's devices for unequal devices, as a plan
 * does. */
static bool cut_unequal(struct eval *v)
{
	const struct model_shape *m = &v->space->shape;
	if (layout_world(&v->layout) != v->space->named ||
	    speeds_stages(&v->job, m, &v->layout, v->own_stages, NULL) ||
	    batch_split(&v->job, m, &v->layout, v->own_stages, v->shares, NULL))
		return false;
	if (!v->own.set)
		set_holders(v);
	int slowest_replica = batch_slowest(m, &v->layout, v->own_stages, v->shares, v->own.speeds);
	v->cost.devices = v->own.holders + slowest_replica * v->layout.pp;
	v->cost.stages = v->own_stages;
	v->cost.micros = v->shares[slowest_replica].micros;
	return true;
}

static bool same_kind(const struct eval_key *a, const struct eval_key *b)
{
	return a->layers == b->layers && a->again == b->again && a->first == b->first &&
	       a->last == b->last && a->ends[0] == b->ends[0] && a->ends[1] == b->ends[1] &&
	       a->machine == b->machine && a->scale <= b->scale && a->scale >= b->scale &&
	       a->copies <= b->copies && a->copies >= b->copies && a->head <= b->head &&
	       a->head >= b->head && a->tail <= b->tail && a->tail >= b->tail;
}

static struct cost_pass pass_of(const struct eval_passes *s, double scale, int layers, int again,
				bool first, bool last, bool splits)
{
	struct cost_pass sum = { 0 };
	cost_add(&sum, &s->kept, layers - again);
	cost_add(&sum, &s->recomputed, again);
	if (first)
		cost_add(&sum, &s->first, 1);
	if (last)
		cost_add(&sum, &s->last, 1);
	cost_pass_slow(&sum, scale);
	if (splits)
		cost_pass_halve(&sum);
	return sum;
}

static double both(const struct cost_pass *t)
{
	return cost_forward(t) + cost_backward(t);
}

static int state_of(struct eval *v, int layers, bool first, bool last)
{
	int i = 0;
	while (i < v->n_states && (v->states[i].layers != layers || v->states[i].first != first ||
				   v->states[i].last != last))
		i++;
	if (i < v->n_states)
		return i;
	if (v->n_states == v->room_states) {
		int room = 2 * v->room_states + 16;
		struct eval_state *more = realloc(v->states, (size_t)room * sizeof *more);
		if (!more)
			return -1;
		v->states = more;
		v->room_states = room;
	}
	v->states[i] = (struct eval_state){ .layers = layers, .first = first, .last = last };
	return v->n_states++;
}

/* Adds the copies as cost_pass_of does (plan/cost/pass.c). */
static void add_copies(struct cost_pass *t, double once, bool splits)
{
	t->fwd += once;
	t->bwd += splits ? 3 * once : once;
	t->weight += splits ? once : 0;
}

/* Sets the costs of a kind from the passes of layers and ends. */
static bool complete(struct eval *v, struct eval_kind *kind, int pp, double wait)
{
	const struct eval_key *k = &kind->key;
	const struct eval_passes *s = &v->stream->passes[k->machine];
	int chunks = v->layout.chunks;
	const struct stage *head = &v->cost.stages[layout_stage(&v->layout, pp, 0)],
			   *tail = &v->cost.stages[layout_stage(&v->layout, pp, chunks - 1)];
	bool splits = schedule_splits(v->config.schedule);
	struct cost_pass all = pass_of(s, k->scale, k->layers, k->again, k->first, k->last, splits);
	struct cost_pass one = pass_of(s, k->scale, k->ends[0] >> 16, k->ends[0] & 0xffff,
				       head->first, head->last, splits);
	struct cost_pass end = pass_of(s, k->scale, k->ends[1] >> 16, k->ends[1] & 0xffff,
				       tail->first, tail->last, splits);
	add_copies(&all, k->scale * k->copies, splits);
	add_copies(&one, k->scale * k->head, splits);
	add_copies(&end, k->scale * k->tail, splits);
	double weight = all.weight;
	/* Each chunk counts as the mean chunk. */
	double down = cost_meeting(&v->cost, cost_forward(&all) / chunks);
	double up = cost_meeting(&v->cost, (cost_backward(&all) - (splits ? weight : 0)) / chunks);
	kind->example = pp;
	kind->cost = (struct cost_rank){ .layers = k->layers,
					 .first = k->first,
					 .last = k->last,
					 .device = cost_device_at(&v->cost, pp),
					 .pass = all };
	kind->pipe = (struct pipeline_rank_times){
		.forward = cost_forward(&all) + chunks * wait + chunks * down,
		.weight = weight,
		.input = cost_backward(&all) - weight + chunks * wait + chunks * up,
		.first = both(&one) + 2 * wait + down + up,
		.last = both(&end) + 2 * wait + down + up,
	};
	kind->state = state_of(v, k->layers, k->first, k->last);
	return kind->state >= 0;
}

static struct eval_key key_at(struct eval *v, int pp)
{
	struct eval_key k = { .scale = cost_device_at(&v->cost, pp).scale,
			      .machine = machine_at(v, pp) };
	int every = v->config.every, chunks = v->layout.chunks;
	for (int c = 0; c < chunks; c++) {
		const struct stage *s = &v->cost.stages[layout_stage(&v->layout, pp, c)];
		int layers = s->layer_hi - s->layer_lo, again = layers;
		if (every > 1)
			again = (s->layer_hi + every - 1) / every -
				(s->layer_lo + every - 1) / every;
		k.layers += layers;
		k.again += again;
		k.first |= s->first;
		k.last |= s->last;
		if (c == 0)
			k.ends[0] = layers << 16 | again;
		k.ends[1] = layers << 16 | again;
		if (!v->config.activations)
			continue;
		k.tail = cost_machine_offload(search_eval_machine(v, k.machine),
					      plan_memory_offloaded(&search_eval_sizes(v)[0], s));
		k.copies += k.tail;
		k.head = c ? k.head : k.tail;
	}
	return k;
}

bool search_eval_line(struct eval *v, enum job_schedule schedule, int chunks, bool activations)
{
	v->config.schedule = schedule;
	v->config.chunks = chunks;
	v->config.activations = activations;
	v->job.offload.activations = activations;
	v->layout.chunks = chunks;
	v->layout.vee = schedule_kinds[schedule]->vee;
	v->job.parallel.schedule = schedule;
	v->job.parallel.chunks = schedule_kinds[schedule]->chunks_most > 1 ? chunks : 0;
	v->cost.devices = NULL;
	if ((int64_t)v->layout.pp * chunks > search_space_stages(v->space))
		return false;
	if (v->space->named ? !cut_unequal(v)
			    : !(v->cost.stages = cut(v, layout_n_stages(&v->layout))))
		return false;
	if ((int64_t)layout_n_stages(&v->layout) * v->cost.micros > CELLS_MAX)
		return false;
	double wait = cost_wait(&v->cost);
	v->pipe = (struct pipeline_times){ 0 };
	v->n_kinds = 0;
	for (int pp = 0; pp < v->layout.pp; pp++) {
		struct eval_key mine = key_at(v, pp);
		int k = v->n_kinds - 1;
		while (k >= 0 && !same_kind(&v->kinds[k].key, &mine))
			k--;
		if (k < 0) {
			k = v->n_kinds++;
			v->kinds[k].key = mine;
			v->kinds[k].n = 0;
			if (!complete(v, &v->kinds[k], pp, wait))
				return false;
		}
		v->kinds[k].n++;
		v->kind_of[pp] = k;
		schedule_times_add(&v->pipe, &v->kinds[k].pipe);
	}
	v->whole = cost_shared(
		&v->cost, v->pipe.sum.forward + v->pipe.sum.input + v->pipe.sum.weight,
		schedule_seconds(&v->pipe, schedule, chunks, v->cost.micros, cost_hop(&v->cost)));
	v->counted = v->has_sum = false;
	return true;
}

double search_eval_line_bound(const struct eval *v)
{
	return v->whole;
}
