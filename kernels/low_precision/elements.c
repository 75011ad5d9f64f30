/* Ops over elements and over rows that do not depend on each other. */
#include "base/numbers.h"
#include "kernels/low_precision/low_precision.h"

/* The operands of a call. Each op uses those that it needs. */
struct call {
	void *y;
	const void *x, *x2;
	int64_t c;
	const int64_t *rows;
	const struct dropout *drop;
};

/* --- elements alone: c is not used --- */

static void gelu_fwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *x = low_precision_tile_in(t, a->x, lo, n);
	t->fp32->gelu_fwd(t->k, x, x, n);
	low_precision_tile_out(t, a->y, lo, n, x);
}

static void gelu_fwd(struct backend *k, void *y, const void *x, int64_t count)
{
	low_precision_tiles_run(k, count, low_precision_tile_rows(1), gelu_fwd_tile,
				&(struct call){ .y = y, .x = x });
}

static void gelu_bwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *dy = low_precision_tile_in(t, a->x2, lo, n),
	      *x = low_precision_tile_in(t, a->x, lo, n);
	t->fp32->gelu_bwd(t->k, dy, dy, x, n);
	low_precision_tile_out(t, a->y, lo, n, dy);
}

static void gelu_bwd(struct backend *k, void *dx, const void *dy, const void *x, int64_t count)
{
	low_precision_tiles_run(k, count, low_precision_tile_rows(2), gelu_bwd_tile,
				&(struct call){ .y = dx, .x = x, .x2 = dy });
}

static void add_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *y = low_precision_tile_in(t, a->y, lo, n),
	      *x = low_precision_tile_in(t, a->x, lo, n);
	t->fp32->add(t->k, y, x, n);
	low_precision_tile_out(t, a->y, lo, n, y);
}

static void add(struct backend *k, void *y, const void *x, int64_t count)
{
	low_precision_tiles_run(k, count, low_precision_tile_rows(2), add_tile,
				&(struct call){ .y = y, .x = x });
}

/* --- rows of c --- */

static void swiglu_fwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *gu = low_precision_tile_in(t, a->x, lo * 2 * a->c, n * 2 * a->c),
	      *y = low_precision_tile_room(t, n * a->c);
	t->fp32->swiglu_fwd(t->k, y, gu, n, a->c);
	low_precision_tile_out(t, a->y, lo * a->c, n * a->c, y);
}

static void swiglu_fwd(struct backend *k, void *y, const void *gu, int64_t n, int64_t f)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(3 * f), swiglu_fwd_tile,
				&(struct call){ .y = y, .x = gu, .c = f });
}

static void swiglu_bwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *gu = low_precision_tile_in(t, a->x, lo * 2 * a->c, n * 2 * a->c),
	      *dy = low_precision_tile_in(t, a->x2, lo * a->c, n * a->c);
	float *dgu = low_precision_tile_room(t, n * 2 * a->c);
	t->fp32->swiglu_bwd(t->k, dgu, dy, gu, n, a->c);
	low_precision_tile_out(t, a->y, lo * 2 * a->c, n * 2 * a->c, dgu);
}

static void swiglu_bwd(struct backend *k, void *dgu, const void *dy, const void *gu, int64_t n,
		       int64_t f)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(5 * f), swiglu_bwd_tile,
				&(struct call){ .y = dgu, .x = gu, .x2 = dy, .c = f });
}

static void add_bias_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *y = low_precision_tile_in(t, a->y, lo * a->c, n * a->c),
	      *bias = low_precision_tile_in(t, a->x, 0, a->c);
	t->fp32->add_bias(t->k, y, bias, n, a->c);
	low_precision_tile_out(t, a->y, lo * a->c, n * a->c, y);
}

static void add_bias(struct backend *k, void *x, const void *bias, int64_t n, int64_t c)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(c), add_bias_tile,
				&(struct call){ .y = x, .x = bias, .c = c });
}

static void dropout_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct call *a = callv;
	float *x = low_precision_tile_in(t, a->x, lo * a->c, n * a->c);
	t->fp32->dropout(t->k, x, x, a->rows + lo, n, a->c, a->drop);
	low_precision_tile_out(t, a->y, lo * a->c, n * a->c, x);
}

static void dropout(struct backend *k, void *y, const void *x, const int64_t *rows, int64_t n,
		    int64_t c, const struct dropout *d)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(c), dropout_tile,
				&(struct call){ .y = y, .x = x, .c = c, .rows = rows, .drop = d });
}

/* --- sums over rows: by all threads, block after block --- */

static void sum_rows(struct backend *k, float *out, const void *x, int64_t n, int64_t c, bool add)
{
	int64_t most = low_precision_team_rows(c);
	for (int64_t lo = 0; lo < n || (lo == 0 && !add); lo += most) {
		struct tile t = low_precision_tile_team(k);
		int64_t rows = min_int64(most, n - lo);
		t.fp32->sum_rows(k, out, low_precision_tile_in(&t, x, lo * c, rows * c), rows, c,
				 add || lo);
	}
}

/* --- the conversions themselves --- */

/* Elements that a thread converts at a time. */
enum { PIECE = 4096 };

static void storage_to_fp32(struct backend *k, float *y, const void *x, int64_t count)
{
	const struct low_precision_type *type = k->low_precision->type;
	int team = count < 2 * PIECE ? 1 : k->threads;
	#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
	for (int64_t i = 0; i < count; i += PIECE)
		type->to_fp32(y + i, (const uint16_t *)x + i, min_int64(PIECE, count - i));
}

static void fp32_to_storage(struct backend *k, void *yv, const float *x, int64_t count,
			    const struct philox_key *key, uint64_t first)
{
	const struct low_precision_type *type = k->low_precision->type;
	uint16_t *y = yv;
	int team = count < 2 * PIECE ? 1 : k->threads;
	#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
	for (int64_t i = 0; i < count; i += PIECE) {
		int64_t n = min_int64(PIECE, count - i);
		if (key)
			type->from_fp32_random(y + i, x + i, *key, first + (uint64_t)i, n);
		else
			type->from_fp32(y + i, x + i, n);
	}
}

void low_precision_elements(struct ops *o)
{
	o->gelu_fwd = gelu_fwd;
	o->gelu_bwd = gelu_bwd;
	o->swiglu_fwd = swiglu_fwd;
	o->swiglu_bwd = swiglu_bwd;
	o->add = add;
	o->add_bias = add_bias;
	o->dropout = dropout;
	o->sum_rows = sum_rows;
	o->storage_to_fp32 = storage_to_fp32;
	o->fp32_to_storage = fp32_to_storage;
}
