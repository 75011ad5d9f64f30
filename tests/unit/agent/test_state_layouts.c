/*
 * Ranks of one layout and ZeRO stage write a checkpoint, and ranks of another one read it. Every
 * master, every moment and the published parameters are the same to the bit. The commit itself
 * proves that each element was saved once. All layouts of one state have the same state digest.
 */
#include "agent/engine/ckpt/format/state_digest.h"
#include "agent/engine/train/resume.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/store_world.h"

struct run {
	const struct cut *cut;
	enum job_optimizer kind;
	bool load;
	/* After the state was set, or loaded, these bits of the first element that world rank
	 * `rank` counts are flipped, in the parameter (tensor 0) or in a moment. 0: none. */
	int tensor, rank;
	uint32_t bit;
};

struct trainer {
	struct bench bench;
	struct job job;
	struct optim *optim;
	struct train_state state;
	json_t *model;
};

static int trainer_open(struct trainer *t, const struct run *run, struct comm *world, struct err *e)
{
	memset(t, 0, sizeof *t);
	t->job.optimizer.kind = run->kind;
	if (bench_open(run->cut, world, &t->bench, e))
		return -1;
	const struct optim_options opt = { .backend = t->bench.backend,
					   .store = t->bench.store,
					   .job = &t->job };
	if (optim_open(&opt, &t->optim, e))
		return -1;
	t->state = (struct train_state){ .store = t->bench.store, .optim = t->optim };
	t->model = train_state_model(&t->bench.shape);
	return 0;
}

static void trainer_close(struct trainer *t)
{
	json_decref(t->model);
	optim_close(t->optim);
	bench_close(&t->bench);
}

/* Returns the number at a place of the global tensor. */
static float value(const struct param *p, int64_t i, int tensor)
{
	int64_t width = p->hi[1] - p->lo[1];
	int64_t place = (p->lo[0] + i / width) * p->shape[1] + p->lo[1] + i % width;
	uint32_t out[4];
	philox4(philox_key((uint64_t)tensor, PHILOX_TEST, philox_item(p->name)), (uint64_t)place,
		out);
	return (float)(int32_t)out[0] * 0x1p-20f;
}

static float *number(const struct trainer *t, const struct param_piece *p, int64_t i, int tensor)
{
	if (tensor && !optim_state(t->optim, tensor - 1, p))
		return NULL;
	return tensor ? optim_state(t->optim, tensor - 1, p) + i : p->master + i;
}

/* Sets or checks the states that are stored whole on every rank that holds a piece of the
 * parameter. */
static int each_factor(const struct trainer *t, bool check, struct err *e)
{
	const struct catalogue *c = &t->bench.catalogue;
	for (int k = 0; k < c->n * OPTIMIZER_STATES_MAX; k++) {
		int state = k % OPTIMIZER_STATES_MAX, dims;
		const struct param *p = &c->params[k / OPTIMIZER_STATES_MAX];
		float *at = optim_factor(t->optim, state, p);
		int64_t shape[2];
		if (!at || !optimizer_state_shape(t->job.optimizer.kind, state, p, shape, &dims))
			continue;
		struct param whole = { .shape = { shape[0], 1 }, .hi = { shape[0], 1 } };
		snprintf(whole.name, sizeof whole.name, "%s", p->name);
		for (int64_t i = 0; i < shape[0]; i++) {
			float want = value(&whole, i, 1 + state);
			if (!check)
				at[i] = want;
			else if (at[i] != want)
				return err_set(e, ERR_NUMERIC,
					       "%s: element %d of state %d of %s is %g, not %g",
					       t->bench.cut->name, (int)i, state, p->name,
					       (double)at[i], (double)want);
		}
	}
	return 0;
}

static int set_or_check_pieces(const struct trainer *t, bool check, struct err *e)
{
	int n, tensors = t->job.optimizer.kind == OPTIMIZER_ADAMW ? 3 : 2;
	const struct param_piece *pieces = param_store_pieces(t->bench.store, &n);
	for (int k = 0; k < n; k++)
		for (int tensor = 0; tensor < tensors; tensor++)
			for (int64_t i = 0; i < pieces[k].count; i++) {
				float want = value(pieces[k].param, pieces[k].first + i, tensor),
				      *at = number(t, &pieces[k], i, tensor);
				if (!at)
					break;
				if (!check)
					*at = want;
				else if (*at != want)
					return err_set(
						e, ERR_NUMERIC,
						"%s: element %d of tensor %d of %s is %g, not %g",
						t->bench.cut->name, (int)(pieces[k].first + i),
						tensor, pieces[k].param->name, (double)*at,
						(double)want);
			}
	return each_factor(t, check, e);
}

