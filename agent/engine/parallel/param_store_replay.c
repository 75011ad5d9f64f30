/* Passes that are recorded as graphs and replayed: which can be, and what must be alike. */
#include "agent/engine/parallel/param_store_inner.h"

void param_store_defer_reductions(struct param_store *s)
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
 * reduces any gradients but late ones. A group that has operations in a graph has no others open. */
static bool hinders(const struct param_store *s, int unit, int chunk, enum param_store_use use)
{
	const struct replica_groups *r = param_store_replicas(s, unit);
	bool waits = s->catalogue->units[unit].chunk == chunk,
	     reduces = s->late || (use != PARAM_STORE_READS && !waits);
	return s->layouts[unit].publishing &&
	       (!comm_graph_awaits(r->shard) || (r->policy->grads && reduces));
}

bool param_store_replayable(const struct param_store *s, int chunk, enum param_store_use use)
{
	for (int i = 0; i < s->catalogue->n_units; i++) {
		const struct replica_groups *r = param_store_replicas(s, i);
		bool reduces = r->policy->grads ? s->late || use != PARAM_STORE_READS
						: use == PARAM_STORE_COMPLETES;
		if (r->policy->params || hinders(s, i, chunk, use) ||
		    (reduces && !reduces_on_device(s, i)))
			return false;
	}
	return true;
}

int param_store_settle_reductions(struct param_store *s, struct err *e)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->scatters[kind].n; i++)
			if (param_store_wait_request(&s->scatters[kind].slots[i].req, &s->reduce_s,
						     e))
				return -1;
	return 0;
}

/* FNV-1a */
static void mix(uint64_t *hash, int value)
{
	*hash = (*hash ^ (uint32_t)value) * 1099511628211u;
}

/* Of the buffers: whose gradients they have, and whether these will set the owned ones. */
static void mix_buffers(const struct param_store *s, uint64_t *hash)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->scatters[kind].n; i++) {
			const struct unit_buffer *t = &s->scatters[kind].slots[i];
			mix(hash, t->laid);
			mix(hash, t->scattered ? 2 + s->layouts[t->unit].summed : t->holds);
		}
}

uint64_t param_store_state(const struct param_store *s, int chunk, enum param_store_use use)
{
	uint64_t hash = 14695981039346656037u;
	mix(&hash, s->late ? s->late->unit : -1);
	if (use == PARAM_STORE_READS)
		return hash;
	mix_buffers(s, &hash);
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (s->catalogue->units[i].chunk == chunk &&
		    param_store_replicas(s, i)->policy->grads)
			mix(&hash, s->layouts[i].summed);
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
