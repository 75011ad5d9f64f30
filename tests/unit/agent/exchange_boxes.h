/* exchange_boxes — what ranks that load a checkpoint together want of it: boxes of its tensors, which
 * each rank can also load by itself. The checkpoints, one of each layout, are written by
 * exchange_setup; their reads are counted. */
#ifndef MUSTER_TESTS_UNIT_AGENT_EXCHANGE_BOXES_H
#define MUSTER_TESTS_UNIT_AGENT_EXCHANGE_BOXES_H

#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/load/read.h"
#include "tests/unit/agent/ckpt_counted_storage.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/world.h"

#include <inttypes.h>

enum { LAYOUTS = 5, BOXES_MAX = 3 * FIX_TENSORS };

static const struct fix_layout layouts[LAYOUTS] = {
	{ 1, 1, 0 }, { 2, 1, 0 }, { 3, 2, 5 }, { 1, 3, 0 }, { 4, 1, 17 },
};
static struct counted *counted;
static uint64_t seed; /* MUSTER_SEED, or 1 */

/* --- random numbers, equal on all ranks --- */

struct dice {
	uint64_t trial, thrown;
};

static inline int64_t throw_dice(struct dice *d, int64_t below)
{
	uint32_t r[4];
	philox4(philox_key(seed, PHILOX_TEST, d->trial), d->thrown++, r);
	return (int64_t)(r[0] % (uint64_t)below);
}

/* --- memory of a device: ordinary memory, behind functions --- */

static inline int device_get(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	(void)arg, (void)e;
	memcpy(to, from, bytes);
	return 0;
}

static inline int device_put(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	(void)arg, (void)e;
	memcpy(to, from, bytes);
	return 0;
}

static const struct ckpt_memory device = { .get = device_get, .put = device_put };

/* --- boxes of a rank --- */

struct boxes {
	struct ckpt_tensor list[BOXES_MAX];
	int n;
};

static inline size_t bytes_of(const struct ckpt_tensor *t)
{
	return (size_t)((t->hi[0] - t->lo[0]) * (t->hi[1] - t->lo[1])) * sizeof(float);
}

static inline void add_box(struct boxes *b, int tensor, const int64_t lo[2], const int64_t hi[2],
			   bool there)
{
	struct ckpt_tensor *t = &b->list[b->n++];
	*t = fix_box(tensor, lo[0], hi[0], lo[1], hi[1]);
	memset(t->data, 0xee, bytes_of(t));
	t->there = there ? &device : NULL;
}

/* All boxes of a rank of the layout, some in device memory. */
static inline void layout_boxes(struct dice *d, const struct fix_layout *l, int rank,
				struct boxes *b)
{
	b->n = fix_rank(l, rank % (l->tp * l->pp), -1, true, b->list);
	for (int i = 0; i < b->n; i++) {
		memset(b->list[i].data, 0xee, bytes_of(&b->list[i]));
		b->list[i].there = throw_dice(d, 3) ? NULL : &device;
	}
}

/* Some boxes anywhere, which may overlap and be empty. */
static inline void random_boxes(struct dice *d, struct boxes *b)
{
	b->n = 0;
	for (int i = 0; i < FIX_TENSORS; i++)
		for (int64_t k = throw_dice(d, 4); k > 0; k--) {
			int64_t lo[2], hi[2];
			for (int j = 0; j < 2; j++) {
				int64_t most = fix_tensors[i].shape[j];
				lo[j] = throw_dice(d, most);
				hi[j] = lo[j] + throw_dice(d, most - lo[j] + 1);
			}
			if (fix_tensors[i].dims == 1) {
				lo[1] = 0;
				hi[1] = 1;
			}
			add_box(b, i, lo, hi, throw_dice(d, 3) == 0);
		}
}

static inline void free_boxes(struct boxes *b)
{
	fix_free(b->list, b->n);
}

/* Compares the boxes with those that this rank loads by itself. */
static inline int compare_alone(const struct boxes *b, const char *path, struct err *e)
{
	struct boxes alone = *b;
	int rc = 0;
	for (int i = 0; i < b->n; i++) {
		alone.list[i].data = malloc(bytes_of(&b->list[i]) + 1);
		memset(alone.list[i].data, 0xee, bytes_of(&b->list[i]));
		alone.list[i].there = NULL;
	}
	rc = ckpt_load(path, NULL, NULL, alone.list, alone.n, NULL, e);
	for (int i = 0; i < b->n && !rc; i++)
		if (memcmp(alone.list[i].data, b->list[i].data, bytes_of(&b->list[i])))
			rc = err_set(e, ERR_INTERNAL, "box %d, of %s, differs", i, b->list[i].name);
	free_boxes(&alone);
	return rc;
}

static inline const char *counted_path(int64_t step)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof path, "%s%s", COUNTED_SCHEME, fix_path(step, NULL));
	return path;
}

static inline struct ckpt_load_options options_of(int64_t step)
{
	return (struct ckpt_load_options){ .path = counted_path(step) };
}

static inline int load(struct comm *world, const struct ckpt_load_options *opt, struct boxes *b,
		       int *culprit, struct err *e)
{
	struct ckpt_state state;
	return ckpt_load_all(world, opt, &state, b->list, b->n, culprit, e);
}

/* --- for the group of tests --- */

/* Layout i is the checkpoint of step i + 1. */
static inline int exchange_setup(void **state)
{
	if (fix_setup(state) || !(counted = counted_open()))
		return -1;
	for (int i = 0; i < LAYOUTS; i++)
		fix_write(&layouts[i], i + 1);
	const char *given = getenv("MUSTER_SEED");
	seed = given ? strtoull(given, NULL, 10) : 1;
	printf("seed %" PRIu64 "\n", seed);
	return 0;
}

static inline int exchange_teardown(void **state)
{
	counted_close(counted);
	return fix_teardown(state);
}

#endif
