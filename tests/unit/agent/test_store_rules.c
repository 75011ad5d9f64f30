/*
 * Tests the contract of the param_store, except its sums:
 *
 *   - Each element of the model is counted on one rank.
 *   - The memory is the plan's to the byte.
 *   - The padding that makes blocks equally long stays zero.
 *   - The first contribution to a gradient sets it, later ones add, and what has none is zero.
 *   - Gathers start before they are needed, in the order of the first step.
 *   - Wrong calls fail with an error that names them.
 *   - Stochastic rounding does not depend on the layout.
 *   - If a rank dies, the calls of the others fail.
 */
#include "agent/engine/parallel/param_store_inner.h"
#include "base/philox.h"
#include "tests/unit/agent/store_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* clang-format off */
static const struct cut cuts[] = {
	{ "gpt2, tp 2, sp, pp 2", FAMILY_GPT2, 4, 2, true, 1, 2, 1, 2, 3, "reference", true, false, 1 },
	{ "gpt2, five shards", FAMILY_GPT2, 4, 1, false, 1, 5, 1, 1, 1, "reference", true, false, 1 },
	{ "gpt2, copies only", FAMILY_GPT2, 4, 1, false, 1, 1, 3, 2, 0, "reference", true, false, 1 },
	{ "llama, kv shared", FAMILY_LLAMA, 1, 2, false, 1, 3, 1, 1, 2, "reference", true, false, 1 },
	{ "llama, shards and copies", FAMILY_LLAMA, 2, 1, true, 1, 3, 2, 1, 3, "reference", true, false, 1 },
	{ "mixtral, ep 2", FAMILY_MIXTRAL, 2, 1, false, 2, 2, 2, 1, 3, "reference", true, false, 1 },
	{ "mixtral, ep 3", FAMILY_MIXTRAL, 2, 1, false, 3, 1, 2, 1, 1, "reference", true, false, 1 },
	{ "mixtral, ep 2, tp 2, bf16", FAMILY_MIXTRAL, 2, 2, false, 2, 2, 1, 1, 2, "reference:bf16", true, false, 1 },
	{ "gpt2, fp16", FAMILY_GPT2, 4, 1, false, 1, 3, 1, 2, 3, "reference:fp16", true, false, 1 },
};
/* clang-format on */
enum { N_CUTS = sizeof cuts / sizeof *cuts };

static void run_all(world_fn *fn)
{
	for (int i = 0; i < N_CUTS; i++) {
		struct cut c = cuts[i];
		if (world_run(cut_world(&c), fn, &c))
			fail_msg("%s", c.name);
	}
}

/* --- counting --- */

/* Returns a whole number for each element of the model, so that sums in double are exact. */
static double weight(const struct param *p, int64_t i)
{
	int64_t width = p->hi[1] - p->lo[1];
	int64_t place = (p->lo[0] + i / width) * p->shape[1] + p->lo[1] + i % width;
	uint32_t out[4];
	philox4(philox_key(5, PHILOX_TEST, philox_item(p->name)), (uint64_t)place, out);
	return (double)(out[0] >> 8);
}

static double weigh_counted(const struct bench *b, double *elements)
{
	int n;
	double sum = 0;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = pieces[i].count_lo; j < pieces[i].count_hi; j++, ++*elements)
			sum += weight(pieces[i].param, pieces[i].first + j);
	return sum;
}

static int weigh_model(const struct bench *b, double *sum, struct err *e)
{
	const struct stage all = { 0, (int)b->shape.layers, true, true };
	const struct share share = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	struct catalogue c;
	if (catalogue_build(&b->shape, &share, &c, e))
		return -1;
	*sum = 0;
	for (int k = 0; k < c.n; k++)
		for (int64_t i = 0; i < c.params[k].count; i++)
			*sum += weight(&c.params[k], i);
	catalogue_free(&c);
	return 0;
}

