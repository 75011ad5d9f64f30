/* Tests that ranks recover a state from the copies in their memory, alone or together with storage,
 * in any layout. */
#include "agent/engine/ckpt/memory/copies.h"
#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/memory/store.h"
#include "tests/unit/agent/ckpt_counted_storage.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/world.h"

#include <inttypes.h>

enum { OWNERS = 6, TRIALS = 60, GENERATION = 1 };

static const struct fix_layout written = { 3, 2, 5 };
static const struct fix_layout layouts[] = {
	{ 1, 1, 0 }, { 2, 1, 0 }, { 3, 2, 5 }, { 1, 3, 0 }, { 4, 1, 17 }
};
static struct counted *counted;
static json_t *model, *degrees;
static uint64_t seed;

static int64_t throw_dice(uint64_t trial, uint64_t *thrown, int64_t below)
{
	uint32_t r[4];
	philox4(philox_key(seed, PHILOX_TEST, trial), (*thrown)++, r);
	return (int64_t)(r[0] % (uint64_t)below);
}

/* --- a rank: its store and its boxes --- */

struct rank {
	struct ckpt_store *store;
	struct ckpt_tensor list[FIX_TENSORS];
	int n;
};

static int rank_open(struct rank *r, struct err *e)
{
	const struct ckpt_store_options opt = { .owners = OWNERS,
						.model = model,
						.layout = degrees };
	*r = (struct rank){ 0 };
	return ckpt_store_open(&opt, &r->store, e);
}

static void rank_close(struct rank *r)
{
	fix_free(r->list, r->n);
	ckpt_store_close(r->store);
}

/* The rank holds the owner's shard of that step, with the numbers of another. */
static int hold_other(struct rank *r, int owner, int64_t step, int64_t numbers, struct err *e)
{
	struct ckpt_tensor list[FIX_TENSORS];
	struct ckpt_state state = fix_state(step);
	int n = fix_rank(&written, owner, numbers, false, list);
	int rc = ckpt_store_take(r->store, owner, &state, GENERATION, list, n, e) ||
		 ckpt_store_seal(r->store, owner, e);
	fix_free(list, n);
	return rc ? -1 : 0;
}

/* The rank holds the owner's shard of that step. */
static int hold(struct rank *r, int owner, int64_t step, struct err *e)
{
	return hold_other(r, owner, step, step, e);
}

static void want(struct rank *r, const struct fix_layout *l, int rank)
{
	r->n = fix_rank(l, rank % (l->tp * l->pp), -1, true, r->list);
	for (int i = 0; i < r->n; i++) {
		const struct ckpt_tensor *t = &r->list[i];
		memset(t->data, 0xee,
		       (size_t)((t->hi[0] - t->lo[0]) * (t->hi[1] - t->lo[1])) * sizeof(float));
	}
}

/* Whether the boxes hold the numbers of that step. */
static int check_values(const struct rank *r, int64_t step, struct err *e)
{
	for (int k = 0; k < r->n; k++) {
		const struct ckpt_tensor *t = &r->list[k];
		const float *at = t->data;
		int tensor = 0;
		while (strcmp(fix_tensors[tensor].name, t->name))
			tensor++;
		for (int64_t i = t->lo[0]; i < t->hi[0]; i++)
			for (int64_t j = t->lo[1]; j < t->hi[1]; j++) {
				float value = fix_value(tensor, step, i, j);
				if (memcmp(at++, &value, sizeof value))
					return err_set(e, ERR_INTERNAL, "%s differs", t->name);
			}
	}
	return 0;
}

static int recover_proven(struct comm *world, struct rank *r, const struct ckpt_tensor *proof,
			  int n_proof, int64_t *step, int *culprit, struct err *e)
{
	const struct ckpt_load_options opt = { .store = r->store,
					       .model = model,
					       .proof = proof,
					       .n_proof = n_proof,
					       .turn_bytes = 700,
					       .round_bytes = 2000 };
	struct ckpt_state at = { 0 };
	int rc = ckpt_recover_all(world, &opt, &at, r->list, r->n, culprit, e);
	*step = at.step;
	return rc;
}

