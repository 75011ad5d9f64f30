/*
 * Adafactor (Shazeer and Stern, arXiv 1804.04235, algorithms 4 and 5), with the learning rate of
 * the job in place of relative steps, and without a first moment. For step t = 1, 2, … and the
 * gradient G of a matrix [n, m]:
 *
 *     beta = 1 - t^-0.8
 *     R = beta R + (1 - beta) mean over columns of (G² + 1e-30)          state `row`, [n]
 *     C = beta C + (1 - beta) mean over rows of (G² + 1e-30)             state `column`, [m]
 *     U = G / sqrt(R Cᵀ / mean(R))
 *     W = W - lr (U / max(1, rms(U)) + weight_decay W)
 *
 * A vector is a matrix of one column without C: U = G / sqrt(R).
 *
 * Order of sums: each rank adds the elements that it owns, in row-major order, in double. Ranks
 * then add over the shards of a unit, and after that over the tensor-parallel group, each in
 * libcomm's order. If a box has tensor-parallel copies, only copy 0 counts. Every rank that holds a
 * part of a matrix therefore has all of its R and C, with the same bits.
 */
#include "agent/engine/optim/rules.h"
#include "libcomm/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON  1e-30 /* the paper's epsilon 1 */
#define DECAY    -0.8
#define CLIP_RMS 1.0 /* the paper's d */

/* Sums of one step. Dense parameters come first, because experts have shards of their own. */
struct adafactor {
	double *sums;    /* [n_sums]: for each parameter its rows, then its columns */
	double *squares; /* [parameters]: of U */
	int64_t *at;     /* [parameters]: where its rows begin in sums */
	int *square_at;  /* [parameters] */
	int64_t n_sums, dense_sums;
	int n_params, dense_params;
};

static int64_t columns_of(const struct param *p)
{
	return p->dims == 2 ? p->shape[1] : 0;
}

static void place_sums(const struct optim *o, struct adafactor *a)
{
	const struct catalogue *c = param_store_catalogue(o->store);
	for (int experts = 0; experts < 2; experts++) {
		for (int i = 0; i < c->n; i++) {
			const struct param *p = &c->params[i];
			if ((c->units[p->unit].kind == UNIT_EXPERTS) != experts)
				continue;
			a->at[i] = a->n_sums;
			a->square_at[i] = a->n_params++;
			a->n_sums += p->shape[0] + columns_of(p);
		}
		if (!experts) {
			a->dense_sums = a->n_sums;
			a->dense_params = a->n_params;
		}
	}
}

static int open_adafactor(struct optim *o, struct err *e)
{
	const struct catalogue *c = param_store_catalogue(o->store);
	struct adafactor *a = calloc(1, sizeof *a);
	if (!(o->own = a))
		return err_set(e, ERR_NOMEM, "adafactor: no memory; close other programs");
	a->at = calloc((size_t)c->n + 1, sizeof *a->at);
	a->square_at = calloc((size_t)c->n + 1, sizeof *a->square_at);
	if (!a->at || !a->square_at)
		return err_set(e, ERR_NOMEM,
			       "adafactor: no memory for a table of %d parameters; close other "
			       "programs",
			       c->n);
	place_sums(o, a);
	size_t bytes = (size_t)(a->n_sums + a->n_params) * sizeof *a->sums;
	if (!(a->sums = backend_alloc(o->backend, bytes)))
		return err_set(e, ERR_NOMEM,
			       "adafactor: no memory for %zu bytes of sums; raise parallel.pp or "
			       "lower batch.micro",
			       bytes);
	a->squares = a->sums + a->n_sums;
	return 0;
}

static void close_adafactor(struct optim *o)
{
	struct adafactor *a = o->own;
	if (!a)
		return;
	backend_free(o->backend, a->sums);
	free(a->at);
	free(a->square_at);
	free(a);
}

/* A part of a row of a piece: elements [first, first + count) of the piece. */
struct row_part {
	int64_t first, count;
	int64_t row, column; /* of the global matrix */
};

