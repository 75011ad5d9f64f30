#include "agent/engine/ckpt/places/diff.h"

#include "agent/engine/ckpt/load/read.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One of the two checkpoints. */
struct side {
	const struct manifest *m;
	struct ckpt_reader *reader;
};

/* A tensor while it is compared. */
struct comparison {
	const struct manifest_tensor *a, *b;
	bool sums; /* both have sums */
	struct ckpt_diff_tensor found;
	double difference, norm; /* squares */
	int64_t read;            /* bytes */
};

static bool is_before(const int64_t *x, const int64_t *y)
{
	return x[0] < y[0] || (x[0] == y[0] && x[1] < y[1]);
}

static void compare_element(struct comparison *c, float a, float b, int64_t row, int64_t column)
{
	struct ckpt_diff_tensor *f = &c->found;
	int64_t at[2] = { row, column };
	bool finite = isfinite(a) && isfinite(b);
	double d = (double)a - (double)b;
	if (finite)
		c->norm += (double)a * (double)a;
	if (!memcmp(&a, &b, sizeof a))
		return;
	if (f->count++ == 0 || is_before(at, f->first))
		memcpy(f->first, at, sizeof at);
	f->not_finite += !finite;
	if (!finite)
		return;
	c->difference += d * d;
	f->max_abs = fmax(f->max_abs, fabs(d));
}

static void compare_box(struct comparison *c, const struct ckpt_tensor *a, const float *b)
{
	int64_t width = a->dims == 2 ? a->hi[1] - a->lo[1] : 1;
	for (int64_t i = a->lo[0], at = 0; i < a->hi[0]; i++)
		for (int64_t j = 0; j < width; j++, at++)
			compare_element(c, a->data[at], b[at], i, a->dims == 2 ? a->lo[1] + j : 0);
}

static bool is_same_box(const struct manifest_slice *x, const struct manifest_slice *y)
{
	return !memcmp(x->lo, y->lo, sizeof x->lo) && !memcmp(x->hi, y->hi, sizeof x->hi);
}

/* Whether the slice of one is known to be equal in the other without reading it. */
static bool is_equal_unread(const struct comparison *c, const struct manifest_slice *s,
			    const struct manifest_tensor *other)
{
	int64_t first, last;
	for (int64_t i = 0; i < other->n; i++)
		if (is_same_box(s, &other->slices[i]))
			return ckpt_digest_equal(&s->digest, &other->slices[i].digest);
	if (!c->sums)
		return false;
	ckpt_blocks_touched(c->a->dims, c->a->shape, s->lo, s->hi, &first, &last);
	for (int64_t i = first; i <= last; i++)
		if (ckpt_sums_get(&c->a->sums, i) != ckpt_sums_get(&c->b->sums, i))
			return false;
	return true;
}

/* Fills the box from the slices of one side. */
static int fill_box(struct comparison *c, const struct side *from, const struct manifest_tensor *t,
		    const struct ckpt_tensor *box, struct err *e)
{
	for (int64_t i = 0; i < t->n; i++) {
		if (!ckpt_boxes_touch(t->dims, &t->slices[i], box))
			continue;
		if (ckpt_reader_slice(from->reader, t, &t->slices[i], box, 1, e))
			return -1;
		c->read += ckpt_slice_bytes(&t->slices[i]);
	}
	return 0;
}

/* Reads the box of a slice from both sides. */
static int compare_slice(struct comparison *c, const struct side *a, const struct side *b,
			 const struct manifest_slice *s, struct err *e)
{
	size_t bytes = (size_t)ckpt_slice_bytes(s);
	struct ckpt_tensor box = { .dims = c->a->dims,
				   .shape = { c->a->shape[0], c->a->shape[1] },
				   .lo = { s->lo[0], s->lo[1] },
				   .hi = { s->hi[0], s->hi[1] },
				   .data = malloc(bytes) };
	struct ckpt_tensor other = box;
	other.data = malloc(bytes);
	int rc = box.data && other.data ? 0
					: err_set(e, ERR_NOMEM,
						  "tensor %s: no memory for two of its slices, "
						  "%zu bytes each; close other programs",
						  c->a->name, bytes);
	if (!rc)
		rc = fill_box(c, a, c->a, &box, e) || fill_box(c, b, c->b, &other, e) ? -1 : 0;
	if (!rc)
		compare_box(c, &box, other.data);
	free(box.data);
	free(other.data);
	return rc;
}

