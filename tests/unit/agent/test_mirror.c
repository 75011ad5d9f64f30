/* Tests that ranks keep copies of each other's shards, and drop a copy together. */
#include "agent/engine/ckpt/memory/mirror.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/world.h"

#include <inttypes.h>
#include <math.h>

enum { RANKS = 6, GENERATION = 3 };

static const struct fix_layout layout = { 3, 2, 5 };
static json_t *model, *degrees;

struct rank {
	struct ckpt_store *store;
	struct ckpt_mirror *mirror;
	struct ckpt_gate gate;
	int64_t refused; /* the gate fails this step; 0: none */
};

/* What is complete before the gate could be used without it. */
static int pass(void *arg, int64_t step, struct err *e)
{
	const struct rank *r = arg;
	struct store_copy copy;
	if (ckpt_store_find(r->store, 0, step, GENERATION, &copy))
		return err_set(e, ERR_INTERNAL, "step %" PRId64 " is complete before the gate",
			       step);
	return step == r->refused ? err_set(e, ERR_IO, "the metrics are not recorded") : 0;
}

/* Three nodes of two ranks. */
static int rank_open(struct comm *world, struct rank *r, bool peers, struct err *e)
{
	const struct ckpt_store_options none = { 0 };
	const struct ckpt_mirror_options opt = {
		.place = { .node = comm_rank(world) / 2 },
		.peers = peers,
		.generation = GENERATION,
		.model = model,
		.layout = degrees,
		.gate = &r->gate,
	};
	*r = (struct rank){ .gate = { pass, r } };
	if (ckpt_store_open(&none, &r->store, e))
		return -1;
	struct ckpt_mirror_options with_store = opt;
	with_store.store = r->store;
	return ckpt_mirror_open(world, &with_store, &r->mirror, e);
}

static void rank_close(struct rank *r)
{
	ckpt_mirror_close(r->mirror);
	ckpt_store_close(r->store);
}

/* spoiled: this rank's shard holds a NaN. */
static void copy_step(struct comm *world, struct rank *r, int64_t step, int64_t number,
		      bool spoiled)
{
	struct ckpt_tensor list[FIX_TENSORS];
	struct ckpt_state state = fix_state(step);
	int n = fix_rank(&layout, comm_rank(world), step, false, list);
	if (spoiled)
		list[0].data[0] = NAN;
	ckpt_mirror_take(r->mirror, &state, list, n);
	/* What training changes from here on is not in the copy. */
	for (int i = 0; i < n; i++)
		list[i].data[0] = -1;
	ckpt_mirror_start(r->mirror, number);
	fix_free(list, n);
}

static void await(const struct rank *r)
{
	while (ckpt_mirror_busy(r->mirror))
		usleep(200);
}

/* Whether the rank's copy of the owner's shard has the bytes that the owner has. */
static int check_copy(const struct rank *r, int owner, int64_t step, struct err *e)
{
	struct store_copy copy;
	struct ckpt_tensor list[FIX_TENSORS];
	if (!ckpt_store_find(r->store, owner, step, GENERATION, &copy))
		return err_set(e, ERR_INTERNAL, "no copy of rank %d of step %" PRId64, owner, step);
	int n = fix_rank(&layout, owner, step, false, list), rc = 0;
	const char *at = copy.image + (n ? copy.part->files[0].header : 0);
	for (int i = 0; i < n; i++) {
		size_t bytes = (size_t)((list[i].hi[0] - list[i].lo[0]) *
					(list[i].hi[1] - list[i].lo[1])) *
			       sizeof(float);
		if (memcmp(at, list[i].data, bytes))
			rc = err_set(e, ERR_INTERNAL, "the copy of rank %d differs", owner);
		at += bytes;
	}
	fix_free(list, n);
	return rc;
}

static int keep_each_other(struct comm *world, void *arg, struct err *e)
{
	struct rank r;
	int rank = comm_rank(world);
	(void)arg;
	int rc = rank_open(world, &r, true, e);
	for (int64_t step = 1; step <= 4 && !rc; step++)
		copy_step(world, &r, step, step == 4 ? 100 + rank : 1, false);
	if (!rc) {
		await(&r);
		const struct mirror_result *last = ckpt_mirror_result(r.mirror);
		if (last->step != 4 || last->number != 100 + RANKS - 1)
			rc = err_set(e, ERR_INTERNAL, "step %" PRId64 ", number %" PRId64,
				     last->step, last->number);
	}
	/* the node half the list further on: node 1 keeps what node 0 has, and so on */
	if (!rc)
		rc = check_copy(&r, rank, 4, e) || check_copy(&r, rank, 3, e) ||
		     check_copy(&r, (rank + 4) % RANKS, 4, e) ||
		     check_copy(&r, (rank + 4) % RANKS, 3, e);
	rank_close(&r);
	return rc ? -1 : 0;
}