static int count(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	double mine[2] = { 0, 0 }, want = 0;
	int rc = bench_open(arg, world, &b, e) || weigh_model(&b, &want, e) ? -1 : 0;
	if (!rc) {
		mine[0] = weigh_counted(&b, &mine[1]);
		if (mine[1] != zero_saved(&b.shape, &b.share, b.cut->zero, b.cuts))
			rc = err_set(e, ERR_NUMERIC, "%s: rank %d counts %g elements, the plan %g",
				     b.cut->name, comm_rank(world), mine[1],
				     zero_saved(&b.shape, &b.share, b.cut->zero, b.cuts));
	}
	if (!rc && !(rc = comm_all_reduce(world, mine, mine, 2, COMM_F64, COMM_SUM, e)) &&
	    (mine[0] != want || mine[1] != (double)shape_params(&b.shape)))
		rc = err_set(
			e, ERR_NUMERIC,
			"%s: %.0f elements that weigh %.0f are counted, of %lld that weigh %.0f",
			b.cut->name, mine[1], mine[0], (long long)shape_params(&b.shape), want);
	bench_close(&b);
	return rc;
}

static void each_element_counts_on_one_rank(void **state)
{
	(void)state;
	run_all(count);
}

/* --- memory --- */

static int measure(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	struct zero_memory z;
	int rc = bench_open(arg, world, &b, e);
	if (!rc)
		rc = bench_start_all(&b, e) || bench_pass(&b, 0, e) || bench_update(&b, 0, e) ? -1
											      : 0;
	if (!rc) {
		zero_memory(&b.shape, &b.share, b.cut->zero, b.cuts, (int)backend_width(b.backend),
			    &z);
		double want = z.params + z.grads + z.masters + z.gather + z.reduce,
		       took = (double)(backend_peak(b.backend) - b.backend_own);
		if (took != want || (double)param_store_owned(b.store) != z.owned)
			rc = err_set(e, ERR_NUMERIC,
				     "%s: the store took %.0f bytes, the plan says %.0f; %lld "
				     "owned, the plan says %.0f",
				     b.cut->name, took, want, (long long)param_store_owned(b.store),
				     z.owned);
	}
	bench_close(&b);
	return rc;
}

static void memory_is_what_the_plan_predicts_to_the_byte(void **state)
{
	(void)state;
	run_all(measure);
}

/* --- padding --- */

static int check_zeros(const struct bench *b, const char *what, const void *from, size_t bytes,
		       struct err *e)
{
	const char *at = from;
	for (size_t i = 0; i < bytes; i++)
		if (at[i])
			return err_set(e, ERR_NUMERIC, "%s: the padding of %s is not zero",
				       b->cut->name, what);
	return 0;
}

/* The padding of a rank's blocks, in all that it keeps between steps. */
static int check_padding(const struct bench *b, int64_t *padded, struct err *e)
{
	struct param_store *s = b->store;
	for (int unit = 0; unit < b->catalogue.n_units; unit++) {
		const struct unit_layout *h = &s->layouts[unit];
		int64_t own = h->hi - h->lo, padding = h->block - own;
		size_t floats = (size_t)padding * sizeof(float);
		*padded += padding;
		if (check_zeros(b, "gradients", param_store_grad(s, unit) + own, floats, e) ||
		    check_zeros(b, "masters", param_store_master(s, unit) + own, floats, e) ||
		    check_zeros(b, "parameters",
				(const char *)param_store_stored(s, unit) + (size_t)own * s->width,
				(size_t)padding * s->width, e))
			return -1;
	}
	return 0;
}

static int pad(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	int64_t padded = 0;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) ? -1 : 0;
	for (int step = 0; step < 2 && !rc; step++)
		rc = bench_pass(&b, step, e) || bench_check(&b, e) ||
				     check_padding(&b, &padded, e) || bench_update(&b, step, e) ||
				     check_padding(&b, &padded, e)
			     ? -1
			     : 0;
	if (!rc && !(rc = comm_all_reduce(world, &padded, &padded, 1, COMM_I64, COMM_SUM, e)) &&
	    b.cut->zero && !padded)
		rc = err_set(e, ERR_NUMERIC, "%s: no block has padding", b.cut->name);
	bench_close(&b);
	return rc;
}

static void padding_is_zero_and_stays_zero(void **state)
{
	(void)state;
	run_all(pad);
}