static int compare_values(struct comparison *c, const struct side *a, const struct side *b,
			  struct err *e)
{
	bool fewer = c->b->n < c->a->n;
	const struct manifest_tensor *outer = fewer ? c->b : c->a, *inner = fewer ? c->a : c->b;
	if (c->sums && ckpt_sums_equal(&c->a->sums, &c->b->sums))
		return 0;
	for (int64_t i = 0; i < outer->n; i++)
		if (!is_equal_unread(c, &outer->slices[i], inner) &&
		    compare_slice(c, a, b, &outer->slices[i], e))
			return -1;
	c->found.relative = c->difference > 0 ? sqrt(c->difference / c->norm)
					      : 0; /* a norm of 0: infinite */
	if (c->sums && c->found.count == 0)
		return err_set(e, ERR_CORRUPT,
			       "tensor %s: its elements are equal, but the sums of its blocks are "
			       "not: verify both checkpoints",
			       c->a->name);
	return 0;
}

/* Compares the tensor of A with the one of B, which may be NULL. */
static int compare_tensor(struct comparison *c, const struct side *a, const struct side *b,
			  struct err *e)
{
	const struct manifest_tensor *x = c->a, *y = c->b;
	c->found = (struct ckpt_diff_tensor){ .name = x->name,
					      .dims = x->dims,
					      .elements = x->shape[0] * x->shape[1] };
	c->sums = y && x->has_sums && y->has_sums;
	if (!y)
		c->found.kind = CKPT_DIFF_ONLY_A;
	else if (x->dims != y->dims || x->shape[0] != y->shape[0] || x->shape[1] != y->shape[1])
		c->found.kind = CKPT_DIFF_SHAPE;
	else
		return compare_values(c, a, b, e);
	return 0;
}

static int diff_tensors(const struct side *a, const struct side *b,
			int (*visit)(void *arg, const struct ckpt_diff_tensor *t, struct err *e),
			void *arg, struct ckpt_diff *out, struct err *e)
{
	for (int64_t i = 0; i < a->m->n_tensors; i++) {
		struct comparison c = { .a = &a->m->tensors[i] };
		c.b = ckpt_manifest_find(b->m, c.a->name);
		if (compare_tensor(&c, a, b, e))
			return -1;
		out->tensors++;
		out->read += c.read;
		if (c.found.kind == CKPT_DIFF_VALUES && c.found.count == 0)
			continue;
		out->differing++;
		if (visit(arg, &c.found, e))
			return -1;
	}
	for (int64_t i = 0; i < b->m->n_tensors; i++) {
		const struct manifest_tensor *t = &b->m->tensors[i];
		struct ckpt_diff_tensor only = { .name = t->name,
						 .kind = CKPT_DIFF_ONLY_B,
						 .dims = t->dims,
						 .elements = t->shape[0] * t->shape[1] };
		if (ckpt_manifest_find(a->m, t->name))
			continue;
		out->tensors++;
		out->differing++;
		if (visit(arg, &only, e))
			return -1;
	}
	return 0;
}

static int64_t tensor_bytes(const struct manifest *m)
{
	int64_t bytes = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		bytes += m->tensors[i].shape[0] * m->tensors[i].shape[1] * (int64_t)sizeof(float);
	return bytes;
}

int ckpt_diff(const char *a, const struct manifest *ma, const char *b, const struct manifest *mb,
	      int (*visit)(void *arg, const struct ckpt_diff_tensor *t, struct err *e), void *arg,
	      struct ckpt_diff *out, struct err *e)
{
	struct side sa = { .m = ma }, sb = { .m = mb };
	struct ckpt_diff d = { 0 };
	int rc = ckpt_reader_open(a, ma, NULL, &sa.reader, e) ||
				 ckpt_reader_open(b, mb, NULL, &sb.reader, e) ||
				 diff_tensors(&sa, &sb, visit, arg, &d, e)
			 ? -1
			 : 0;
	ckpt_reader_close(sa.reader);
	ckpt_reader_close(sb.reader);
	d.skipped = tensor_bytes(ma) + tensor_bytes(mb) - d.read;
	if (d.skipped < 0)
		d.skipped = 0; /* slices that cross were read more than once */
	if (!rc)
		*out = d;
	return rc;
}
