#include "agent/engine/ckpt/load/wants.h"

#include "agent/engine/ckpt/load/load.h"
#include "base/list.h"

#include <limits.h>
#include <stdlib.h>

enum { NUMBERS = 6, DIGIT = 7, MORE = 1 << DIGIT };

static void put_number(struct buf *out, uint64_t x)
{
	unsigned char byte;
	for (; x >= MORE; x >>= DIGIT) {
		byte = (unsigned char)(x | MORE);
		buf_add(out, &byte, 1);
	}
	byte = (unsigned char)x;
	buf_add(out, &byte, 1);
}

int ckpt_wants_encode(const struct manifest *m, const struct ckpt_tensor *tensors, int n,
		      struct buf *out, struct err *e)
{
	for (int i = 0, last = 0; i < n; i++) {
		const struct manifest_tensor *have;
		if (ckpt_load_find(m, &tensors[i], &have, e))
			return -1;
		struct part box = ckpt_part_of(tensors[i].dims, tensors[i].lo, tensors[i].hi);
		if (!have || !ckpt_part_elements(&box))
			continue;
		put_number(out, (uint64_t)(i - last));
		put_number(out, (uint64_t)(have - m->tensors));
		for (int d = 0; d < 2; d++) {
			put_number(out, (uint64_t)box.lo[d]);
			put_number(out, (uint64_t)(box.hi[d] - box.lo[d]));
		}
		last = i;
	}
	return out->failed ? err_set(e, ERR_NOMEM, "no memory for a list of %d boxes", n) : 0;
}

/* Returns the byte after the number; NULL if there is none, or if it exceeds INT64_MAX. */
static const unsigned char *get_number(const unsigned char *at, const unsigned char *end,
				       int64_t *out)
{
	uint64_t x = 0;
	for (int shift = 0; at < end && shift < 63; shift += DIGIT) {
		x |= (uint64_t)(*at & (MORE - 1)) << shift;
		if (*at++ & MORE)
			continue;
		*out = (int64_t)x;
		return at;
	}
	return NULL;
}

/* Sets lo and hi from a first index and a count below `most`. */
static bool set_range(int64_t first, int64_t count, int64_t most, int64_t *lo, int64_t *hi)
{
	if (first >= most || count < 1 || count > most - first)
		return false;
	*lo = first;
	*hi = first + count;
	return true;
}

static bool set_want(const struct manifest *m, const int64_t x[NUMBERS], struct want *w)
{
	if (x[0] > INT_MAX - w->index || x[1] >= m->n_tensors)
		return false;
	const struct manifest_tensor *t = &m->tensors[x[1]];
	int64_t rows = t->dims == 1 ? 1 : t->shape[0],
		columns = t->dims == 1 ? t->shape[0] : t->shape[1];
	w->index += (int)x[0];
	w->tensor = x[1];
	return set_range(x[2], x[3], rows, &w->box.lo[0], &w->box.hi[0]) &&
	       set_range(x[4], x[5], columns, &w->box.lo[1], &w->box.hi[1]);
}

static int add_want(struct wants *w, const struct want *one, struct err *e)
{
	struct want *list = list_grow(w->list, w->n, &w->room, 256, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for a list of %lld boxes",
			       (long long)(2 * w->n));
	w->list = list;
	w->list[w->n++] = *one;
	return 0;
}

int ckpt_wants_decode(const struct manifest *m, int rank, const void *data, size_t bytes,
		      struct wants *w, struct err *e)
{
	const unsigned char *at = data, *end = at + bytes;
	struct want one = { .rank = rank };
	while (at != end) {
		int64_t x[NUMBERS];
		for (int i = 0; i < NUMBERS && at; i++)
			at = get_number(at, end, &x[i]);
		if (!at || !set_want(m, x, &one))
			return err_set(e, ERR_PROTO,
				       "rank %d wants a box that the checkpoint cannot have", rank);
		if (add_want(w, &one, e))
			return -1;
	}
	return 0;
}

void ckpt_wants_fini(struct wants *w)
{
	free(w->list);
	*w = (struct wants){ 0 };
}
