#include "agent/engine/ckpt/format/state_digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Leaves are digested this many at a time. */
enum { LEAVES = 64 };

static void put_leaf(unsigned char *to, ckpt_sum sum)
{
	for (int i = CKPT_SUM_BYTES - 1; i >= 0; i--, sum >>= 8)
		to[i] = (unsigned char)sum;
}

static struct digest digest_leaves(const struct manifest_tensor *t, struct digester *d)
{
	int64_t n = ckpt_blocks_of(t->dims, t->shape).n;
	unsigned char leaves[LEAVES * CKPT_SUM_BYTES];
	int held = 0;
	ckpt_digester_start(d);
	for (int64_t i = 0; i < n; i++) {
		put_leaf(leaves + held++ * CKPT_SUM_BYTES, ckpt_sums_get(&t->sums, i));
		if (held == LEAVES || i == n - 1) {
			ckpt_digester_add(d, leaves, (size_t)held * CKPT_SUM_BYTES);
			held = 0;
		}
	}
	return ckpt_digester_end(d);
}

static int by_name(const void *a, const void *b)
{
	const struct manifest_tensor *x = *(const struct manifest_tensor *const *)a,
				     *y = *(const struct manifest_tensor *const *)b;
	return strcmp(x->name, y->name);
}

static int by_number_name(const void *a, const void *b)
{
	return strcmp(((const struct ckpt_number *)a)->name, ((const struct ckpt_number *)b)->name);
}

static void write_state(const struct ckpt_state *s, struct buf *out)
{
	struct ckpt_number numbers[CKPT_NUMBERS];
	size_t n = (size_t)s->n_numbers;
	buf_printf(out,
		   "muster-state 1\nstep %" PRId64 "\nsamples %" PRId64 "\ntotal_steps %" PRId64
		   "\nseed %" PRIu64 "\noptimizer %s\n",
		   s->step, s->samples, s->total_steps, s->seed, s->optimizer);
	if (s->data.samples)
		buf_printf(out, "data %" PRId64 " %.17g\n", s->data.samples, s->data.validation);
	memcpy(numbers, s->numbers, sizeof numbers);
	qsort(numbers, n, sizeof *numbers, by_number_name);
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "number %s %.17g\n", numbers[i].name, numbers[i].value);
}

static void write_tensors(const struct manifest_tensor **list, int64_t n, struct digester *d,
			  struct buf *out)
{
	for (int64_t i = 0; i < n; i++) {
		char hex[DIGEST_HEX];
		struct digest leaves = digest_leaves(list[i], d);
		ckpt_digest_hex(&leaves, hex);
		buf_printf(out, "tensor %s %" PRId64 " %" PRId64 " %s\n", list[i]->name,
			   list[i]->shape[0], list[i]->shape[1], hex);
	}
}

int ckpt_state_digest(const struct manifest *m, struct digest *out, struct err *e)
{
	int64_t summed = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		summed += m->tensors[i].has_sums;
	if (summed == 0 || summed < m->n_tensors)
		return 0;
	const struct manifest_tensor **list = malloc((size_t)(m->n_tensors + 1) * sizeof *list);
	struct digester *d = ckpt_digester_open();
	struct buf text = BUF_INIT;
	if (list && d) {
		for (int64_t i = 0; i < m->n_tensors; i++)
			list[i] = &m->tensors[i];
		qsort(list, (size_t)m->n_tensors, sizeof *list, by_name);
		write_state(&m->state, &text);
		write_tensors(list, m->n_tensors, d, &text);
	}
	int rc = list && d && !buf_failed(&text)
			 ? 1
			 : err_set(e, ERR_NOMEM, "no memory for the digest of %" PRId64 " tensors",
				   m->n_tensors);
	if (rc > 0)
		*out = ckpt_digest_of(text.data, text.len);
	buf_fini(&text);
	ckpt_digester_close(d);
	free(list);
	return rc;
}