/* The part that begins at element `first` of the piece; false: there is none. */
static bool next_part(const struct param_piece *piece, int64_t first, struct row_part *out)
{
	const struct param *p = piece->param;
	int64_t width = p->hi[1] - p->lo[1], in_box = piece->first + first;
	int64_t row = in_box / width, column = in_box % width;
	if (first >= piece->count)
		return false;
	int64_t left = piece->count - first;
	*out = (struct row_part){ .first = first,
				  .count = width - column < left ? width - column : left,
				  .row = p->lo[0] + row,
				  .column = p->lo[1] + column };
	return true;
}

static void add_squares(const struct param_piece *piece, double scale, double *rows,
			double *columns)
{
	struct row_part r;
	for (int64_t i = 0; next_part(piece, i, &r); i += r.count) {
		const float *g = piece->grad + r.first;
		double sum = 0;
		for (int64_t j = 0; j < r.count; j++) {
			double x = g[j] * scale, square = x * x + EPSILON;
			sum += square;
			if (columns)
				columns[r.column + j] += square;
		}
		rows[r.row] += sum;
	}
}

/* Adds `n` sums over the shards of dense parameters, [0, dense), and of experts, the others. */
static int add_over_shards(struct optim *o, double *sums, int64_t dense, int64_t n, struct err *e)
{
	const struct {
		struct comm *group;
		int64_t from, to;
	} parts[] = { { param_store_shards(o->store, UNIT_LAYER), 0, dense },
		      { param_store_shards(o->store, UNIT_EXPERTS), dense, n } };
	for (int i = 0; i < 2; i++) {
		size_t count = (size_t)(parts[i].to - parts[i].from);
		double *at = sums + parts[i].from;
		if (parts[i].group && count &&
		    comm_all_reduce(parts[i].group, at, at, count, COMM_F64, COMM_SUM, e))
			return -1;
	}
	return 0;
}

static int add_over_tp(struct optim *o, double *sums, int64_t n, struct err *e)
{
	struct comm *tp = param_store_tp(o->store);
	return tp && n ? comm_all_reduce(tp, sums, sums, (size_t)n, COMM_F64, COMM_SUM, e) : 0;
}

/* Drops the sums of the later copies of a box, so that a box counts once, in copy 0. */
static void drop_copies(const struct optim *o, struct adafactor *a, bool squares)
{
	const struct catalogue *c = param_store_catalogue(o->store);
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		if (p->copy == 0)
			continue;
		if (squares)
			a->squares[a->square_at[i]] = 0;
		else
			memset(a->sums + a->at[i], 0,
			       (size_t)(p->shape[0] + columns_of(p)) * sizeof *a->sums);
	}
}

static int sum_gradients(struct optim *o, double scale, struct err *e)
{
	struct adafactor *a = o->own;
	const struct catalogue *c = param_store_catalogue(o->store);
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	memset(a->sums, 0, (size_t)a->n_sums * sizeof *a->sums);
	#pragma omp parallel for schedule(dynamic) num_threads(backend_threads(o->backend))
	for (int i = 0; i < n; i++) {
		const struct param *p = pieces[i].param;
		double *rows = a->sums + a->at[p - c->params];
		add_squares(&pieces[i], scale, rows, p->dims == 2 ? rows + p->shape[0] : NULL);
	}
	if (add_over_shards(o, a->sums, a->dense_sums, a->n_sums, e))
		return -1;
	drop_copies(o, a, false);
	return add_over_tp(o, a->sums, a->n_sums, e);
}

static void decay_factor(float *state, const double *sums, int64_t n, double beta, double count)
{
	for (int64_t i = 0; i < n; i++)
		state[i] = (float)(beta * state[i] + (1 - beta) * sums[i] / count);
}

static void decay_factors(struct optim *o, double beta)
{
	struct adafactor *a = o->own;
	const struct catalogue *c = param_store_catalogue(o->store);
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		const double *rows = a->sums + a->at[i];
		decay_factor(optim_factor(o, 0, p), rows, p->shape[0], beta, (double)p->shape[1]);
		if (p->dims == 2)
			decay_factor(optim_factor(o, 1, p), rows + p->shape[0], p->shape[1], beta,
				     (double)p->shape[0]);
	}
}