static void flip_bit(const struct trainer *t, const struct run *run, struct comm *world)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(t->bench.store, &n);
	uint32_t bits;
	if (!run->bit || comm_rank(world) != run->rank)
		return;
	for (int k = 0; k < n; k++) {
		if (pieces[k].count_hi <= pieces[k].count_lo)
			continue;
		float *at = number(t, &pieces[k], pieces[k].count_lo, run->tensor);
		memcpy(&bits, at, sizeof bits);
		bits ^= run->bit;
		memcpy(at, &bits, sizeof bits);
		return;
	}
}

static int save_checkpoint(struct trainer *t, const struct run *run, struct comm *world,
			   struct err *e)
{
	struct ckpt_tensor *whole;
	struct ckpt_writer *w = NULL;
	json_t *layout = json_object();
	struct ckpt_state at = { .step = 5, .samples = 40, .seed = 3, .total_steps = 10 };
	int n;
	if (set_or_check_pieces(t, false, e) ||
	    train_state_whole(&t->bench.shape, t->job.optimizer.kind, false, &whole, &n, e))
		return -1;
	flip_bit(t, run, world);
	const struct ckpt_options opt = { .dir = fix_dir,
					  .generation = 1,
					  .model = t->model,
					  .layout = layout,
					  .expect = whole,
					  .n_expect = n };
	int rc = ckpt_number_set(&at, "loss_scale", 1024, e) ||
				 ckpt_writer_open(world, &opt, &w, e) ||
				 train_state_save(w, CKPT_TO_DIR, &at, &t->state, e) ||
				 ckpt_wait(w, e)
			 ? -1
			 : 0;
	ckpt_writer_close(w);
	json_decref(layout);
	free(whole);
	return rc;
}

/* Checks every unit as the passes see it. */
static int check_published(struct trainer *t, struct err *e)
{
	const struct catalogue *c = &t->bench.catalogue;
	for (int k = 0; k < c->n; k++) {
		const struct param *p = &c->params[k];
		const void *params;
		if (param_store_acquire(t->bench.store, p->unit, &params, e))
			return -1;
		const float *at = (const float *)params + (p->offset - c->units[p->unit].lo);
		for (int64_t i = 0; i < p->count; i++)
			if (at[i] != value(p, i, 0))
				return err_set(e, ERR_NUMERIC,
					       "%s: the passes see %g as element %d of %s",
					       t->bench.cut->name, (double)at[i], (int)i, p->name);
		param_store_release(t->bench.store, p->unit);
	}
	return 0;
}

/* The state has one flipped bit after the load; every rank must learn of it. */
static int check_flipped(struct trainer *t, const struct run *run, struct comm *world,
			 struct err *e)
{
	const struct train_source from = { .path = fix_path(5, NULL) };
	if (train_state_check_loaded(world, &from, &t->state, e))
		return -1;
	flip_bit(t, run, world);
	struct err why = ERR_INIT;
	if (!train_state_check_loaded(world, &from, &t->state, &why) || why.code != ERR_CORRUPT ||
	    !strstr(why.text, "its digest in memory"))
		return err_set(e, ERR_INTERNAL, "a flipped bit is not found: %s", why.text);
	return 0;
}

static int load_checkpoint(struct trainer *t, const struct run *run, struct comm *world,
			   struct err *e)
{
	struct ckpt_state at;
	struct train_origin from;
	int rc = train_resume(world, "auto", &(struct train_tiers){ .dir = fix_dir }, NULL,
			      t->model, &t->state, &at, &from, e);
	if (rc != 1)
		return rc < 0 ? -1 : err_set(e, ERR_NOTFOUND, "nothing is there to go on from");
	if (at.step != 5 || at.samples != 40 || ckpt_number(&at, "loss_scale", 1) != 1024 ||
	    strcmp(at.optimizer, optimizer_of(t->job.optimizer.kind)->name))
		return err_set(e, ERR_INTERNAL, "the state is not what was saved");
	if (run->bit)
		return check_flipped(t, run, world, e);
	return set_or_check_pieces(t, true, e) || check_published(t, e) ? -1 : 0;
}

static int be(struct comm *world, void *arg, struct err *e)
{
	const struct run *run = arg;
	struct trainer t;
	int rc = trainer_open(&t, run, world, e);
	if (!rc)
		rc = run->load ? load_checkpoint(&t, run, world, e)
			       : save_checkpoint(&t, run, world, e);
	trainer_close(&t);
	return rc;
}

