/* Passes that are recorded as graphs and replayed: which can be, and what must be alike. */
#include "agent/engine/parallel/param_store_inner.h"

void param_store_defer(struct param_store *s)
{
	s->defers = true;
}

void param_store_repeat(struct param_store *s, bool repeats)
{
	s->repeats = repeats;
}

/* Whether all operations that reduce the unit's gradients can be part of a graph. */
static bool reduces_on_device(const struct param_store *s, int unit)
{
	const struct replica_groups *r = param_store_replicas(s, unit);
	bool partial = s->catalogue->units[unit].partial;
	return comm_graph_fits(r->shard) && comm_graph_fits(r->copies) &&
	       (!partial || (comm_graph_fits(s->groups.tp) && comm_graph_fits(s->groups.kv)));
}

/* Whether a gather in progress is in the way. The pass waits for those of its chunk, before it
 * reduces any gradients but late ones. A group with operations in a graph has no others open. */
static bool hinders(const struct param_store *s, int unit, int chunk, enum param_store_use use)
{
	const struct replica_groups *r = param_store_replicas(s, unit);
	bool waits = s->catalogue->units[unit].chunk == chunk,
	     reduces = s->late || (use >= PARAM_STORE_ADDS && !waits);
	return s->layouts[unit].publishing &&
	       (!comm_graph_awaits(r->shard) || (r->policy->grads && reduces));
}

/* Whether the gathers of such a pass start at the same places each time. Those of an evaluation are
 * not in the order of a step. */
static bool gathers_alike(const struct param_store *s, const struct replica_groups *r,
			  enum param_store_use use)
{
	return s->order.learned && use != PARAM_STORE_EVALUATES && comm_graph_fits(r->shard);
}

bool param_store_replayable(const struct param_store *s, int chunk, enum param_store_use use)
{
	for (int i = 0; i < s->catalogue->n_units; i++) {
		const struct replica_groups *r = param_store_replicas(s, i);
		bool reduces = r->policy->grads ? s->late || use >= PARAM_STORE_ADDS
						: use == PARAM_STORE_COMPLETES;
		if (hinders(s, i, chunk, use) || (reduces && !reduces_on_device(s, i)) ||
		    (r->policy->params && !gathers_alike(s, r, use)))
			return false;
	}
	return true;
}

static int settle_pool(struct unit_buffers *p, double *spent, struct err *e)
{
	for (int i = 0; i < p->n; i++)
		if (param_store_wait_request(&p->slots[i].req, spent, e))
			return -1;
	return 0;
}

int param_store_settle_pass(struct param_store *s, struct err *e)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		if (settle_pool(&s->gathers[kind], &s->gather_s, e) ||
		    settle_pool(&s->scatters[kind], &s->reduce_s, e))
			return -1;
	return param_store_wait_sums(s, e);
}

bool param_store_expects(const struct param_store *s, int unit, int *ahead)
{
	return !param_store_replicas(s, unit)->policy->params ||
	       param_store_order_peek(&s->order, (*ahead)++) == unit;
}

/* FNV-1a */
static void mix(uint64_t *hash, int value)
{
	*hash = (*hash ^ (uint32_t)value) * 1099511628211u;
}

/* Whose gradients the buffers have, and whether these will set the owned ones. */
static void mix_scatters(const struct param_store *s, int chunk, uint64_t *hash)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->scatters[kind].n; i++) {
			const struct unit_buffer *t = &s->scatters[kind].slots[i];
			mix(hash, t->laid);
			mix(hash, t->scattered ? 2 + s->layouts[t->unit].summed : t->holds);
		}
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (s->catalogue->units[i].chunk == chunk &&
		    param_store_replicas(s, i)->policy->grads)
			mix(hash, s->layouts[i].summed);
}

/* Whose parameters the buffers have, and what the pass and the gathers during it demand. A pass
 * demands a unit of its chunk twice at most. */
static void mix_gathers(const struct param_store *s, int chunk, uint64_t *hash)
{
	int demands = GATHERS_AHEAD, buffers = 0;
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->gathers[kind].n; i++, buffers++)
			mix(hash, s->gathers[kind].slots[i].unit);
	for (int i = 0; i < s->catalogue->n_units; i++)
		demands += 2 * (s->catalogue->units[i].chunk == chunk);
	for (int i = 0; buffers && i < demands; i++)
		mix(hash, param_store_order_peek(&s->order, i));
}

uint64_t param_store_state(const struct param_store *s, int chunk, enum param_store_use use)
{
	uint64_t hash = 14695981039346656037u;
	mix(&hash, s->late ? s->late->unit : -1);
	mix_gathers(s, chunk, &hash);
	if (use >= PARAM_STORE_ADDS)
		mix_scatters(s, chunk, &hash);
	return hash;
}

bool param_store_gathers(const struct param_store *s, int chunk)
{
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (s->layouts[i].publishing && s->catalogue->units[i].chunk == chunk)
			return true;
	return false;
}

bool param_store_reduces(const struct param_store *s)
{
	for (int i = 0; i < s->catalogue->n_units; i++) {
		const struct replica_groups *r = param_store_replicas(s, i);
		if (r->shard || r->copies || s->catalogue->units[i].partial)
			return true;
	}
	return false;
}

bool param_store_reduces_once(const struct param_store *s)
{
	for (int i = 0; i < s->catalogue->n_units; i++) {
		const struct replica_groups *r = param_store_replicas(s, i);
		if (!r->policy->grads && (r->shard || r->copies || s->catalogue->units[i].partial))
			return true;
	}
	return false;
}