/* --- contributions --- */

/* What a step contributes to. */
enum share_of { SHARE_ALL, SHARE_EVERY_SECOND, SHARE_FIRST_THEN_ALL };

static bool shares(enum share_of what, int i)
{
	return what == SHARE_ALL || (what == SHARE_EVERY_SECOND && i % 2 == 0) ||
	       (what == SHARE_FIRST_THEN_ALL && i == 0);
}

/* Adds 1 to the elements of a range, or sets them to 1. */
static int contribute(struct bench *b, int unit, float *grads, struct grad_range r, bool want,
		      struct err *e)
{
	bool had = param_store_has_grads(b->store, unit, &r, 1),
	     add = param_store_adds_grads(b->store, unit, &r, 1);
	if (add != want || had != want)
		return err_set(e, ERR_NUMERIC, "%s: unit %d: a contribution adds: %d, not %d",
			       b->cut->name, unit, add, want);
	for (int64_t i = r.at; i < r.at + r.count; i++)
		grads[i] = add ? grads[i] + 1 : 1;
	return 0;
}

static int contribute_unit(struct bench *b, int unit, int micro, enum share_of what, struct err *e)
{
	const struct unit *u = &b->catalogue.units[unit];
	bool add = micro > 0 && !param_store_replicas(b->store, unit)->policy->grads;
	float *grads;
	if (param_store_grads(b->store, unit, &grads, e))
		return -1;
	for (int i = 0; i < u->n_params; i++) {
		const struct param *p = &b->catalogue.params[u->first + i];
		if (shares(what, i) &&
		    contribute(b, unit, grads, (struct grad_range){ p->offset - u->lo, p->count },
			       add, e))
			return -1;
	}
	const struct param *last = &b->catalogue.params[u->first + u->n_params - 1];
	const struct grad_range all = { 0, last->offset + last->count - u->lo };
	if (what == SHARE_FIRST_THEN_ALL && contribute(b, unit, grads, all, true, e))
		return -1;
	return param_store_reduce(b->store, unit, micro == b->cut->micros - 1, e);
}

/* How often one rank contributed to an element, times the ranks that did. */
static int check_shares(const struct bench *b, enum share_of what, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; i < n; i++) {
		const struct param *p = pieces[i].param;
		int number = (int)(p - b->catalogue.params) - b->catalogue.units[p->unit].first;
		float each = what == SHARE_FIRST_THEN_ALL ? number ? 1 : 2
							  : (float)shares(what, number);
		for (int64_t j = 0; j < pieces[i].count; j++) {
			float got = pieces[i].grad[j];
			if (each == 0 ? got != 0
				      : got < each || fmodf(got, each * (float)b->cut->micros) != 0)
				return err_set(e, ERR_NUMERIC, "%s: %s: element %d is %g",
					       b->cut->name, p->name, (int)j, (double)got);
		}
	}
	return 0;
}

static int share(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) ? -1 : 0;
	for (int step = 0; step < 6 && !rc; step++) {
		enum share_of what = (enum share_of)(step % 3);
		int64_t padded = 0;
		param_store_begin(b.store);
		for (int micro = 0; micro < b.cut->micros && !rc; micro++)
			for (int unit = b.catalogue.n_units - 1; unit >= 0 && !rc; unit--)
				rc = contribute_unit(&b, unit, micro, what, e);
		rc = rc || param_store_finish(b.store, e) || check_shares(&b, what, e) ||
				     check_padding(&b, &padded, e)
			     ? -1
			     : 0;
	}
	bench_close(&b);
	return rc;
}

static void the_first_contribution_sets_and_what_has_none_is_zero(void **state)
{
	(void)state;
	for (int i = 0; i < N_CUTS; i++)
		for (int zero = 0; zero < 4; zero++) {
			struct cut c = cuts[i];
			c.micros = 2;
			if (cuts[i].zero)
				c.zero = zero;
			if (world_run(cut_world(&c), share, &c))
				fail_msg("%s, zero %d", c.name, c.zero);
		}
}

/* For the same model on the same ranks, each ZeRO stage takes less memory than the previous one.
 * Buffers are not counted. */
