#include "agent/engine/ckpt/load/landing.h"

#include <stdlib.h>

int ckpt_landing_init(struct landing *l, const struct pieces *p, struct ckpt_tensor *tensors, int n,
		      struct err *e)
{
	*l = (struct landing){ p, tensors, calloc((size_t)n + 1, sizeof *l->boxes), n };
	if (!l->boxes)
		return err_set(e, ERR_NOMEM, "no memory for a list of %d boxes", n);
	for (int i = 0; i < n; i++) {
		struct landing_box *b = &l->boxes[i];
		b->box = ckpt_part_of(tensors[i].dims, tensors[i].lo, tensors[i].hi);
		b->left = ckpt_part_elements(&b->box);
	}
	for (int64_t i = 0; i < p->n_slices; i++) {
		const struct piece_slice *s = &p->slices[i];
		for (int64_t k = s->own; k < (s + 1)->own; k++) {
			struct landing_box *b = &l->boxes[p->own[k].index];
			b->gathers |= tensors[p->own[k].index].there &&
				      !(ckpt_part_is_run(&s->box, &p->own[k].cut) &&
					ckpt_part_is_run(&b->box, &p->own[k].cut));
		}
	}
	return 0;
}

void ckpt_landing_fini(struct landing *l)
{
	for (int i = 0; l->boxes && i < l->n; i++)
		free(l->boxes[i].host);
	free(l->boxes);
	*l = (struct landing){ 0 };
}

float *ckpt_landing_place(const struct landing *l, const struct piece_slice *s,
			  const struct part *cut, int64_t at, const struct piece_own **own)
{
	*own = NULL;
	for (int64_t k = s->own; k < (s + 1)->own; k++) {
		const struct piece_own *o = &l->p->own[k];
		const struct part *box = &l->boxes[o->index].box;
		if (l->tensors[o->index].there || ckpt_part_compare(&o->cut, cut) ||
		    !ckpt_part_is_run(box, cut))
			continue;
		*own = o;
		return l->tensors[o->index].data + ckpt_part_index(box, cut, at);
	}
	return NULL;
}

/* Copies consecutive elements to the device at once. */
static int put_run(const struct ckpt_tensor *t, const struct part *box, const struct part *cut,
		   const struct part *from, const float *data, int64_t first, int64_t n,
		   struct err *e)
{
	int64_t at = ckpt_part_count(from, cut, first),
		count = ckpt_part_count(from, cut, first + n) - at;
	if (!count)
		return 0;
	return t->there->put(t->there->arg, t->data + ckpt_part_index(box, cut, at),
			     data + (ckpt_part_index(from, cut, at) - first),
			     (size_t)count * sizeof *data, e);
}

/* Copies elements into the box's host memory, and the box to the device when it is complete. */
static int gather(const struct ckpt_tensor *t, struct landing_box *b, const struct part *cut,
		  const struct part *from, const float *data, int64_t first, int64_t n,
		  struct err *e)
{
	size_t bytes = (size_t)ckpt_part_elements(&b->box) * sizeof *data;
	int64_t count = ckpt_part_count(from, cut, first + n) - ckpt_part_count(from, cut, first);
	if (!count)
		return 0;
	if (!b->host && !(b->host = malloc(bytes)))
		return err_set(e, ERR_NOMEM,
			       "tensor %.95s: no memory for %zu bytes of it; close other programs",
			       t->name, bytes);
	ckpt_part_copy(from, data, first, n, &b->box, b->host, 0);
	b->left -= count;
	if (b->left)
		return 0;
	int rc = t->there->put(t->there->arg, t->data, b->host, bytes, e);
	free(b->host);
	b->host = NULL;
	return rc;
}

int ckpt_landing_take(struct landing *l, const struct piece_slice *s, const struct part *only,
		      const struct piece_own *done, const struct part *from, const float *data,
		      int64_t first, int64_t n, struct err *e)
{
	for (int64_t k = s->own; k < (s + 1)->own; k++) {
		const struct piece_own *o = &l->p->own[k];
		const struct ckpt_tensor *t = &l->tensors[o->index];
		struct landing_box *b = &l->boxes[o->index];
		int rc = 0;
		if (o == done || (only && ckpt_part_compare(&o->cut, only)))
			continue;
		if (!t->there)
			ckpt_part_copy(from, data, first, n, &b->box, t->data, 0);
		else if (b->gathers)
			rc = gather(t, b, &o->cut, from, data, first, n, e);
		else
			rc = put_run(t, &b->box, &o->cut, from, data, first, n, e);
		if (rc)
			return -1;
	}
	return 0;
}
