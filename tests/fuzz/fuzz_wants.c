/* Any bytes as the boxes that 3 ranks want: they are refused, or the plan of the load reads each
 * slice that a box touches once, in order. The first byte says where the lists are cut. */
#include "agent/engine/ckpt/load/turns.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, TENSORS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct ckpt_provider_ops anywhere = { .name = "anywhere" };

static struct manifest_slice slices[TENSORS][4] = {
	{ { .file = 0, .offset = 0, .lo = { 0, 0 }, .hi = { 40, 7 } },
	  { .file = 1, .offset = 0, .lo = { 0, 7 }, .hi = { 40, 9 } },
	  { .file = 1, .offset = 320, .lo = { 40, 0 }, .hi = { 41, 9 } },
	  { .file = 0, .offset = 1120, .lo = { 41, 0 }, .hi = { 100, 9 } } },
	{ { .file = 1, .offset = 356, .lo = { 0, 0 }, .hi = { 5, 1 } },
	  { .file = 0, .offset = 3244, .lo = { 5, 0 }, .hi = { 64, 1 } } },
};
static struct manifest_tensor tensors[TENSORS] = {
	{ .name = "w", .dims = 2, .shape = { 100, 9 }, .slices = slices[0], .n = 4 },
	{ .name = "b", .dims = 1, .shape = { 64, 1 }, .slices = slices[1], .n = 2 },
};

/* How far each slice has been read. */
struct progress {
	const struct pieces *p;
	int64_t *elements;
};

static void follow(void *arg, const struct turn *t)
{
	struct progress *x = arg;
	for (int i = 0; i < t->n; i++) {
		const struct segment *s = &t->segments[i];
		int64_t *at = &x->elements[s->slice - x->p->slices];
		if (s->n < 1 || s->first != *at || s->slice->reader != t->reader)
			abort();
		*at += s->n;
	}
}

static void run_plan(struct pieces *p, uint8_t limit)
{
	struct progress x = { p, calloc((size_t)p->n_slices + 1, sizeof *x.elements) };
	struct rounds_order *o;
	ckpt_turns_limit(p, 4 + limit, 4 + 3 * limit);
	if (!x.elements || ckpt_rounds_order_open(p, &o, NULL))
		abort();
	while (ckpt_rounds_order_next(o, follow, &x))
		;
	for (int64_t i = 0; i < p->n_slices; i++)
		if (x.elements[i] != p->slices[i].bytes / (int64_t)sizeof(float))
			abort();
	ckpt_rounds_order_close(o);
	free(x.elements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct manifest m = { .tensors = tensors, .n_tensors = TENSORS, .n_files = 2 };
	struct wants w = { 0 };
	struct ckpt_provider from = { &anywhere }, *provider = &from;
	struct pieces p;
	if (size < 1 || size > 4096)
		return 0;
	size_t rest = size - 1, first = data[0] % (rest + 1), second = (rest - first) / 2;
	const uint8_t *at = data + 1;
	const size_t sizes[RANKS] = { first, second, rest - first - second };
	int rc = 0;
	for (int r = 0; r < RANKS && !rc; at += sizes[r++])
		rc = ckpt_wants_decode(&m, r, at, sizes[r], &w, &e);
	if (!rc) {
		if (ckpt_pieces_init(&p, &m, &w, 0, RANKS, &provider, 1, &e))
			abort();
		run_plan(&p, data[0]);
		ckpt_pieces_fini(&p);
	}
	ckpt_wants_fini(&w);
	return 0;
}
