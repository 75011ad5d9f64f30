#include "agent/engine/parallel/tp.h"

#include "base/clock.h"

/* A transfer of at least this many bytes is worth another thread. */
enum { OVERLAP_MIN = 64 << 10 };

void tp_init(struct tp *t, struct comm *group, bool sp, bool overlap, enum comm_type type)
{
	*t = (struct tp){
		.comm = group,
		.rank = group ? comm_rank(group) : 0,
		.size = group ? comm_size(group) : 1,
		.sp = sp && group,
		.overlap = overlap,
		.type = type,
	};
}

static bool runs_async(const struct tp *t, size_t count)
{
	return t->overlap && count * comm_type_size(t->type) >= OVERLAP_MIN;
}

int tp_gather_start(struct tp *t, const void *shard, void *full, size_t count,
		    struct comm_request **req, struct err *e)
{
	*req = NULL;
	return runs_async(t, count)
		       ? comm_all_gather_start(t->comm, shard, full, count, t->type, req, e)
		       : tp_gather(t, shard, full, count, e);
}

int tp_reduce_start(struct tp *t, void *full, void *shard, size_t count, struct comm_request **req,
		    struct err *e)
{
	*req = NULL;
	if (!t->comm || !runs_async(t, count))
		return tp_reduce(t, full, shard, count, e);
	return t->sp ? comm_reduce_scatter_start(t->comm, full, shard, count, t->type, COMM_SUM,
						 req, e)
		     : comm_all_reduce_start(t->comm, full, shard, count, t->type, COMM_SUM, req,
					     e);
}

int tp_wait(struct tp *t, struct comm_request **req, struct err *e)
{
	struct comm_request *under_way = *req;
	double start = clock_s();
	*req = NULL;
	int rc = comm_wait(under_way, e);
	t->seconds += clock_s() - start;
	return rc;
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
	int rc = t->sp ? comm_reduce_scatter(t->comm, full, shard, count, t->type, COMM_SUM, e)
		       : comm_all_reduce(t->comm, full, shard, count, t->type, COMM_SUM, e);
	t->seconds += clock_s() - start;
	return rc;
}

static int all_reduce_f32(struct tp *t, float *x, size_t count, enum comm_op op, struct err *e)
{
	if (!t->comm || !count)
		return 0;
	double start = clock_s();
	int rc = comm_all_reduce(t->comm, x, x, count, COMM_F32, op, e);
	t->seconds += clock_s() - start;
	return rc;
}

int tp_all_reduce_sum(struct tp *t, float *x, size_t count, struct err *e)
{
	return all_reduce_f32(t, x, count, COMM_SUM, e);
}

int tp_all_reduce_max(struct tp *t, float *x, size_t count, struct err *e)
{
	return all_reduce_f32(t, x, count, COMM_MAX, e);
}