static int recover(struct comm *world, struct rank *r, int64_t *step, int *culprit, struct err *e)
{
	return recover_proven(world, r, NULL, 0, step, culprit, e);
}

/* --- whole states --- */

/* Each shard is held by one rank or more, of a world of any size. */
static int recover_anyhow(struct comm *world, uint64_t trial, struct err *e)
{
	uint64_t thrown = 0;
	int rank = comm_rank(world), size = comm_size(world), culprit;
	int64_t step, newest = 5 + throw_dice(trial, &thrown, 100);
	struct rank r;
	int rc = rank_open(&r, e);
	for (int owner = 0; owner < OWNERS && !rc; owner++) {
		int64_t first = throw_dice(trial, &thrown, size),
			second = throw_dice(trial, &thrown, size);
		if (first == rank || second == rank)
			rc = hold(&r, owner, newest - 1, e) || hold(&r, owner, newest, e);
	}
	want(&r, &layouts[throw_dice(trial, &thrown, 5)], rank);
	if (!rc && recover(world, &r, &step, &culprit, e) != 1)
		rc = err_set(e, ERR_INTERNAL, "not recovered: %s", e->text);
	if (!rc && step != newest)
		rc = err_set(e, ERR_INTERNAL, "recovered step %" PRId64 ", not %" PRId64, step,
			     newest);
	if (!rc)
		rc = check_values(&r, newest, e);
	rank_close(&r);
	return rc ? err_prefix(e, "seed %" PRIu64 ", trial %" PRIu64, seed, trial) : 0;
}

static int recover_often(struct comm *world, void *arg, struct err *e)
{
	(void)arg;
	for (uint64_t i = 0; i < TRIALS; i++)
		if (recover_anyhow(world, i * WORLD_MAX + (uint64_t)comm_size(world), e))
			return -1;
	return 0;
}

static void any_ranks_recover_any_layout_without_storage(void **state)
{
	(void)state;
	for (int n = 1; n <= 6; n++)
		assert_int_equal(world_run(n, recover_often, NULL), 0);
}

/* --- which state --- */

/* The shards of 2 ranks. */
static void the_last_generation_counts_before_the_highest_step(void **state)
{
	struct copy_held held[] = {
		{ .generation = 1, .step = 90, .owner = 0, .owners = 2, .rank = 3 },
		{ .generation = 1, .step = 90, .owner = 1, .owners = 2, .rank = 2 },
		{ .generation = 2, .step = 70, .owner = 1, .owners = 2, .rank = 5 },
		{ .generation = 2, .step = 70, .owner = 0, .owners = 2, .rank = 4 },
		{ .generation = 2, .step = 70, .owner = 0, .owners = 2, .rank = 1 },
		{ .generation = 2, .step = 80, .owner = 1, .owners = 2, .rank = 0 },
		{ .generation = 2, .step = 80, .owner = 1, .owners = 2, .rank = 1 },
	};
	struct copies c = { held, sizeof held / sizeof *held };
	const struct copy_held **owned;
	int owners;
	(void)state;
	assert_int_equal(ckpt_copies_newest(&c, &owned, &owners, NULL), 0);
	assert_int_equal(owners, 2);
	assert_ptr_equal(owned[0], &held[4]);
	assert_ptr_equal(owned[1], &held[2]);
	free(owned);
	c.n = 1;
	assert_int_equal(ckpt_copies_newest(&c, &owned, &owners, NULL), 0);
	assert_null(owned);
}

/* --- losses --- */

/* Rank r keeps its own shard and that of rank r - 1. The ranks `lost` come back empty. */
struct loss {
	int lost[2];
	bool behind;  /* rank 3 has not completed the last step */
	int64_t step; /* that is recovered; 0: none */
};