/* name, family, kv heads, tp, sp, ep, shards, copies, pp, zero */
/* clang-format off */
static const struct cut twelve[] = {
	{ "alone", FAMILY_GPT2, 4, 1, false, 1, 1, 1, 1, 0, "reference", true, false, 1 },
	{ "tp 2", FAMILY_GPT2, 4, 2, false, 1, 1, 1, 1, 0, "reference", true, false, 1 },
	{ "tp 3", FAMILY_GPT2, 4, 3, false, 1, 1, 1, 1, 0, "reference", true, false, 1 },
	{ "tp 4, sp", FAMILY_GPT2, 4, 4, true, 1, 1, 1, 1, 0, "reference", true, false, 1 },
	{ "pp 2", FAMILY_GPT2, 4, 1, false, 1, 1, 1, 2, 0, "reference", true, false, 1 },
	{ "2 copies", FAMILY_GPT2, 4, 1, false, 1, 1, 2, 1, 0, "reference", true, false, 1 },
	{ "7 shards, zero 1", FAMILY_GPT2, 4, 1, false, 1, 7, 1, 1, 1, "reference", true, false, 1 },
	{ "5 shards, zero 2", FAMILY_GPT2, 4, 1, false, 1, 5, 1, 1, 2, "reference", true, false, 1 },
	{ "3 shards, zero 3", FAMILY_GPT2, 4, 1, false, 1, 3, 1, 1, 3, "reference", true, false, 1 },
	{ "tp 2, pp 2, 2 copies", FAMILY_GPT2, 4, 2, false, 1, 1, 2, 2, 0, "reference", true, false, 1 },
	{ "tp 3, 2 shards, zero 1", FAMILY_GPT2, 4, 3, false, 1, 2, 1, 1, 1, "reference", true, false, 1 },
	{ "tp 2, sp, pp 2, 2 shards, zero 3", FAMILY_GPT2, 4, 2, true, 1, 2, 1, 2, 3, "reference", true, false, 1 },
};
/* clang-format on */
/* clang-format off */
static const struct cut gpt2[] = {
	{ "gpt2 alone", FAMILY_GPT2, 4, 1, false, 1, 1, 1, 1, 0, "reference", true, false, 1 },
	{ "gpt2, tp 2, sp, pp 2, zero 3", FAMILY_GPT2, 4, 2, true, 1, 2, 1, 2, 3, "reference", true, false, 1 },
	{ "gpt2, tp 3, copies", FAMILY_GPT2, 4, 3, false, 1, 1, 2, 1, 0, "reference", true, false, 1 },
	{ "gpt2, 7 shards, zero 1", FAMILY_GPT2, 4, 1, false, 1, 7, 1, 1, 1, "reference", true, false, 1 },
	{ "gpt2, 2 shards, 2 copies, pp 2, zero 2", FAMILY_GPT2, 4, 1, false, 1, 2, 2, 2, 2, "reference", true, false, 1 },
};
/* clang-format on */
/* clang-format off */
static const struct cut mixtral[] = {
	{ "mixtral alone", FAMILY_MIXTRAL, 2, 1, false, 1, 1, 1, 1, 0, "reference", true, false, 1 },
	{ "mixtral, ep 3, zero 3", FAMILY_MIXTRAL, 2, 1, false, 3, 2, 1, 1, 3, "reference", true, false, 1 },
	{ "mixtral, tp 4, kv shared", FAMILY_MIXTRAL, 2, 4, true, 1, 1, 2, 1, 0, "reference", true, false, 1 },
	{ "mixtral, ep 2, tp 2, pp 2, zero 1", FAMILY_MIXTRAL, 2, 2, false, 2, 1, 1, 2, 1, "reference", true, false, 1 },
};
/* clang-format on */

static void any_loads_any(const struct cut *cuts, int n, enum job_optimizer kind)
{
	for (int from = 0; from < n; from++) {
		struct run run = { .cut = &cuts[from], .kind = kind };
		if (world_run(cut_world(run.cut), be, &run))
			fail_msg("%s saves", run.cut->name);
		struct err e = ERR_INIT;
		if (ckpt_verify(fix_path(5, NULL), &e))
			fail_msg("%s", e.text);
		for (int to = 0; to < n; to++) {
			struct run reader = { .cut = &cuts[to], .kind = kind, .load = true };
			if (world_run(cut_world(reader.cut), be, &reader))
				fail_msg("%s loads what %s saved", reader.cut->name, run.cut->name);
		}
		fix_remove(fix_path(5, NULL));
	}
}

static void dense_models_go_from_any_layout_to_any(void **state)
{
	(void)state;
	any_loads_any(gpt2, sizeof gpt2 / sizeof *gpt2, OPTIMIZER_ADAMW);
}

static void experts_go_from_any_layout_to_any(void **state)
{
	(void)state;
	any_loads_any(mixtral, sizeof mixtral / sizeof *mixtral, OPTIMIZER_SGD);
}