static void each_stage_takes_less_memory_than_the_one_before(void **state)
{
	(void)state;
	struct model_shape m = { .layers = 24,
				 .hidden = 1024,
				 .heads = 16,
				 .kv_heads = 16,
				 .head_dim = 64,
				 .ffn = 4096,
				 .vocab = 50257,
				 .seq = 1024 };
	const struct stage all = { 0, 24, true, true };
	const struct share share = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	const struct layout layout = { .tp = 1, .cp = 1, .dp = 8, .pp = 1, .ep = 1, .chunks = 1 };
	double before = 1e18;
	for (int stage = 0; stage <= 3; stage++) {
		struct zero_cut cut[ZERO_CLASSES];
		struct zero_memory z;
		zero_cuts(&layout, (struct coords){ .dp = 3 }, stage, 0, cut);
		zero_memory(&m, &share, stage, cut, 2, &z);
		double takes = z.params + z.grads + z.masters + 8 * z.owned;
		assert_true(takes < before);
		before = takes;
	}
}

/* --- the learned order --- */

static bool on_its_way(const struct bench *b, int unit)
{
	struct unit_buffer *t =
		param_store_find_buffer(&b->store->gathers[b->catalogue.units[unit].kind], unit);
	return t != NULL;
}

/* In the second step, when the previous layer is demanded, each layer has been gathered or its
 * gather has started. */
static int ahead(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) || bench_pass(&b, 0, e) ||
				 bench_update(&b, 0, e)
			 ? -1
			 : 0;
	for (int unit = 0; unit + 1 < b.catalogue.n_units && !rc; unit++) {
		const void *params;
		rc = param_store_acquire(b.store, unit, &params, e);
		if (!rc && !on_its_way(&b, unit + 1))
			rc = err_set(e, ERR_INTERNAL,
				     "%s: unit %d is asked for, and %d does not come yet",
				     b.cut->name, unit, unit + 1);
		if (!rc)
			param_store_release(b.store, unit);
	}
	bench_close(&b);
	return rc;
}

/* Makes forward passes only, as an evaluation does: 2 before each step, and 1 before an order is
 * learned. */
static int look(struct bench *b, int after, struct err *e)
{
	for (int unit = 0; unit < b->catalogue.n_units; unit++) {
		const void *params;
		if (param_store_acquire(b->store, unit, &params, e))
			return -1;
		if (((const float *)params)[0] !=
		    b->starts[b->catalogue.units[unit].lo] -
			    (float)after * b->totals[b->catalogue.units[unit].lo])
			return err_set(e, ERR_NUMERIC,
				       "%s: unit %d is not what it was after step %d", b->cut->name,
				       unit, after);
		param_store_release(b->store, unit);
	}
	return 0;
}

static int look_between(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) || look(&b, 0, e) ? -1 : 0;
	for (int step = 0; step < 3 && !rc; step++)
		rc = bench_pass(&b, step, e) || bench_update(&b, step, e) ||
				     look(&b, step + 1, e) || look(&b, step + 1, e)
			     ? -1
			     : 0;
	bench_close(&b);
	return rc;
}

static void gathers_start_early_in_the_order_of_the_first_step(void **state)
{
	(void)state;
	struct cut c = { "gpt2", FAMILY_GPT2, 4, 1,           false, 1,     3,
			 1,      1,           3, "reference", true,  false, 2 };
	assert_int_equal(world_run(3, ahead, &c), 0);
	c.family = FAMILY_LLAMA;
	assert_int_equal(world_run(3, ahead, &c), 0);
}

static void evaluations_between_steps_see_the_new_parameters(void **state)
{
	(void)state;
	struct cut c = { "llama", FAMILY_LLAMA, 2,    1,     false, 1, 3, 1, 1,
			 3,       "reference",  true, false, 2 };
	for (c.zero = 0; c.zero <= 3; c.zero++)
		assert_int_equal(world_run(3, look_between, &c), 0);
}

/* --- wrong uses --- */

static int expect(int rc, const struct err *got, const char *what, struct err *e)
{
	return rc == -1 && got->code == ERR_INTERNAL
		       ? 0
		       : err_set(e, ERR_INTERNAL, "%s was not refused", what);
}