static void each_rank_keeps_its_own_and_anothers_two_last_steps(void **state)
{
	(void)state;
	assert_int_equal(world_run(RANKS, keep_each_other, NULL), 0);
}

static int keep_own(struct comm *world, void *arg, struct err *e)
{
	struct rank r;
	struct store_copy copy;
	int rank = comm_rank(world), rc = rank_open(world, &r, false, e);
	(void)arg;
	if (!rc) {
		copy_step(world, &r, 7, 0, false);
		await(&r);
		rc = check_copy(&r, rank, 7, e);
	}
	for (int owner = 0; owner < RANKS && !rc; owner++)
		if (owner != rank && ckpt_store_list(r.store, owner, 0, &copy))
			rc = err_set(e, ERR_INTERNAL, "a copy of rank %d", owner);
	rank_close(&r);
	return rc;
}

static void without_peers_each_rank_keeps_its_own(void **state)
{
	(void)state;
	assert_int_equal(world_run(RANKS, keep_own, NULL), 0);
}

/* A copy that one rank cannot complete. */
struct fault {
	int spoiled; /* the rank with a NaN; -1: none */
	int64_t refused;
};

static int fail_once(struct comm *world, void *arg, struct err *e)
{
	const struct fault *f = arg;
	struct rank r;
	struct store_copy copy;
	int rank = comm_rank(world), rc = rank_open(world, &r, true, e);
	if (rc)
		return -1;
	r.refused = f->refused;
	for (int64_t step = 5; step <= 8; step++) {
		copy_step(world, &r, step, 1, step == 6 && rank == f->spoiled);
		await(&r);
		bool fails = step == 6;
		if (ckpt_mirror_result(r.mirror)->step != (fails ? 5 : step))
			rc = err_set(e, ERR_INTERNAL, "step %" PRId64 ": the last is %" PRId64,
				     step, ckpt_mirror_result(r.mirror)->step);
		for (int owner = 0; owner < RANKS && !rc && fails; owner++)
			if (ckpt_store_find(r.store, owner, 6, GENERATION, &copy))
				rc = err_set(e, ERR_INTERNAL, "step 6 of rank %d stays", owner);
		if (!rc && fails)
			rc = check_copy(&r, rank, 5, e) || check_copy(&r, (rank + 4) % RANKS, 5, e);
	}
	if (!rc)
		rc = check_copy(&r, rank, 8, e);
	rank_close(&r);
	return rc ? -1 : 0;
}

static void a_copy_that_one_rank_cannot_complete_is_dropped_by_all(void **state)
{
	struct fault nan = { .spoiled = 4 }, gate = { .spoiled = -1, .refused = 6 };
	(void)state;
	assert_int_equal(world_run(RANKS, fail_once, &nan), 0);
	assert_int_equal(world_run(RANKS, fail_once, &gate), 0);
}

/* Rank 2 leaves while copies are in progress. The others lose the copy, but none waits for it. */
static int leave(struct comm *world, void *arg, struct err *e)
{
	struct rank r;
	(void)arg;
	if (rank_open(world, &r, true, e))
		return -1;
	copy_step(world, &r, 1, 1, false);
	await(&r);
	if (comm_rank(world) != 2) {
		for (int64_t step = 2; step <= 4; step++) {
			copy_step(world, &r, step, 1, false);
			await(&r);
		}
	} else {
		comm_abort(world, "rank 2 leaves");
	}
	int rank = comm_rank(world);
	int rc = check_copy(&r, rank, 1, e) || check_copy(&r, (rank + 4) % RANKS, 1, e);
	rank_close(&r);
	return rc ? -1 : 0;
}

static void a_lost_rank_leaves_the_copies_before_it(void **state)
{
	(void)state;
	assert_int_equal(world_run(RANKS, leave, NULL), 0);
}

static void memory_is_two_images_of_each_part(void **state)
{
	(void)state;
	assert_true(ckpt_mirror_memory(10, 0) == 20);
	assert_true(ckpt_mirror_memory(10, 1) == 40);
}

static int setup(void **state)
{
	model = fix_model();
	degrees = json_object();
	return fix_setup(state);
}

static int teardown(void **state)
{
	json_decref(model);
	json_decref(degrees);
	return fix_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_rank_keeps_its_own_and_anothers_two_last_steps),
		cmocka_unit_test(without_peers_each_rank_keeps_its_own),
		cmocka_unit_test(a_copy_that_one_rank_cannot_complete_is_dropped_by_all),
		cmocka_unit_test(a_lost_rank_leaves_the_copies_before_it),
		cmocka_unit_test(memory_is_two_images_of_each_part),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
