/* Tiles: scratch, conversions into and out of it, and the threads that process them. */
#include "base/numbers.h"
#include "kernels/low_precision/low_precision.h"

#include <omp.h>

/* PIECE: elements that one thread converts at a time; two pieces are worth a team. */
enum { PIECE = 16384, ALIGN = 16 };

struct tile low_precision_tile_team(struct backend *k)
{
	struct low_precision *n = k->low_precision;
	return (struct tile){ k, &n->fp32, n->type, n->arena,
			      n->arena + (int64_t)k->threads * LOW_PRECISION_LANE };
}

static struct tile tile_lane(struct backend *k, int lane)
{
	struct low_precision *n = k->low_precision;
	float *at = n->arena + (int64_t)lane * LOW_PRECISION_LANE;
	return (struct tile){ &n->lanes[lane], &n->fp32, n->type, at, at + LOW_PRECISION_LANE };
}

float *low_precision_tile_room(struct tile *t, int64_t count)
{
	float *room = t->at;
	t->at += (count + ALIGN - 1) / ALIGN * ALIGN;
	return room;
}

float *low_precision_tile_in(struct tile *t, const void *x, int64_t first, int64_t count)
{
	return low_precision_tile_in_rows(t, x, first, count, 1, count);
}

void low_precision_tile_out(struct tile *t, void *y, int64_t first, int64_t count,
			    const float *from)
{
	low_precision_tile_out_rows(t, y, first, count, 1, count, from);
}

/* The rows of a conversion, `ld` elements from one to the next in storage and dense in scratch,
 * split into pieces. */
struct rows {
	const struct low_precision_type *type;
	uint16_t *stored;
	float *scratch;
	int64_t ld, rows, cols, pieces;
	bool out;
};

static void convert_piece(const struct rows *r, int64_t i)
{
	int64_t row = i / r->pieces, lo = i % r->pieces * PIECE, n = min_int64(PIECE, r->cols - lo);
	uint16_t *stored = r->stored + row * r->ld + lo;
	float *scratch = r->scratch + row * r->cols + lo;
	if (r->out)
		r->type->from_fp32(stored, scratch, n);
	else
		r->type->to_fp32(scratch, stored, n);
}

/* Without a team there is no parallel region: inside a lane it would cost more than the
 * conversion. */
static void convert(const struct tile *t, const struct rows *r)
{
	int64_t pieces = r->rows * r->pieces;
	if (t->k->threads == 1 || r->rows * r->cols < 2 * PIECE) {
		for (int64_t i = 0; i < pieces; i++)
			convert_piece(r, i);
		return;
	}
	#pragma omp parallel for schedule(static) num_threads(t->k->threads)
	for (int64_t i = 0; i < pieces; i++)
		convert_piece(r, i);
}

float *low_precision_tile_in_rows(struct tile *t, const void *x, int64_t first, int64_t ld,
				  int64_t rows, int64_t cols)
{
	if (!x)
		return NULL;
	float *y = low_precision_tile_room(t, rows * cols);
	convert(t, &(struct rows){ t->type, (uint16_t *)x + first, y, ld, rows, cols,
				   (cols + PIECE - 1) / PIECE, false });
	return y;
}

void low_precision_tile_out_rows(struct tile *t, void *y, int64_t first, int64_t ld, int64_t rows,
				 int64_t cols, const float *from)
{
	if (y)
		convert(t, &(struct rows){ t->type, (uint16_t *)y + first, (float *)from, ld, rows,
					   cols, (cols + PIECE - 1) / PIECE, true });
}

int64_t low_precision_tile_rows(int64_t floats)
{
	return max_int64(1, LOW_PRECISION_TILE / floats);
}

int64_t low_precision_team_rows(int64_t floats)
{
	return max_int64(1, LOW_PRECISION_TEAM_TILE / floats);
}

static void run_one(struct backend *k, int lane, int64_t i, int64_t n, int64_t most, tile_fn *fn,
		    const void *call)
{
	struct tile t = tile_lane(k, lane);
	fn(&t, call, i * most, min_int64(most, n - i * most));
}

void low_precision_tiles_run(struct backend *k, int64_t n, int64_t most, tile_fn *fn,
			     const void *call)
{
	int64_t tiles = (n + most - 1) / most;
	int team = (int)min_int64(tiles, k->threads);
	if (team <= 1) {
		for (int64_t i = 0; i < tiles; i++)
			run_one(k, 0, i, n, most, fn, call);
		return;
	}
	#pragma omp parallel for schedule(static) num_threads(team)
	for (int64_t i = 0; i < tiles; i++)
		run_one(k, omp_get_thread_num(), i, n, most, fn, call);
}
