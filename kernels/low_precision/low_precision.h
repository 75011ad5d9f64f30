/*
 * low_precision — storage of 2 bytes (bf16, fp16) over any fp32 backend.
 *
 * Its ops convert the operands of a call to fp32 scratch, call the fp32 backend's op on them, and
 * round the results to the nearest even. So every sum is made in fp32 by code that is tested on its
 * own, and a number is rounded once, where it is stored.
 *
 * The scratch is allocated at backend_open: a lane of BACKEND_LOW_PRECISION_LANE bytes per thread,
 * which backend_peak counts. No op needs more than that, and one row fits, which
 * plan/spec/job/check_model.c checks. There are two ways to use it:
 *
 *   lanes   A call is split into tiles (rows, heads) that share nothing. Each thread takes tiles,
 *           keeps one in its caches from the first conversion to the last, and runs the op with one
 *           thread.
 *   team    For products, and for ops that sum over rows: all threads work on one block, then on the
 *           next.
 *
 * Where tiles begin depends on shapes alone, except in products, whose blocks grow with the number
 * of lanes. The same number of threads gives the same bits.
 */
#ifndef MUSTER_KERNELS_LOW_PRECISION_LOW_PRECISION_H
#define MUSTER_KERNELS_LOW_PRECISION_LOW_PRECISION_H

#include "kernels/backend.h"

/* The conversions of one storage type, built for one instruction set. All sets give the same bits. */
struct low_precision_type {
	const char *name;
	void (*to_fp32)(float *y, const uint16_t *x, int64_t n);
	/* To the nearest even. A number that is too large becomes infinity; NaN stays NaN. */
	void (*from_fp32)(uint16_t *y, const float *x, int64_t n);
	/* Rounds up with the probability of the part that is cut off. Word first + i of the key's
	 * stream decides on x[i]. */
	void (*from_fp32_random)(uint16_t *y, const float *x, struct philox_key key, uint64_t first,
				 int64_t n);
};

enum { LOW_PRECISION_TYPES = 2 };

/* low_precision_<isa>_types, from convert.c. */
#define LOW_PRECISION_PASTE(isa, name)  low_precision_##isa##_##name
#define LOW_PRECISION_EXPAND(isa, name) LOW_PRECISION_PASTE(isa, name)
#define LOW_PRECISION_DECLARE(isa) \
	extern const struct low_precision_type low_precision_##isa##_types[LOW_PRECISION_TYPES];
LOW_PRECISION_DECLARE(base)
LOW_PRECISION_DECLARE(v2)
LOW_PRECISION_DECLARE(v3)
LOW_PRECISION_DECLARE(v4)

struct low_precision {
	const struct low_precision_type *type;
	struct ops fp32; /* of the fp32 backend */
	float *arena;    /* one lane per thread, from backend_alloc */
	/* what the fp32 ops inside a lane get: one thread, and its own scratch */
	struct backend *lanes;
	char name[32];
};

/* Scratch from which a call allocates its fp32 operands: one lane, or all of them. */
struct tile {
	struct backend *k; /* what the fp32 ops get */
	const struct ops *fp32;
	const struct low_precision_type *type;
	float *at, *end; /* what is still free */
};

enum {
	LOW_PRECISION_LANE = BACKEND_LOW_PRECISION_LANE / sizeof(float), /* floats */
	/* floats of all operands of a tile of rows: they stay in the L2 cache */
	LOW_PRECISION_TILE = 32 << 10,
	/* floats of all operands of a block of rows that all threads share */
	LOW_PRECISION_TEAM_TILE = 256 << 10
};

/* All lanes as one, for all threads. */
struct tile low_precision_tile_team(struct backend *k);
/* Allocates `count` floats, aligned to 64 bytes. */
float *low_precision_tile_room(struct tile *t, int64_t count);
/* Allocates and converts x[first … first + count). NULL for x = NULL. */
float *low_precision_tile_in(struct tile *t, const void *x, int64_t first, int64_t count);
/* Allocates and converts `cols` elements from each of `rows` rows. Row i begins at element
 * first + i * ld of x; the result has no gaps. */
float *low_precision_tile_in_rows(struct tile *t, const void *x, int64_t first, int64_t ld,
				  int64_t rows, int64_t cols);
/* Converts to the storage type, into y[first … first + count). Does nothing if y is NULL. */
void low_precision_tile_out(struct tile *t, void *y, int64_t first, int64_t count,
			    const float *from);
void low_precision_tile_out_rows(struct tile *t, void *y, int64_t first, int64_t ld, int64_t rows,
				 int64_t cols, const float *from);

/* One tile of a call: rows lo … lo + n. */
typedef void tile_fn(struct tile *t, const void *call, int64_t lo, int64_t n);

/* Calls fn for all n rows, at most `most` at a time, in lanes. */
void low_precision_tiles_run(struct backend *k, int64_t n, int64_t most, tile_fn *fn,
			     const void *call);
/* The rows of a tile whose rows take `floats` of scratch each; at least 1. */
int64_t low_precision_tile_rows(int64_t floats);
/* The rows of a block that all threads share; at least 1. */
int64_t low_precision_team_rows(int64_t floats);

/* The families: each enters its ops into the table. To add one, add its file (the build finds it),
 * declare it here, and call it in low_precision.c. */
void low_precision_linear(struct ops *o);
void low_precision_norm(struct ops *o);
void low_precision_elements(struct ops *o);
void low_precision_rows(struct ops *o);
void low_precision_attention(struct ops *o);
void low_precision_xent(struct ops *o);

#endif