static void factors_go_from_any_layout_to_any(void **state)
{
	(void)state;
	any_loads_any(gpt2, sizeof gpt2 / sizeof *gpt2, OPTIMIZER_ADAFACTOR);
	any_loads_any(mixtral, sizeof mixtral / sizeof *mixtral, OPTIMIZER_ADAFACTOR);
}

static void muons_states_go_from_any_layout_to_any(void **state)
{
	(void)state;
	any_loads_any(gpt2, sizeof gpt2 / sizeof *gpt2, OPTIMIZER_MUON);
	any_loads_any(mixtral, sizeof mixtral / sizeof *mixtral, OPTIMIZER_MUON);
}

/* Saves, and returns the state digest. The checkpoint is removed. */
static struct digest digest_of(const struct run *run)
{
	struct err e = ERR_INIT;
	struct manifest m;
	struct digest d;
	if (world_run(cut_world(run->cut), be, (void *)run))
		fail_msg("%s saves", run->cut->name);
	if (ckpt_manifest_load(fix_path(5, NULL), &m, &e) || ckpt_verify(fix_path(5, NULL), &e))
		fail_msg("%s: %s", run->cut->name, e.text);
	if (ckpt_state_digest(&m, &d, &e) != 1)
		fail_msg("%s: the manifest has no state digest", run->cut->name);
	ckpt_manifest_fini(&m);
	fix_remove(fix_path(5, NULL));
	return d;
}

static void twelve_layouts_of_one_state_have_one_digest(void **state)
{
	(void)state;
	enum { N = sizeof twelve / sizeof *twelve };
	_Static_assert(N == 12, "the layouts are twelve");
	struct digest first = digest_of(&(struct run){ .cut = &twelve[0] });
	for (int i = 1; i < N; i++) {
		struct digest d = digest_of(&(struct run){ .cut = &twelve[i] });
		if (!ckpt_digest_equal(&d, &first))
			fail_msg("%s: another digest than that of one rank", twelve[i].name);
	}
}

static void any_flipped_bit_changes_the_digest(void **state)
{
	(void)state;
	const struct cut *cut = &twelve[10];
	struct digest clean = digest_of(&(struct run){ .cut = cut });
	/* sign, exponent, mantissa; of a parameter and of both moments; on the first and last rank */
	static const uint32_t bits[] = { 0x80000000, 0x00800000, 0x00400000, 1 };
	for (int tensor = 0; tensor < 3; tensor++)
		for (int i = 0; i < 4; i++) {
			struct run run = { .cut = cut,
					   .tensor = tensor,
					   .rank = i % 2 ? cut_world(cut) - 1 : 0,
					   .bit = bits[i] };
			struct digest d = digest_of(&run);
			if (ckpt_digest_equal(&d, &clean))
				fail_msg("bit %08x of tensor %d changes nothing", bits[i], tensor);
		}
}

static void a_bit_that_flips_after_the_load_is_found_on_every_rank(void **state)
{
	(void)state;
	struct run saves = { .cut = &twelve[6] };
	assert_int_equal(world_run(cut_world(saves.cut), be, &saves), 0);
	for (int i = 0; i < 12; i++) {
		struct run loads = { .cut = &twelve[i],
				     .load = true,
				     .tensor = i % 3,
				     .rank = cut_world(&twelve[i]) - 1,
				     .bit = 1U << (2 * i) };
		if (world_run(cut_world(loads.cut), be, &loads))
			fail_msg("%s", loads.cut->name);
	}
	fix_remove(fix_path(5, NULL));
}

static void no_optimizer_loads_the_states_of_another(void **state)
{
	(void)state;
	for (int i = 0; i < OPTIMIZER_KINDS; i++) {
		struct run saves = { .cut = &gpt2[0], .kind = (enum job_optimizer)i },
			   loads = { .cut = &gpt2[0],
				     .kind = (enum job_optimizer)((i + 1) % OPTIMIZER_KINDS),
				     .load = true };
		assert_int_equal(world_run(1, be, &saves), 0);
		assert_int_equal(world_run(1, be, &loads), -1);
		fix_remove(fix_path(5, NULL));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dense_models_go_from_any_layout_to_any),
		cmocka_unit_test(experts_go_from_any_layout_to_any),
		cmocka_unit_test(factors_go_from_any_layout_to_any),
		cmocka_unit_test(muons_states_go_from_any_layout_to_any),
		cmocka_unit_test(twelve_layouts_of_one_state_have_one_digest),
		cmocka_unit_test(any_flipped_bit_changes_the_digest),
		cmocka_unit_test(a_bit_that_flips_after_the_load_is_found_on_every_rank),
		cmocka_unit_test(no_optimizer_loads_the_states_of_another),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests(tests, fix_setup, fix_teardown);
}
