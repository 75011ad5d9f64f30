/* Tests that ranks which load together fail together. */
#include "agent/engine/ckpt/memory/store.h"
#include "tests/unit/agent/exchange_boxes.h"

/* What each rank must return. */
struct expected {
	enum err_code code;
	int culprit;
	const char *text;
};

static int check_failure(int rc, int culprit, const struct err *got, const struct expected *want,
			 struct err *e)
{
	if (rc && got->code == want->code && culprit == want->culprit &&
	    strstr(got->text, want->text))
		return 0;
	return err_set(e, ERR_INTERNAL, "rc %d, culprit %d, %s: %s; wanted culprit %d, %s: %s", rc,
		       culprit, err_word(got->code), got->text, want->culprit, err_word(want->code),
		       want->text);
}

/* Loads the checkpoint of layout 2 as replicas, in many rounds. */
static int load_replicas(struct comm *world, int *culprit, struct err *got)
{
	struct boxes b;
	struct dice d = { .trial = 1 };
	struct ckpt_load_options opt = options_of(3);
	opt.turn_bytes = 300;
	opt.round_bytes = 1000;
	layout_boxes(&d, &layouts[0], comm_rank(world), &b);
	int rc = load(world, &opt, &b, culprit, got);
	if (!rc)
		rc = compare_alone(&b, fix_path(3, NULL), got);
	free_boxes(&b);
	return rc;
}

static int fail_each_read(struct comm *world, void *arg, struct err *e)
{
	(void)arg;
	for (int bad = 0; bad < comm_size(world); bad++)
		for (int at = 1;; at++) {
			struct err got = ERR_INIT;
			int culprit;
			counted_fault(COUNTED_FAIL, comm_rank(world) == bad ? at : 0);
			int rc = load_replicas(world, &culprit, &got);
			int32_t over = comm_rank(world) == bad && counted_reads() < at;
			struct expected want = { ERR_IO, bad, "Input/output error" };
			if (comm_all_reduce(world, &over, &over, 1, COMM_I32, COMM_MAX, e))
				return -1;
			if (over && (rc || at < 4))
				return err_set(e, ERR_INTERNAL, "rank %d made %d reads, then: %s",
					       bad, at - 1, got.text);
			if (over)
				break;
			if (check_failure(rc, culprit, &got, &want, e))
				return err_prefix(e, "read %d of rank %d", at, bad);
		}
	return 0;
}

static void every_rank_gets_the_error_of_any_failed_read(void **state)
{
	(void)state;
	assert_int_equal(world_run(3, fail_each_read, NULL), 0);
}

static int same_everywhere(struct comm *world, int32_t x, struct err *e)
{
	int32_t most, least;
	if (comm_all_reduce(world, &x, &most, 1, COMM_I32, COMM_MAX, e) ||
	    comm_all_reduce(world, &x, &least, 1, COMM_I32, COMM_MIN, e))
		return -1;
	return most == least ? 0 : err_set(e, ERR_INTERNAL, "ranks differ: %d, %d", least, most);
}

static int flip_bits(struct comm *world, void *arg, struct err *e)
{
	const int stride = 97;
	int flips = 0;
	(void)arg;
	for (int shard = 0; shard < 6; shard++)
		for (int64_t byte = shard;; byte += stride) {
			struct err got = ERR_INIT;
			char name[32];
			struct stat st;
			int culprit;
			snprintf(name, sizeof name, "shard-%05d.safetensors", shard);
			if (stat(fix_path(3, name), &st) || byte >= st.st_size)
				break;
			counted_flip(shard, byte);
			int rc = load_replicas(world, &culprit, &got);
			counted_flip(0, -1);
			struct expected want = { ERR_CORRUPT, culprit, name };
			if (check_failure(rc, culprit, &got, &want, e) ||
			    same_everywhere(world, culprit, e))
				return err_prefix(e, "byte %" PRId64, byte);
			flips++;
		}
	return flips > 100 ? 0 : err_set(e, ERR_INTERNAL, "only %d bits were flipped", flips);
}

static void every_rank_learns_of_a_flipped_bit(void **state)
{
	(void)state;
	assert_int_equal(world_run(3, flip_bits, NULL), 0);
}

/* Sanitizers have an allocator of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void nobody_waits_for_a_rank_without_memory(void **state)
{
	(void)state;
	print_message("skipped: the sanitizer's allocator cannot be made to fail\n");
	skip();
}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

/* The allocations of this process until one fails; 0: none does. */
static int allocations;

static bool fails(void)
{
	return __atomic_load_n(&allocations, __ATOMIC_RELAXED) > 0 &&
	       __atomic_sub_fetch(&allocations, 1, __ATOMIC_RELAXED) == 0;
}

void *malloc(size_t n)
{
	return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails() ? NULL : __libc_realloc(p, n);
}

struct starvation {
	int rank, at;
	bool recover;
	/* in memory that all ranks share */
	struct outcome {
		bool failed, no_memory, reached;
	} * outcomes;
};