static int lose(struct comm *world, void *arg, struct err *e)
{
	const struct loss *l = arg;
	int rank = comm_rank(world), culprit;
	int64_t step;
	struct rank r;
	int rc = rank_open(&r, e);
	for (int64_t s = 7; s <= 8 && !rc; s++)
		if (rank != l->lost[0] && rank != l->lost[1] && !(l->behind && rank == 3 && s == 8))
			rc = hold(&r, rank, s, e) || hold(&r, (rank + 5) % OWNERS, s, e);
	want(&r, &written, rank);
	int found = rc ? -1 : recover(world, &r, &step, &culprit, e);
	if (!rc && (found != (l->step != 0) || step != l->step))
		rc = err_set(e, ERR_INTERNAL, "%d, step %" PRId64 ", not %" PRId64 ": %s", found,
			     step, l->step, e->text);
	if (!rc && found)
		rc = check_values(&r, step, e);
	rank_close(&r);
	return rc;
}

static void a_state_is_recovered_as_long_as_each_shard_is_somewhere(void **state)
{
	const struct loss losses[] = {
		{ { -1, -1 }, false, 8 }, { { 2, -1 }, false, 8 }, { { 0, 3 }, false, 8 },
		{ { 2, 3 }, false, 0 },  /* neighbours: the shard of 2 and its copy are lost */
		{ { -1, -1 }, true, 8 }, /* 3 is behind: the shard of 2 is at 2, that of 3 at 4 */
		{ { 2, -1 }, true, 7 },  /* the shard of 2 of step 8 was only at 2 */
	};
	(void)state;
	for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
		assert_int_equal(world_run(OWNERS, lose, (void *)&losses[i]), 0);
}

static int break_memory(struct comm *world, void *arg, struct err *e)
{
	struct err got = ERR_INIT;
	struct rank r;
	struct store_copy copy;
	int rank = comm_rank(world), culprit, bad = *(int *)arg;
	int64_t step;
	int rc = rank_open(&r, e) || hold(&r, rank, 8, e);
	want(&r, &layouts[0], rank);
	if (rc || !ckpt_store_find(r.store, rank, 8, GENERATION, &copy))
		return -1;
	if (rank == bad)
		((char *)copy.image)[copy.part->files[0].header + 40] ^= 4;
	rc = recover(world, &r, &step, &culprit, &got);
	rank_close(&r);
	if (rc == -1 && got.code == ERR_CORRUPT && culprit == bad &&
	    strstr(got.text, "digest of its copy"))
		return 0;
	return err_set(e, ERR_INTERNAL, "%d, culprit %d: %s", rc, culprit, got.text);
}

static void memory_that_changed_fails_the_recovery_on_all_ranks(void **state)
{
	(void)state;
	for (int bad = 0; bad < OWNERS; bad += 2)
		assert_int_equal(world_run(OWNERS, break_memory, &bad), 0);
}

/* --- together with storage --- */

/* The shards 2 and 5 are only in the checkpoint; the others are in memory as well. Those of 0 and 3
 * in memory are of a generation that went another way. */
static int mix(struct comm *world, void *arg, struct err *e)
{
	char path[PATH_MAX];
	int rank = comm_rank(world), culprit;
	struct ckpt_state at;
	struct rank r;
	int rc = rank_open(&r, e);
	(void)arg;
	if (!rc && rank % 3 != 2)
		rc = hold_other(&r, rank, 8, rank % 3 ? 8 : 77, e);
	want(&r, &layouts[1], rank);
	snprintf(path, sizeof path, "%s%s", COUNTED_SCHEME, fix_path(8, NULL));
	const struct ckpt_load_options opt = { .path = path, .store = r.store };
	if (!rc)
		rc = ckpt_load_all(world, &opt, &at, r.list, r.n, &culprit, e) ||
		     check_values(&r, 8, e);
	rank_close(&r);
	return rc ? -1 : 0;
}

