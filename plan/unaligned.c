#include "plan/unaligned.h"

#include "base/numbers.h"
#include "plan/spec/model/activations.h"

#include <inttypes.h>
#include <stdbool.h>

enum {
	ALIGNED = 8,
	ALIGNED_EIGHT = ACT_FP8_ROW, /* for products of 8 bits */
	GOOD = 64 /* whole tiles of the products' kernels, too */,
	TRIES = 64
};

/* Whether some tp rank's part of n is not a multiple of `aligned`. */
static bool is_unaligned(int64_t n, int tp, int64_t grain, int64_t aligned)
{
	for (int i = 0; i < tp; i++) {
		int64_t lo, hi;
		layout_partition(n, tp, i, layout_partition_grain(n, tp, grain), &lo, &hi);
		if ((hi - lo) % aligned)
			return true;
	}
	return false;
}

/* The next size for which the parts of all ranks are multiples of `aligned`. */
static int64_t next_good(int64_t n, int tp, int64_t grain, int64_t aligned)
{
	int64_t good = round_up_int64(n, GOOD);
	for (int i = 0; i < TRIES && is_unaligned(good, tp, grain, aligned); i++)
		good += GOOD;
	return good;
}

/* Whether a size was named. */
static bool say_cut(const char *key, int64_t n, int tp, int64_t grain, int64_t aligned,
		    struct buf *out)
{
	if (!is_unaligned(n, tp, grain, aligned))
		return false;
	buf_printf(out,
		   "%s%smodel.%s = %" PRId64 " %s of %" PRId64 " (model.%s=%" PRId64
		   " is the next good one)",
		   out->len ? ", " : "", tp > 1 ? "the tp ranks' parts of " : "", key, n,
		   tp > 1 ? "are not all multiples" : "is not a multiple", aligned, key,
		   next_good(n, tp, grain, aligned));
	return true;
}

/* The next such hidden size that can also be split into heads of a multiple of `head`. */
static int64_t next_hidden(const struct job *job, const struct model_shape *m, int64_t head)
{
	int64_t good = round_up_int64(m->hidden, GOOD), most = GOOD * m->heads + m->hidden;
	while (!job->model.head_dim && good < most && good % (head * m->heads))
		good += GOOD;
	return good;
}

/* Whether the width of a tp rank's heads is not a multiple of 16, although head_dim is one of 8. */
static bool are_heads_unaligned(const struct job *job, const struct model_shape *m,
				const struct layout *l)
{
	for (int i = 0; i < l->tp && m->head_dim % ALIGNED == 0; i++) {
		struct act_dims d;
		activations_dims_of(job, m, l, i, false, &d);
		if (d.q % ALIGNED_EIGHT || d.qkv % ALIGNED_EIGHT)
			return true;
	}
	return false;
}

/* A head's size, in heads of which a rank's width is to be aligned. */
static void say_head(const struct job *job, const struct model_shape *m, int64_t aligned,
		     struct buf *out)
{
	const char *between = out->len ? ", " : "";
	if (job->model.head_dim > 0)
		buf_printf(out,
			   "%smodel.head_dim = %" PRId64 " is not a multiple of %" PRId64
			   " (model.head_dim=%" PRId64 " is the next good one)",
			   between, m->head_dim, aligned, round_up_int64(m->head_dim, aligned));
	else
		buf_printf(out,
			   "%sa head of hidden / heads = %" PRId64 " is not a multiple of %" PRId64
			   " (model.hidden=%" PRId64 " is the next good one)",
			   between, m->head_dim, aligned, next_hidden(job, m, aligned));
}

static void say_hidden(const struct job *job, const struct model_shape *m, int64_t aligned,
		       struct buf *out)
{
	buf_printf(out,
		   "%smodel.hidden = %" PRId64 " is not a multiple of %" PRId64
		   " (model.hidden=%" PRId64 " is the next good one)",
		   out->len ? ", " : "", m->hidden, aligned, next_hidden(job, m, ALIGNED));
}

void plan_unaligned_print(const struct job *job, const struct model_shape *m,
			  const struct layout *l, struct buf *out)
{
	const bool eight = job->precision.fp8 != FP8_OFF;
	const int64_t aligned = eight ? ALIGNED_EIGHT : ALIGNED;
	struct buf sizes = BUF_INIT;
	if (job->job.device != DEVICE_CUDA)
		return;
	/* experts' products are never those of 8 bits */
	const bool ffn = say_cut("ffn", m->ffn, l->tp, CATALOGUE_FFN_GRAIN,
				 m->experts ? ALIGNED : aligned, &sizes);
	const size_t before = sizes.len;
	if (m->head_dim % ALIGNED || (eight && are_heads_unaligned(job, m, l)))
		say_head(job, m, aligned, &sizes);
	else if (m->hidden % aligned)
		say_hidden(job, m, aligned, &sizes);
	const bool many = eight && ((ffn && !m->experts) || sizes.len > before);
	if (sizes.len)
		buf_printf(out, "%s: products of such sizes are %s slower on a GPU",
			   buf_str(&sizes), many ? "many times" : "several times");
	buf_fini(&sizes);
}