/* Loads a checkpoint, or recovers from copies that the ranks hold of their own shards. */
static int load_without_memory(struct comm *world, void *arg, struct err *e)
{
	const struct starvation *s = arg;
	struct outcome *out = &s->outcomes[comm_rank(world)];
	struct err got = ERR_INIT;
	struct boxes b;
	struct dice d = { .trial = 1 };
	struct ckpt_load_options opt = options_of(3);
	struct ckpt_state at = fix_state(3);
	struct ckpt_store *store;
	int culprit;
	if (ckpt_store_open(&(struct ckpt_store_options){ .owners = 3 }, &store, e))
		return -1;
	b.n = fix_rank(&layouts[s->recover ? 3 : 0], s->recover ? comm_rank(world) : 0, 3, true,
		       b.list);
	if (ckpt_store_take(store, comm_rank(world), &at, 1, b.list, b.n, e) ||
	    ckpt_store_seal(store, comm_rank(world), e))
		return -1;
	free_boxes(&b);
	opt.store = s->recover ? store : NULL;
	layout_boxes(&d, &layouts[0], comm_rank(world), &b);
	allocations = comm_rank(world) == s->rank ? s->at : 0;
	int rc = s->recover ? ckpt_recover_all(world, &opt, &at, b.list, b.n, &culprit, &got) - 1
			    : load(world, &opt, &b, &culprit, &got);
	out->failed = rc != 0;
	out->reached = comm_rank(world) == s->rank && allocations == 0;
	allocations = 0;
	/* Jansson reports an allocation that failed as a syntax error. */
	out->no_memory = got.code == ERR_NOMEM || strstr(got.text, "not JSON");
	free_boxes(&b);
	ckpt_store_close(store);
	return 0;
}

/* Returns how many allocations made the load fail. */
static int starve(struct starvation *s)
{
	int failures = 0;
	for (s->at = 1;; s->at += 1 + s->at / 8) {
		const struct outcome *o = s->outcomes;
		memset(s->outcomes, 0, 3 * sizeof *o);
		assert_int_equal(world_run(3, load_without_memory, s), 0);
		if (!o[s->rank].reached)
			return failures;
		assert_int_equal(o[0].failed, o[1].failed);
		assert_int_equal(o[0].failed, o[2].failed);
		assert_true(!o[0].failed || o[s->rank].no_memory);
		failures += o[0].failed;
	}
}

static void nobody_waits_for_a_rank_without_memory(void **state)
{
	struct starvation s = { .outcomes = world_shared(3 * sizeof *s.outcomes) };
	(void)state;
	for (int i = 0; i < 4; i++) {
		s.rank = i / 2;
		s.recover = i % 2;
		assert_true(starve(&s) > 20);
	}
	world_unshared(s.outcomes, 3 * sizeof *s.outcomes);
}
#endif

static int die_in_a_read(struct comm *world, void *arg, struct err *e)
{
	struct err got = ERR_INIT;
	int culprit;
	counted_fault(COUNTED_DIE, comm_rank(world) == 1 ? *(int *)arg : 0);
	int rc = load_replicas(world, &culprit, &got);
	return check_failure(rc, culprit, &got, &(struct expected){ ERR_PEER, -1, "1" }, e);
}

static void nobody_waits_for_a_rank_that_dies(void **state)
{
	(void)state;
	for (int at = 1; at < 8; at += 3) {
		int outcomes[3];
		world_outcomes(3, die_in_a_read, &at, outcomes);
		assert_int_equal(outcomes[0], 0);
		assert_int_equal(outcomes[1], 9);
		assert_int_equal(outcomes[2], 0);
	}
}

static int want_another_tensor(struct comm *world, void *arg, struct err *e)
{
	struct err got = ERR_INIT;
	struct boxes b;
	struct dice d = { .trial = 1 };
	struct ckpt_load_options opt = options_of(3);
	int culprit;
	(void)arg;
	layout_boxes(&d, &layouts[0], 0, &b);
	if (comm_rank(world) == 2)
		strcpy(b.list[1].name, "bias");
	int rc = load(world, &opt, &b, &culprit, &got);
	free_boxes(&b);
	return check_failure(rc, culprit, &got, &(struct expected){ ERR_USAGE, 2, "tensor bias" },
			     e);
}

static int refuse(void *arg, const struct ckpt_state *state, struct err *e)
{
	(void)arg;
	return err_set(e, ERR_USAGE, "not step %" PRId64, state->step);
}

static int refuse_the_state(struct comm *world, void *arg, struct err *e)
{
	struct err got = ERR_INIT;
	struct boxes b = { .n = 0 };
	struct ckpt_load_options opt = options_of(3);
	int culprit;
	(void)arg;
	opt.accept = refuse;
	int rc = load(world, &opt, &b, &culprit, &got);
	return check_failure(rc, culprit, &got, &(struct expected){ ERR_USAGE, 0, "not step 3" },
			     e);
}

static void what_one_rank_cannot_take_no_rank_loads(void **state)
{
	(void)state;
	assert_int_equal(world_run(3, want_another_tensor, NULL), 0);
	assert_int_equal(world_run(3, refuse_the_state, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_gets_the_error_of_any_failed_read),
		cmocka_unit_test(every_rank_learns_of_a_flipped_bit),
		cmocka_unit_test(nobody_waits_for_a_rank_that_dies),
		cmocka_unit_test(nobody_waits_for_a_rank_without_memory),
		cmocka_unit_test(what_one_rank_cannot_take_no_rank_loads),
	};
	return cmocka_run_group_tests(tests, exchange_setup, exchange_teardown);
}
