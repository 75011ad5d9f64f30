#include "agent/parallel/tp.h"

#include "base/clock.h"
#include "libcomm/comm.h"

void tp_init(struct tp *t, struct comm *group)
{
	*t = (struct tp){
		.comm = group,
		.rank = group ? comm_rank(group) : 0,
		.size = group ? comm_size(group) : 1,
	};
}

static int reduce(struct tp *t, float *x, size_t count, enum comm_op op, struct err *e)
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
	return reduce(t, x, count, COMM_SUM, e);
}

int tp_max(struct tp *t, float *x, size_t count, struct err *e)
{
	return reduce(t, x, count, COMM_MAX, e);
}
