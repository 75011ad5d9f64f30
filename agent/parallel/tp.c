#include "agent/parallel/tp.h"

#include "base/clock.h"

void tp_init(struct tp *t, struct comm *group, bool sp, enum comm_type type)
{
	*t = (struct tp){
		.comm = group,
		.rank = group ? comm_rank(group) : 0,
		.size = group ? comm_size(group) : 1,
		.sp = sp && group,
		.type = type,
	};
}

int tp_gather(struct tp *t, const void *shard, void *full, size_t count, struct err *e)
{
	double start = clock_s();
	int rc = comm_all_gather(t->comm, shard, full, count, t->type, e);
	t->seconds += clock_s() - start;
	return rc;
}

int tp_reduce(struct tp *t, void *full, void *shard, size_t count, struct err *e)
{
	if (!t->comm || !count)
		return 0;
	double start = clock_s();
	int rc = t->sp ? comm_reduce_scatter(t->comm, full, shard, count, t->type, COMM_SUM, e) :
			 comm_all_reduce(t->comm, full, shard, count, t->type, COMM_SUM, e);
	t->seconds += clock_s() - start;
	return rc;
}

static int all_reduce(struct tp *t, float *x, size_t count, enum comm_op op, struct err *e)
{
	if (!t->comm || !count)
		return 0;
	double start = clock_s();
	int rc = comm_all_reduce(t->comm, x, x, count, COMM_F32, op, e);
	t->seconds += clock_s() - start;
	return rc;
}

int tp_sum(struct tp *t, float *x, size_t count, struct err *e)
{
	return all_reduce(t, x, count, COMM_SUM, e);
}

int tp_max(struct tp *t, float *x, size_t count, struct err *e)
{
	return all_reduce(t, x, count, COMM_MAX, e);
}
