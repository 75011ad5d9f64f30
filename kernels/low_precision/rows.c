/* Ops that select rows (embeddings, experts), and rope, whose rows depend on their positions. Rows
 * that are only copied are not converted. */
#include "base/numbers.h"
#include "kernels/low_precision/low_precision.h"

#include <string.h>

/* --- copies --- */

struct gather {
	uint16_t *y;
	const uint16_t *x;
	const int64_t *from;
	int64_t c;
};

static void copy_row(uint16_t *y, const uint16_t *x, int64_t c)
{
	if (x)
		memcpy(y, x, (size_t)c * sizeof *y);
	else
		memset(y, 0, (size_t)c * sizeof *y);
}

static void gather_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	(void)t;
	const struct gather *a = callv;
	for (int64_t i = lo; i < lo + n; i++)
		copy_row(a->y + i * a->c, a->from[i] < 0 ? NULL : a->x + a->from[i] * a->c, a->c);
}

static void gather_rows(struct backend *k, void *y, const void *x, const int64_t *from, int64_t n,
			int64_t c)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(c), gather_tile,
				&(struct gather){ y, x, from, c });
}

struct copy {
	uint16_t *y;
	const uint16_t *x;
	int64_t y_row, x_row, c;
};

static void copy_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	(void)t;
	const struct copy *a = callv;
	for (int64_t i = lo; i < lo + n; i++)
		copy_row(a->y + i * a->y_row, a->x + i * a->x_row, a->c);
}

static void copy_rows(struct backend *k, void *y, int64_t y_row, const void *x, int64_t x_row,
		      int64_t n, int64_t c)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(c), copy_tile,
				&(struct copy){ y, x, y_row, x_row, c });
}

/* --- embeddings --- */

struct embed {
	uint16_t *y;
	const uint16_t *wte, *wpe;
	const int32_t *tokens, *positions;
	int64_t c;
	int32_t lo, hi;
};

static void embed_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct embed *a = callv;
	for (int64_t i = lo; i < lo + n; i++) {
		bool mine = a->tokens[i] >= a->lo && a->tokens[i] < a->hi;
		const uint16_t *token = mine ? a->wte + (a->tokens[i] - a->lo) * a->c : NULL;
		const uint16_t *place = a->wpe ? a->wpe + a->positions[i] * a->c : NULL;
		if (token && place) {
			struct tile row = *t;
			float *sum = low_precision_tile_in(&row, token, 0, a->c);
			t->fp32->add(t->k, sum, low_precision_tile_in(&row, place, 0, a->c), a->c);
			low_precision_tile_out(&row, a->y, i * a->c, a->c, sum);
		} else {
			copy_row(a->y + i * a->c, token ? token : place, a->c);
		}
	}
}

static void embed_fwd(struct backend *k, void *y, const int32_t *tokens, const int32_t *positions,
		      const void *wte, const void *wpe, int64_t n, int64_t c, int32_t lo,
		      int32_t hi)
{
	low_precision_tiles_run(k, n, low_precision_tile_rows(2 * c), embed_tile,
				&(struct embed){ y, wte, wpe, tokens, positions, c, lo, hi });
}

static void embed_bwd(struct backend *k, float *dwte, float *dwpe, const void *dy,
		      const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c,
		      int32_t lo, int32_t hi)
{
	int64_t most = low_precision_team_rows(c);
	for (int64_t i = 0; i < n; i += most) {
		struct tile t = low_precision_tile_team(k);
		int64_t rows = min_int64(most, n - i);
		t.fp32->embed_bwd(k, dwte, dwpe, low_precision_tile_in(&t, dy, i * c, rows * c),
				  tokens + i, positions ? positions + i : NULL, rows, c, lo, hi);
	}
}

/* --- experts: the rows that a tile's tokens meet, one behind the other --- */

struct combine {
	void *y; /* the tokens' rows: y, or dy, which the backward pass only reads */
	void *dx;
	const void *x;
	float *dweights;
	const int64_t *at;
	const float *weights;
	int64_t top, c;
};

/* Replaces the rows of x by rows of the tile. A dropped choice stays dropped. */
static int64_t *places(struct tile *t, const int64_t *at, int64_t n)
{
	int64_t *local = (int64_t *)(void *)low_precision_tile_room(t, 2 * n);
	for (int64_t j = 0; j < n; j++)
		local[j] = at[j] < 0 ? -1 : j;
	return local;
}

static float *met_in(struct tile *t, const void *x, const int64_t *at, int64_t n, int64_t c)
{
	float *rows = low_precision_tile_room(t, n * c);
	for (int64_t j = 0; j < n; j++)
		if (at[j] >= 0)
			t->type->to_fp32(rows + j * c, (const uint16_t *)x + at[j] * c, c);
	return rows;
}