static int misuse(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	struct err why = ERR_INIT;
	const void *params;
	float *grads;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) ? -1 : 0,
	    layer = catalogue_unit(&b.catalogue, UNIT_LAYER, 0);
	if (!rc)
		rc = expect(param_store_finish(b.store, &why), &why,
			    "a step that ends without its gradients", e);
	for (int i = 0; i < 2 && !rc; i++)
		rc = param_store_acquire(b.store, layer + i, &params, e) ||
				     param_store_grads(b.store, layer + i, &grads, e)
			     ? -1
			     : 0;
	if (!rc)
		rc = expect(param_store_acquire(b.store, layer + 2, &params, &why), &why,
			    "a third layer", e) ||
				     expect(param_store_grads(b.store, layer + 2, &grads, &why),
					    &why, "a third layer's gradients", e) ||
				     expect(param_store_sync_params(b.store, 1, &why), &why,
					    "a layer in use while its parameters change", e) ||
				     param_store_reduce(b.store, layer, true, e) ||
				     expect(param_store_grads(b.store, layer, &grads, &why), &why,
					    "a gradient after the last", e) ||
				     expect(param_store_reduce(b.store, layer, true, &why), &why,
					    "a second last", e)
			     ? -1
			     : 0;
	bench_close(&b);
	return rc;
}

static void wrong_calls_fail_by_name(void **state)
{
	(void)state;
	struct cut c = { "gpt2", FAMILY_GPT2, 4, 1,           false, 1,     2,
			 1,      1,           3, "reference", false, false, 1 };
	assert_int_equal(world_run(2, misuse, &c), 0);
}

/* --- rounding --- */

struct roundings {
	struct cut cut;
	/* [2], shared: sum of all stored bits weighted by place; number of values not the
	 * nearest */
	uint64_t *sums;
	bool fused; /* the optimizer's update rounds, in place of param_store_sync_params */
};

/* An update that leaves the masters as they are, and rounds them. */
static int update_nothing(struct bench *b, const struct param_piece *piece, struct err *e)
{
	const struct sgd_args args = { .momentum = 0 };
	const struct step_numbers numbers = { .step = 1 };
	float *zeros = calloc((size_t)piece->count + 1, sizeof *zeros);
	if (!zeros)
		return err_set(e, ERR_NOMEM, "no memory for %s", piece->param->name);
	struct update u = { .p = piece->master, .g = zeros, .m = zeros, .count = piece->count };
	param_store_stored_form(b->store, piece, 3, &u);
	backend_ops(b->backend)->sgd(b->backend, &u, 1, &args, &numbers);
	free(zeros);
	return 0;
}

static int round_all(struct bench *b, bool fused, struct err *e)
{
	int n, rc = 0;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; fused && !rc && i < n; i++)
		rc = update_nothing(b, &pieces[i], e);
	if (fused)
		param_store_stored_done(b->store);
	return rc ? rc : param_store_sync_params(b->store, 3, e);
}

/* The masters are between two numbers of the stored type. The sums do not depend on the order. */
static int roundings_of(struct bench *b, bool fused, uint64_t sums[2], struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < pieces[i].count; j++)
			pieces[i].master[j] =
				1 + (float)(weight(pieces[i].param, pieces[i].first + j) * 0x1p-30);
	if (round_all(b, fused, e))
		return -1;
	for (int i = 0; i < n; i++)
		for (int64_t j = pieces[i].count_lo; j < pieces[i].count_hi; j++) {
			const struct param *p = pieces[i].param;
			const uint16_t *stored = param_store_stored(b->store, p->unit);
			uint16_t bits = stored[pieces[i].master -
					       param_store_master(b->store, p->unit) + j],
				 nearest;
			backend_ops(b->backend)
				->fp32_to_storage(b->backend, &nearest, &pieces[i].master[j], 1,
						  NULL, 0);
			sums[0] += bits * (uint64_t)weight(p, pieces[i].first + j);
			sums[1] += bits != nearest;
		}
	return 0;
}

