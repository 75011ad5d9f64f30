/* Tiles: scratch, conversions into and out of it, and the threads that take them. */
#include "kernels/narrow/narrow.h"

#include <omp.h>

/* Elements that one thread converts at a time, and what makes a team worth its start. */
enum { PIECE = 16384, ALIGN = 16 };

struct tile tile_team(struct kern *k)
{
	struct narrow *n = k->narrow;
	return (struct tile){ k, &n->wide, n->type, n->arena, n->arena + (int64_t)k->threads * NARROW_LANE };
}

static struct tile tile_lane(struct kern *k, int lane)
{
	struct narrow *n = k->narrow;
	float *at = n->arena + (int64_t)lane * NARROW_LANE;
	return (struct tile){ &n->lanes[lane], &n->wide, n->type, at, at + NARROW_LANE };
}

float *tile_room(struct tile *t, int64_t count)
{
	float *room = t->at;
	t->at += (count + ALIGN - 1) / ALIGN * ALIGN;
	return room;
}

float *tile_in(struct tile *t, const void *x, int64_t first, int64_t count)
{
	return tile_in_rows(t, x, first, count, 1, count);
}

void tile_out(struct tile *t, void *y, int64_t first, int64_t count, const float *from)
{
	tile_out_rows(t, y, first, count, 1, count, from);
}

/* Each of `rows` rows in pieces of at most PIECE; team or not, the same conversions. */
static int team_of(const struct tile *t, int64_t count)
{
	return count < 2 * PIECE ? 1 : t->k->threads;
}

float *tile_in_rows(struct tile *t, const void *xv, int64_t first, int64_t ld, int64_t rows, int64_t cols)
{
	if (!xv)
		return NULL;
	const uint16_t *x = (const uint16_t *)xv + first;
	float *y = tile_room(t, rows * cols);
	int64_t pieces = (cols + PIECE - 1) / PIECE;
	int team = team_of(t, rows * cols);
	#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
	for (int64_t i = 0; i < rows * pieces; i++) {
		int64_t row = i / pieces, lo = i % pieces * PIECE;
		t->type->widen(y + row * cols + lo, x + row * ld + lo, narrow_min(PIECE, cols - lo));
	}
	return y;
}

void tile_out_rows(struct tile *t, void *yv, int64_t first, int64_t ld, int64_t rows, int64_t cols, const float *from)
{
	if (!yv)
		return;
	uint16_t *y = (uint16_t *)yv + first;
	int64_t pieces = (cols + PIECE - 1) / PIECE;
	int team = team_of(t, rows * cols);
	#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
	for (int64_t i = 0; i < rows * pieces; i++) {
		int64_t row = i / pieces, lo = i % pieces * PIECE;
		t->type->narrow(y + row * ld + lo, from + row * cols + lo, narrow_min(PIECE, cols - lo));
	}
}

int64_t tile_rows(int64_t floats)
{
	return narrow_max(1, NARROW_TILE / floats);
}

int64_t team_rows(int64_t floats)
{
	return narrow_max(1, NARROW_TEAM_TILE / floats);
}

void tiles_run(struct kern *k, int64_t n, int64_t most, tile_fn *fn, const void *call)
{
	int64_t tiles = (n + most - 1) / most;
	int team = (int)narrow_min(tiles, k->threads);
	#pragma omp parallel num_threads(team) if (team > 1)
	{
		int lane = omp_get_thread_num();
		#pragma omp for schedule(static)
		for (int64_t i = 0; i < tiles; i++) {
			struct tile t = tile_lane(k, lane);
			fn(&t, call, i * most, narrow_min(most, n - i * most));
		}
	}
}