static void combine_fwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct combine *a = callv;
	int64_t first = lo * a->top, met = n * a->top;
	int64_t *local = places(t, a->at + first, met);
	float *x = met_in(t, a->x, a->at + first, met, a->c),
	      *y = low_precision_tile_room(t, n * a->c);
	t->fp32->combine_fwd(t->k, y, x, local, a->weights ? a->weights + first : NULL, n, a->top,
			     a->c);
	low_precision_tile_out(t, a->y, lo * a->c, n * a->c, y);
}

static void combine_fwd(struct backend *k, void *y, const void *x, const int64_t *at,
			const float *weights, int64_t n, int64_t top, int64_t c)
{
	low_precision_tiles_run(
		k, n, low_precision_tile_rows((top + 1) * c + 2 * top), combine_fwd_tile,
		&(struct combine){
			.y = y, .x = x, .at = at, .weights = weights, .top = top, .c = c });
}

static void combine_bwd_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct combine *a = callv;
	int64_t first = lo * a->top, met = n * a->top, c = a->c;
	int64_t *local = places(t, a->at + first, met);
	float *dy = low_precision_tile_in(t, a->y, lo * c, n * c),
	      *dx = low_precision_tile_room(t, met * c);
	float *x = a->dweights ? met_in(t, a->x, a->at + first, met, c) : NULL;
	t->fp32->combine_bwd(t->k, dx, a->dweights ? a->dweights + first : NULL, dy, x, local,
			     a->weights ? a->weights + first : NULL, n, a->top, c);
	for (int64_t j = 0; j < met; j++)
		if (local[j] >= 0)
			low_precision_tile_out(t, a->dx, a->at[first + j] * c, c, dx + j * c);
}

static void combine_bwd(struct backend *k, void *dx, float *dweights, const void *dy, const void *x,
			const int64_t *at, const float *weights, int64_t n, int64_t top, int64_t c)
{
	low_precision_tiles_run(
		k, n, low_precision_tile_rows((2 * top + 1) * c + 2 * top), combine_bwd_tile,
		&(struct combine){ (void *)dy, dx, x, dweights, at, weights, top, c });
}

/* --- rope: the heads that rotate, of rows between two ends of the tables --- */

struct rope {
	void *x;
	const struct rope_shape *s;
	const float *cos, *sin;
	bool back;
};

static void rope_run(struct tile t, const struct rope *a, int64_t lo, int64_t n)
{
	const struct rope_shape *s = a->s;
	int64_t width = (int64_t)s->heads * s->dim, place = lo % s->seq, at = place * (s->dim / 2);
	struct rope_shape piece = {
		.n = n, .row = width, .heads = s->heads, .dim = s->dim, .seq = s->seq - place
	};
	float *x = low_precision_tile_in_rows(&t, a->x, lo * s->row, s->row, n, width);
	(a->back ? t.fp32->rope_bwd : t.fp32->rope_fwd)(t.k, x, &piece, a->cos + at, a->sin + at);
	low_precision_tile_out_rows(&t, a->x, lo * s->row, s->row, n, width, x);
}

static void rope_tile(struct tile *t, const void *callv, int64_t lo, int64_t n)
{
	const struct rope *a = callv;
	for (int64_t end = lo + n, rows; lo < end; lo += rows) {
		rows = min_int64(end - lo, a->s->seq - lo % a->s->seq);
		rope_run(*t, a, lo, rows);
	}
}

static void rope_fwd(struct backend *k, void *x, const struct rope_shape *s, const float *cosine,
		     const float *sine)
{
	low_precision_tiles_run(k, s->n, low_precision_tile_rows((int64_t)s->heads * s->dim),
				rope_tile, &(struct rope){ x, s, cosine, sine, false });
}

static void rope_bwd(struct backend *k, void *dx, const struct rope_shape *s, const float *cosine,
		     const float *sine)
{
	low_precision_tiles_run(k, s->n, low_precision_tile_rows((int64_t)s->heads * s->dim),
				rope_tile, &(struct rope){ dx, s, cosine, sine, true });
}

void low_precision_rows(struct ops *o)
{
	o->gather_rows = gather_rows;
	o->copy_rows = copy_rows;
	o->embed_fwd = embed_fwd;
	o->embed_bwd = embed_bwd;
	o->combine_fwd = combine_fwd;
	o->combine_bwd = combine_bwd;
	o->rope_fwd = rope_fwd;
	o->rope_bwd = rope_bwd;
}