static int roundings(struct comm *world, void *arg, struct err *e)
{
	struct roundings *r = arg;
	struct bench b;
	int64_t sums[2] = { 0, 0 };
	int rc = bench_open(&r->cut, world, &b, e) ||
				 roundings_of(&b, r->fused, (uint64_t *)sums, e) ||
				 comm_all_reduce(world, sums, sums, 2, COMM_I64, COMM_SUM, e)
			 ? -1
			 : 0;
	memcpy(r->sums, sums, sizeof sums);
	bench_close(&b);
	return rc;
}

static void stochastic_rounding_is_the_same_in_every_layout(void **state)
{
	(void)state;
	static const struct {
		int tp, shards, copies, pp, zero;
	} layouts[] = {
		{ 1, 1, 1, 1, 0 }, { 2, 1, 1, 1, 0 }, { 1, 1, 1, 2, 0 },
		{ 1, 3, 1, 1, 3 }, { 2, 2, 2, 1, 2 }, { 1, 2, 1, 2, 1 },
	};
	uint64_t *sums = world_shared(2 * sizeof *sums), first[2] = { 0, 0 };
	struct roundings r = { { "llama", FAMILY_LLAMA, 2, 1, false, 1, 1, 1, 1, 0,
				 "reference:bf16", true, true, 1 },
			       sums,
			       false };
	for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
		size_t l = i / 2;
		r.fused = i % 2;
		r.cut.tp = layouts[l].tp;
		r.cut.shards = layouts[l].shards;
		r.cut.copies = layouts[l].copies;
		r.cut.pp = layouts[l].pp;
		r.cut.zero = layouts[l].zero;
		assert_int_equal(world_run(cut_world(&r.cut), roundings, &r), 0);
		if (i == 0)
			memcpy(first, sums, sizeof first);
		assert_true(sums[0] == first[0] && sums[1] == first[1]);
	}
	assert_true(first[1] > 100); /* some are not rounded to the nearest */
	world_unshared(sums, 2 * sizeof *sums);
}

/* --- the death of a rank --- */

static int die_in_the_middle(struct comm *world, void *arg, struct err *e)
{
	struct bench b;
	int rc = bench_open(arg, world, &b, e) || bench_start_all(&b, e) || bench_pass(&b, 0, e) ||
				 bench_update(&b, 0, e)
			 ? -1
			 : 0;
	const void *params;
	if (!rc && comm_rank(world) == 1) {
		if (!param_store_acquire(b.store, 0, &params, e))
			_exit(7);
		_exit(8);
	}
	if (!rc)
		rc = bench_pass(&b, 1, e);
	if (rc && e->code != ERR_PEER)
		_exit(9);
	bench_close(&b);
	return rc;
}

static void a_rank_that_dies_fails_the_calls_of_the_others(void **state)
{
	(void)state;
	struct cut c = { "gpt2", FAMILY_GPT2, 4, 1,           false, 1,     3,
			 1,      1,           0, "reference", true,  false, 2 };
	for (c.zero = 0; c.zero <= 3; c.zero++) {
		int outcomes[3];
		c.shards = c.zero ? 3 : 1;
		c.copies = c.zero ? 1 : 3;
		world_outcomes(3, die_in_the_middle, &c, outcomes);
		assert_int_equal(outcomes[0], 1);
		assert_int_equal(outcomes[1], 7);
		assert_int_equal(outcomes[2], 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_element_counts_on_one_rank),
		cmocka_unit_test(memory_is_what_the_plan_predicts_to_the_byte),
		cmocka_unit_test(padding_is_zero_and_stays_zero),
		cmocka_unit_test(the_first_contribution_sets_and_what_has_none_is_zero),
		cmocka_unit_test(each_stage_takes_less_memory_than_the_one_before),
		cmocka_unit_test(gathers_start_early_in_the_order_of_the_first_step),
		cmocka_unit_test(evaluations_between_steps_see_the_new_parameters),
		cmocka_unit_test(wrong_calls_fail_by_name),
		cmocka_unit_test(stochastic_rounding_is_the_same_in_every_layout),
		cmocka_unit_test(a_rank_that_dies_fails_the_calls_of_the_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
