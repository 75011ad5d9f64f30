#include "agent/parallel/dp.h"

#include "libcomm/comm.h"

#include <stdlib.h>

struct dp {
	struct comm *group;
	float *grads;
	int64_t elements, bucket;
	int n, started;             /* buckets, counted from the buffer's end */
	struct comm_request **reqs; /* [n] */
};

int dp_open(struct comm *group, float *grads, int64_t elements, int64_t bucket, struct dp **out, struct err *e)
{
	struct dp *d = calloc(1, sizeof *d);
	if (!d)
		return err_set(e, ERR_NOMEM, "gradient buckets: out of memory");
	*d = (struct dp){ .group = group, .grads = grads, .elements = elements, .bucket = bucket };
	d->n = group ? (int)((elements + bucket - 1) / bucket) : 0;
	d->reqs = calloc((size_t)d->n + 1, sizeof *d->reqs);
	if (!d->reqs) {
		free(d);
		return err_set(e, ERR_NOMEM, "%d gradient buckets: out of memory", (int)((elements + bucket - 1) / bucket));
	}
	*out = d;
	return 0;
}

/* The bucket's first element; bucket i ends where bucket i - 1 begins. */
static int64_t bucket_lo(const struct dp *d, int i)
{
	int64_t lo = d->elements - (int64_t)(i + 1) * d->bucket;
	return lo > 0 ? lo : 0;
}

int dp_ready(struct dp *d, int64_t from, struct err *e)
{
	for (; d->started < d->n && bucket_lo(d, d->started) >= from; d->started++) {
		int64_t lo = bucket_lo(d, d->started), hi = d->elements - (int64_t)d->started * d->bucket;
		if (comm_all_reduce_start(d->group, d->grads + lo, d->grads + lo, (size_t)(hi - lo), COMM_F32,
					  COMM_SUM, &d->reqs[d->started], e))
			return -1;
	}
	return 0;
}

/* Every request is waited for, also after a failure; the first error stays. */
static int wait_all(struct dp *d, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < d->started; i++) {
		if (comm_wait(d->reqs[i], rc ? NULL : e))
			rc = -1;
		d->reqs[i] = NULL;
	}
	d->started = 0;
	return rc;
}

int dp_finish(struct dp *d, struct err *e)
{
	if (dp_ready(d, 0, e)) {
		wait_all(d, NULL);
		return -1;
	}
	return wait_all(d, e);
}

void dp_close(struct dp *d)
{
	if (!d)
		return;
	wait_all(d, NULL);
	free(d->reqs);
	free(d);
}
