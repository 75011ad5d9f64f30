#include "plan/spec/model/zero.h"

static const struct zero_policy policies[] = {
	{ .state = false, .grads = false, .params = false },
	{ .state = true, .grads = false, .params = false },
	{ .state = true, .grads = true, .params = false },
	{ .state = true, .grads = true, .params = true },
};

enum zero_class zero_class(enum unit_kind kind)
{
	return kind == UNIT_EXPERTS ? ZERO_EXPERTS : ZERO_DENSE;
}

static struct zero_cut cut_of(int replicas, int replica, int stage, int per_node)
{
	int shards = stage == 0 ? 1 : per_node ? per_node : replicas;
	return (struct zero_cut){ shards, replica % shards, replicas / shards, replica / shards };
}

void zero_cuts(const struct layout *l, struct coords at, int stage, int per_node,
	       struct zero_cut out[ZERO_CLASSES])
{
	int experts = per_node / l->ep;
	out[ZERO_DENSE] = cut_of(l->dp * l->cp, at.dp * l->cp + at.cp, stage, per_node);
	out[ZERO_EXPERTS] = cut_of(l->dp / l->ep * l->cp, at.dp / l->ep * l->cp + at.cp, stage,
				   per_node ? experts ? experts : 1 : 0);
}

const struct zero_policy *zero_policy(int stage, const struct zero_cut *cut)
{
	return &policies[cut->shards > 1 ? stage : 0];
}

void zero_owned(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi)
{
	*lo = 0;
	*hi = n;
	if (zero_policy(stage, cut)->state)
		catalogue_piece(n, cut->shards, cut->shard, lo, hi);
}

int64_t zero_block(int64_t n, int stage, const struct zero_cut *cut)
{
	return zero_policy(stage, cut)->state ? catalogue_block(n, cut->shards) : n;
}

int64_t zero_whole(int64_t n, int stage, const struct zero_cut *cut)
{
	return zero_policy(stage, cut)->state ? catalogue_block(n, cut->shards) * cut->shards : n;
}

void zero_counted(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi)
{
	int64_t own_lo, own_hi;
	zero_owned(n, stage, cut, &own_lo, &own_hi);
	layout_partition(own_hi - own_lo, cut->copies, cut->copy, CATALOGUE_SHARD_GRAIN, lo, hi);
	*lo += own_lo;
	*hi += own_lo;
}

enum { HOST_BUCKET = 1 << 20, DEVICE_BUCKET = 40000000, DEVICE_BUCKET_REPLICA = 1000000 };

int64_t zero_bucket(bool device, int replicas)
{
	int64_t by_replicas = (int64_t)DEVICE_BUCKET_REPLICA * replicas;
	if (!device)
		return HOST_BUCKET;
	return by_replicas > DEVICE_BUCKET ? by_replicas : DEVICE_BUCKET;
}

double zero_staged_bytes(int tensors)
{
	return 2.0 * tensors * ZERO_STAGED * (double)sizeof(float);
}

double zero_saved(const struct model_shape *m, const struct share *s, int stage,
		  const struct zero_cut cut[ZERO_CLASSES])
{
	double saved = 0;
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		int64_t lo, hi;
		zero_counted(catalogue_unit_elements(m, s, kind), stage, &cut[zero_class(kind)],
			     &lo, &hi);
		saved += (double)catalogue_unit_counted(m, s, kind, lo, hi) *
			 catalogue_unit_count(m, s, kind);
	}
	return saved;
}

void zero_memory_of(const int64_t elements[UNIT_KINDS], const int counts[UNIT_KINDS], int stage,
		    const struct zero_cut cut[ZERO_CLASSES], int width, struct zero_memory *out)
{
	struct zero_memory z = { 0 };
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		const struct zero_cut *c = &cut[zero_class(kind)];
		const struct zero_policy *policy = zero_policy(stage, c);
		int count = counts[kind];
		double whole = (double)zero_whole(elements[kind], stage, c),
		       own = (double)zero_block(elements[kind], stage, c),
		       buffers = count < ZERO_BUFFERS ? count : ZERO_BUFFERS;
		z.params += width * count * (policy->params ? own : whole);
		z.grads += (double)sizeof(float) * count * (policy->grads ? own : whole);
		z.gather += policy->params ? width * buffers * whole : 0;
		z.reduce += policy->grads ? (double)sizeof(float) * buffers * whole : 0;
		z.owned += count * own;
	}
	z.masters = width < (int)sizeof(float) ? (double)sizeof(float) * z.owned : 0;
	*out = z;
}

void zero_memory(const struct model_shape *m, const struct share *s, int stage,
		 const struct zero_cut cut[ZERO_CLASSES], int width, struct zero_memory *out)
{
	int64_t elements[UNIT_KINDS];
	int counts[UNIT_KINDS];
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		elements[kind] = catalogue_unit_elements(m, s, kind);
		counts[kind] = catalogue_unit_count(m, s, kind);
	}
	zero_memory_of(elements, counts, stage, cut, width, out);
}
