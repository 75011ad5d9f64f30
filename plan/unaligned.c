#include "plan/unaligned.h"

#include "base/numbers.h"

#include <inttypes.h>
#include <stdbool.h>

enum { ALIGNED = 8, GOOD = 64 /* whole tiles of the products' kernels, too */, TRIES = 64 };

/* Whether some tp rank's part of n is not a multiple of 8. */
static bool is_unaligned(int64_t n, int tp, int64_t grain)
{
	for (int i = 0; i < tp; i++) {
		int64_t lo, hi;
		layout_partition(n, tp, i, layout_partition_grain(n, tp, grain), &lo, &hi);
		if ((hi - lo) % ALIGNED)
			return true;
	}
	return false;
}

/* The next size for which the parts of all ranks are multiples of 8. */
static int64_t next_good(int64_t n, int tp, int64_t grain)
{
	int64_t good = round_up_int64(n, GOOD);
	for (int i = 0; i < TRIES && is_unaligned(good, tp, grain); i++)
		good += GOOD;
	return good;
}

static void say_cut(const char *key, int64_t n, int tp, int64_t grain, struct buf *out)
{
	if (!is_unaligned(n, tp, grain))
		return;
	buf_printf(out,
		   "%s%smodel.%s = %" PRId64 " %s of %d (model.%s=%" PRId64
		   " is the next good one)",
		   out->len ? ", " : "", tp > 1 ? "the tp ranks' parts of " : "", key, n,
		   tp > 1 ? "are not all multiples" : "is not a multiple", ALIGNED, key,
		   next_good(n, tp, grain));
}

/* The next such hidden size that can also be split into heads. */
static int64_t next_hidden(const struct job *job, const struct model_shape *m)
{
	int64_t good = round_up_int64(m->hidden, GOOD), most = GOOD * m->heads + m->hidden;
	while (!job->model.head_dim && good < most && good % (ALIGNED * m->heads))
		good += GOOD;
	return good;
}

static void say_hidden(const struct job *job, const struct model_shape *m, struct buf *out)
{
	bool given = job->model.head_dim > 0, head = m->head_dim % ALIGNED;
	const char *between = out->len ? ", " : "";
	if (head && given)
		buf_printf(out,
			   "%smodel.head_dim = %" PRId64
			   " is not a multiple of %d (model.head_dim=%" PRId64 " is the next good "
			   "one)",
			   between, m->head_dim, ALIGNED, round_up_int64(m->head_dim, ALIGNED));
	else if (head)
		buf_printf(out,
			   "%sa head of hidden / heads = %" PRId64
			   " is not a multiple of %d (model.hidden=%" PRId64 " is the "
			   "next good one)",
			   between, m->head_dim, ALIGNED, next_hidden(job, m));
	else if (m->hidden % ALIGNED)
		buf_printf(out,
			   "%smodel.hidden = %" PRId64
			   " is not a multiple of %d (model.hidden=%" PRId64
			   " is the next good one)",
			   between, m->hidden, ALIGNED, next_hidden(job, m));
}

void plan_unaligned_print(const struct job *job, const struct model_shape *m,
			  const struct layout *l, struct buf *out)
{
	struct buf sizes = BUF_INIT;
	if (job->job.device != DEVICE_CUDA)
		return;
	say_cut("ffn", m->ffn, l->tp, CATALOGUE_FFN_GRAIN, &sizes);
	say_hidden(job, m, &sizes);
	if (sizes.len)
		buf_printf(out, "%s: products of such sizes are several times slower on a GPU",
			   buf_str(&sizes));
	buf_fini(&sizes);
}