/* 1 / sqrt(R Cᵀ / mean(R)) of a parameter: factor of the row × factor of the column. */
struct inverse_root {
	const float *rows, *columns; /* columns NULL: a vector */
	double mean;
};

static struct inverse_root inverse_root_of(struct optim *o, const struct param *p)
{
	struct inverse_root v = { .rows = optim_factor(o, 0, p),
				  .columns = optim_factor(o, 1, p),
				  .mean = 1 };
	if (!v.columns)
		return v;
	double sum = 0;
	for (int64_t i = 0; i < p->shape[0]; i++)
		sum += v.rows[i];
	v.mean = sum / (double)p->shape[0];
	return v;
}

static double update_at(const struct inverse_root *v, double of_row, int64_t column, double g)
{
	return v->columns ? g * of_row / sqrt((double)v->columns[column]) : g * of_row;
}

/* The sum of the squares of U over the piece. */
static double square_updates(const struct param_piece *piece, const struct inverse_root *v,
			     double scale)
{
	struct row_part r;
	double sum = 0;
	for (int64_t i = 0; next_part(piece, i, &r); i += r.count) {
		double of_row = scale * sqrt(v->mean / (double)v->rows[r.row]);
		for (int64_t j = 0; j < r.count; j++) {
			double u = update_at(v, of_row, r.column + j, piece->grad[r.first + j]);
			sum += u * u;
		}
	}
	return sum;
}

static void update_piece(const struct param_piece *piece, const struct inverse_root *v,
			 double scale, double rate, double keep)
{
	struct row_part r;
	for (int64_t i = 0; next_part(piece, i, &r); i += r.count) {
		double of_row = scale * sqrt(v->mean / (double)v->rows[r.row]);
		float *w = piece->master + r.first;
		for (int64_t j = 0; j < r.count; j++) {
			double u = update_at(v, of_row, r.column + j, piece->grad[r.first + j]);
			w[j] = (float)(keep * w[j] - rate * u);
		}
	}
}

static int sum_updates(struct optim *o, double scale, struct err *e)
{
	struct adafactor *a = o->own;
	const struct catalogue *c = param_store_catalogue(o->store);
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	memset(a->squares, 0, (size_t)a->n_params * sizeof *a->squares);
	#pragma omp parallel for schedule(dynamic) num_threads(backend_threads(o->backend))
	for (int i = 0; i < n; i++) {
		struct inverse_root v = inverse_root_of(o, pieces[i].param);
		a->squares[a->square_at[pieces[i].param - c->params]] = square_updates(&pieces[i],
										       &v, scale);
	}
	if (add_over_shards(o, a->squares, a->dense_params, a->n_params, e))
		return -1;
	drop_copies(o, a, true);
	return add_over_tp(o, a->squares, a->n_params, e);
}

static int step_adafactor(struct optim *o, const struct optim_step *s, struct err *e)
{
	struct adafactor *a = o->own;
	const struct catalogue *c = param_store_catalogue(o->store);
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	if (sum_gradients(o, s->scale, e))
		return -1;
	decay_factors(o, 1 - pow((double)s->number, DECAY));
	if (sum_updates(o, s->scale, e))
		return -1;
	#pragma omp parallel for schedule(dynamic) num_threads(backend_threads(o->backend))
	for (int i = 0; i < n; i++) {
		const struct param *p = pieces[i].param;
		struct inverse_root v = inverse_root_of(o, p);
		double elements = (double)p->shape[0] * (double)p->shape[1];
		double rms = sqrt(a->squares[a->square_at[p - c->params]] / elements);
		double keep = 1 - s->lr * optim_weight_decay(o, p->decay);
		update_piece(&pieces[i], &v, s->scale, s->lr / fmax(1, rms / CLIP_RMS), keep);
	}
	return 0;
}

const struct optim_rule optim_rule_adafactor = { .open = open_adafactor,
						 .step = step_adafactor,
						 .close = close_adafactor };
