/*
 * narrow — storage of 2 bytes (bf16, fp16) for any fp32 backend.
 *
 * Its table of ops widens the operands of a call into fp32 scratch, calls the
 * fp32 backend's op on them and rounds what comes out to the nearest even. So
 * every sum is made in fp32 by code that is tested on its own, and a number is rounded
 * once, where it is stored.
 *
 * Scratch is fixed at backend_open: a lane of BACKEND_NARROW_LANE bytes a thread, counted by
 * backend_peak; no op needs more than that, or than one row takes, which
 * plan/spec/job/check_model.c holds to fit. There are two ways to use it:
 *
 *   lanes   a call is cut into tiles (rows, heads) that share nothing. Each
 *           thread takes tiles, keeps one in its caches from widening to
 *           narrowing, and runs the op with one thread.
 *   team    products, and ops that sum over rows: blocks follow one another, all threads work on
 *           each.
 *
 * Where tiles begin depends on shapes alone, but for products, whose blocks
 * grow with the number of lanes: the same bits for the same number of threads.
 */
#ifndef MUSTER_KERNELS_LOW_PRECISION_LOW_PRECISION_H
#define MUSTER_KERNELS_LOW_PRECISION_LOW_PRECISION_H

#include "kernels/backend.h"

/* One storage type as one instruction set converts it. Every set gives the same bits. */
struct low_precision_type {
	const char *name;
	void (*widen)(float *y, const uint16_t *x, int64_t n);
	/* Nearest even; too large becomes infinity, NaN stays NaN. */
	void (*narrow)(uint16_t *y, const float *x, int64_t n);
	/* Up with the probability of the part that is cut off: word first + i of the key's
	 * stream decides on x[i]. */
	void (*narrow_random)(uint16_t *y, const float *x, struct philox_key key, uint64_t first,
			      int64_t n);
};

enum { LOW_PRECISION_TYPES = 2 };

/* The tables of the instruction sets, from convert.c. */
#define LOW_PRECISION_PASTE(isa, name)  low_precision_##isa##_##name
#define LOW_PRECISION_EXPAND(isa, name) LOW_PRECISION_PASTE(isa, name)
#define LOW_PRECISION_DECLARE(isa) \
	extern const struct low_precision_type low_precision_##isa##_types[LOW_PRECISION_TYPES];
LOW_PRECISION_DECLARE(base)
LOW_PRECISION_DECLARE(v2)
LOW_PRECISION_DECLARE(v3)
LOW_PRECISION_DECLARE(v4)

struct narrow {
	const struct low_precision_type *type;
	struct ops wide; /* of the fp32 backend */
	float *arena;    /* one lane a thread; of backend_alloc */
	/* for the fp32 ops inside a lane: one thread, its part of the backend's scratch */
	struct backend *lanes;
	char name[32];
};

/* Scratch from which a call carves its operands: a lane, or all of them. */
struct tile {
	struct backend *k; /* what the fp32 ops get */
	const struct ops *wide;
	const struct low_precision_type *type;
	float *at, *end;
};

enum {
	LOW_PRECISION_LANE = BACKEND_NARROW_LANE / sizeof(float),
	/* floats that a tile of rows takes together: they stay in the second cache */
	LOW_PRECISION_TILE = 32 << 10,
	LOW_PRECISION_TEAM_TILE = 256 << 10 /* and of a block of rows that all threads share */
};

/* The whole arena for all threads. */
struct tile low_precision_tile_team(struct backend *k);
/* Room for `count` floats, aligned to 64 bytes. */
float *low_precision_tile_room(struct tile *t, int64_t count);
/* Room with x[first … first + count) in it; NULL for NULL. */
float *low_precision_tile_in(struct tile *t, const void *x, int64_t first, int64_t count);
/* The same of `cols` elements from each of `rows` rows that are `ld` apart; dense. */
float *low_precision_tile_in_rows(struct tile *t, const void *x, int64_t first, int64_t ld,
				  int64_t rows, int64_t cols);
/* Back into storage; nothing when y is NULL. */
void low_precision_tile_out(struct tile *t, void *y, int64_t first, int64_t count,
			    const float *from);
void low_precision_tile_out_rows(struct tile *t, void *y, int64_t first, int64_t ld, int64_t rows,
				 int64_t cols, const float *from);

/* One tile of a call: rows lo … lo + n. */
typedef void tile_fn(struct tile *t, const void *call, int64_t lo, int64_t n);

/* Calls fn for all n rows, `most` at a time, in lanes. */
void low_precision_tiles_run(struct backend *k, int64_t n, int64_t most, tile_fn *fn,
			     const void *call);
/* Rows of a tile when each takes `floats` of scratch. */
int64_t low_precision_tile_rows(int64_t floats);
/* The same for blocks of a team. */
int64_t low_precision_team_rows(int64_t floats);

/* The families: each enters its ops into the table. */
void low_precision_linear(struct ops *o);
void low_precision_norm(struct ops *o);
void low_precision_elements(struct ops *o);
void low_precision_rows(struct ops *o);
void low_precision_attention(struct ops *o);
void low_precision_xent(struct ops *o);

static inline int64_t narrow_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t narrow_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

#endif