static void only_what_no_memory_has_is_read_from_storage(void **state)
{
	(void)state;
	fix_write(&written, 8);
	memset(counted, 0, sizeof *counted);
	assert_int_equal(world_run(OWNERS, mix, NULL), 0);
	for (int shard = 0; shard < OWNERS; shard++) {
		char name[MANIFEST_FILE_NAME];
		struct stat st;
		snprintf(name, sizeof name, "shard-%05d.safetensors", shard);
		assert_int_equal(stat(fix_path(8, name), &st), 0);
		for (int64_t i = 0; i < st.st_size; i++)
			if (counted->shards[shard][i] != (shard % 3 != 1))
				fail_msg("byte %" PRId64 " of shard %d was read %d times", i, shard,
					 counted->shards[shard][i]);
	}
}

static int setup(void **state)
{
	model = fix_model();
	degrees = json_object();
	return fix_setup(state) || !(counted = counted_open()) ? -1 : 0;
}

static int teardown(void **state)
{
	json_decref(model);
	json_decref(degrees);
	counted_close(counted);
	return fix_teardown(state);
}

/* --- the state digest --- */

/* Of the boxes in memory, those that this rank would save. */
static int list_own(const struct rank *r, const struct fix_layout *l, int rank,
		    struct ckpt_tensor own[FIX_TENSORS])
{
	int n = 0;
	for (int i = 0; i < r->n; i++)
		for (int t = 0; t < FIX_TENSORS; t++)
			if (!strcmp(fix_tensors[t].name, r->list[i].name) &&
			    (fix_tensors[t].cut >= 0 || rank % l->tp == 0))
				own[n++] = r->list[i];
	return n;
}

/* The ranks hold a state, and recover it in another layout. Then one rank shows other memory than
 * the one that was loaded into. */
static int prove(struct comm *world, void *arg, struct err *e)
{
	static const struct fix_layout to = { 2, 2, 0 };
	int rank = comm_rank(world), size = comm_size(world), culprit;
	int64_t step;
	struct rank r;
	struct ckpt_tensor own[FIX_TENSORS];
	(void)arg;
	int rc = rank_open(&r, e);
	for (int owner = 0; owner < OWNERS && !rc; owner++)
		if (owner % size == rank)
			rc = hold(&r, owner, 7, e);
	want(&r, &to, rank);
	int n = list_own(&r, &to, rank, own);
	if (!rc && recover_proven(world, &r, own, n, &step, &culprit, e) != 1)
		rc = err_set(e, ERR_INTERNAL, "not recovered: %s", e->text);
	int elements = 1;
	for (int d = 0; d < own[0].dims; d++)
		elements *= (int)(own[0].hi[d] - own[0].lo[d]);
	float *elsewhere = calloc((size_t)elements, sizeof *elsewhere);
	if (rank == 3)
		own[0].data = elsewhere;
	struct err why = ERR_INIT;
	if (!rc && (recover_proven(world, &r, own, n, &step, &culprit, &why) != -1 ||
		    why.code != ERR_CORRUPT || culprit != -1))
		rc = err_set(e, ERR_INTERNAL, "other memory passes: %s", why.text);
	free(elsewhere);
	rank_close(&r);
	return rc;
}

static void what_is_recovered_has_the_digest_of_what_was_held(void **state)
{
	(void)state;
	assert_int_equal(world_run(4, prove, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_recovered_has_the_digest_of_what_was_held),
		cmocka_unit_test(any_ranks_recover_any_layout_without_storage),
		cmocka_unit_test(the_last_generation_counts_before_the_highest_step),
		cmocka_unit_test(a_state_is_recovered_as_long_as_each_shard_is_somewhere),
		cmocka_unit_test(memory_that_changed_fails_the_recovery_on_all_ranks),
		cmocka_unit_test(only_what_no_memory_has_is_read_from_storage),
	};
	const char *given = getenv("MUSTER_SEED");
	seed = given ? strtoull(given, NULL, 10) : 1;
	printf("seed %" PRIu64 "\n", seed);
	return cmocka_run_group_tests(tests, setup, teardown);
}
