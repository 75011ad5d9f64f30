/* Tests that ranks which load together get what each would load by itself, read every byte once, and
 * fail together. */
#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/load/read.h"
#include "agent/engine/ckpt/memory/store.h"
#include "tests/unit/agent/ckpt_counted_storage.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/world.h"

#include <inttypes.h>

enum { LAYOUTS = 5, TRIALS = 200, BOXES_MAX = 3 * FIX_TENSORS, BIG_STEP = 99 };

static const struct fix_layout layouts[LAYOUTS] = {
	{ 1, 1, 0 }, { 2, 1, 0 }, { 3, 2, 5 }, { 1, 3, 0 }, { 4, 1, 17 },
};
static struct counted *counted;
static uint64_t seed;

/* --- random numbers, equal on all ranks --- */

struct dice {
	uint64_t trial, thrown;
};

static int64_t throw_dice(struct dice *d, int64_t below)
{
	uint32_t r[4];
	philox4(philox_key(seed, PHILOX_TEST, d->trial), d->thrown++, r);
	return (int64_t)(r[0] % (uint64_t)below);
}

/* --- memory of a device: ordinary memory, behind functions --- */

static int device_get(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	(void)arg, (void)e;
	memcpy(to, from, bytes);
	return 0;
}

static int device_put(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	(void)arg, (void)e;
	memcpy(to, from, bytes);
	return 0;
}

static const struct ckpt_memory device = { .get = device_get, .put = device_put };

/* --- boxes of a rank --- */

struct boxes {
	struct ckpt_tensor list[BOXES_MAX];
	int n;
};

static size_t bytes_of(const struct ckpt_tensor *t)
{
	return (size_t)((t->hi[0] - t->lo[0]) * (t->hi[1] - t->lo[1])) * sizeof(float);
}

static void add_box(struct boxes *b, int tensor, const int64_t lo[2], const int64_t hi[2],
		    bool there)
{
	struct ckpt_tensor *t = &b->list[b->n++];
	*t = fix_box(tensor, lo[0], hi[0], lo[1], hi[1]);
	memset(t->data, 0xee, bytes_of(t));
	t->there = there ? &device : NULL;
}

/* All boxes of a rank of the layout, some in device memory. */
static void layout_boxes(struct dice *d, const struct fix_layout *l, int rank, struct boxes *b)
{
	b->n = fix_rank(l, rank % (l->tp * l->pp), -1, true, b->list);
	for (int i = 0; i < b->n; i++) {
		memset(b->list[i].data, 0xee, bytes_of(&b->list[i]));
		b->list[i].there = throw_dice(d, 3) ? NULL : &device;
	}
}

/* Some boxes anywhere, which may overlap and be empty. */
static void random_boxes(struct dice *d, struct boxes *b)
{
	b->n = 0;
	for (int i = 0; i < FIX_TENSORS; i++)
		for (int64_t k = throw_dice(d, 4); k > 0; k--) {
			int64_t lo[2], hi[2];
			for (int j = 0; j < 2; j++) {
				int64_t most = fix_tensors[i].shape[j];
				lo[j] = throw_dice(d, most);
				hi[j] = lo[j] + throw_dice(d, most - lo[j] + 1);
			}
			if (fix_tensors[i].dims == 1) {
				lo[1] = 0;
				hi[1] = 1;
			}
			add_box(b, i, lo, hi, throw_dice(d, 3) == 0);
		}
}

static void free_boxes(struct boxes *b)
{
	fix_free(b->list, b->n);
}

/* Compares the boxes with those that this rank loads by itself. */
static int compare_alone(const struct boxes *b, const char *path, struct err *e)
{
	struct boxes alone = *b;
	int rc = 0;
	for (int i = 0; i < b->n; i++) {
		alone.list[i].data = malloc(bytes_of(&b->list[i]) + 1);
		memset(alone.list[i].data, 0xee, bytes_of(&b->list[i]));
		alone.list[i].there = NULL;
	}
	rc = ckpt_load(path, NULL, NULL, alone.list, alone.n, NULL, e);
	for (int i = 0; i < b->n && !rc; i++)
		if (memcmp(alone.list[i].data, b->list[i].data, bytes_of(&b->list[i])))
			rc = err_set(e, ERR_INTERNAL, "box %d, of %s, differs", i, b->list[i].name);
	free_boxes(&alone);
	return rc;
}

static const char *counted_path(int64_t step)
{
	static char path[PATH_MAX];
	snprintf(path, sizeof path, "%s%s", COUNTED_SCHEME, fix_path(step, NULL));
	return path;
}

static struct ckpt_load_options options_of(int64_t step)
{
	return (struct ckpt_load_options){ .path = counted_path(step) };
}

static int load(struct comm *world, const struct ckpt_load_options *opt, struct boxes *b,
		int *culprit, struct err *e)
{
	struct ckpt_state state;
	return ckpt_load_all(world, opt, &state, b->list, b->n, culprit, e);
}

/* --- each byte once --- */

static bool any_wants(const struct manifest_tensor *t, const struct manifest_slice *s,
		      const struct boxes *all, int ranks)
{
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < all[r].n; i++)
			if (!strcmp(all[r].list[i].name, t->name) && bytes_of(&all[r].list[i]) &&
			    ckpt_boxes_touch(t->dims, s, &all[r].list[i]))
				return true;
	return false;
}

static int check_bytes(int shard, int64_t from, int64_t to, int want, struct err *e)
{
	for (int64_t i = from; i < to && i < COUNTED_BYTES; i++)
		if (counted->shards[shard][i] != want)
			return err_set(e, ERR_INTERNAL,
				       "byte %" PRId64 " of shard %d was read %d times, not %d", i,
				       shard, counted->shards[shard][i], want);
	return 0;
}

/* Every slice that a rank wants was read once, and so was the header of its file; nothing else
 * was. */
static int check_counts(int64_t step, const struct boxes *all, int ranks, struct err *e)
{
	struct manifest m;
	bool wanted[COUNTED_FILES] = { false };
	int rc = 0;
	if (ckpt_manifest_load(fix_path(step, NULL), &m, e))
		return -1;
	for (int64_t i = 0; i < m.n_tensors && !rc; i++)
		for (int64_t k = 0; k < m.tensors[i].n && !rc; k++) {
			const struct manifest_slice *s = &m.tensors[i].slices[k];
			int64_t at = m.files[s->file].header + s->offset;
			int shard, wants = any_wants(&m.tensors[i], s, all, ranks);
			sscanf(m.files[s->file].name, "shard-%d", &shard);
			wanted[shard] |= wants;
			rc = check_bytes(shard, at, at + ckpt_slice_bytes(s), wants, e);
		}
	for (int64_t f = 0; f < m.n_files && !rc; f++) {
		int shard;
		sscanf(m.files[f].name, "shard-%d", &shard);
		rc = check_bytes(shard, 0, m.files[f].header, wanted[shard], e);
	}
	ckpt_manifest_fini(&m);
	if (!rc && counted->shards[COUNTED_FILES - 1][0] != 1)
		rc = err_set(e, ERR_INTERNAL, "the manifest was read %d times",
			     counted->shards[COUNTED_FILES - 1][0]);
	return rc;
}

/* The boxes of all ranks of a trial. */
static void trial_boxes(uint64_t trial, int ranks, struct boxes *all, struct dice *d)
{
	*d = (struct dice){ .trial = trial };
	int64_t kind = throw_dice(d, 2), layout = throw_dice(d, LAYOUTS);
	for (int r = 0; r < ranks; r++)
		if (kind)
			random_boxes(d, &all[r]);
		else
			layout_boxes(d, &layouts[layout], r, &all[r]);
}

static int run_trial(struct comm *world, uint64_t trial, struct boxes *all, struct err *e)
{
	int culprit, ranks = comm_size(world), rank = comm_rank(world);
	struct dice d;
	trial_boxes(trial, ranks, all, &d);
	int64_t step = 1 + throw_dice(&d, LAYOUTS);
	struct ckpt_load_options opt = options_of(step);
	if (throw_dice(&d, 4)) {
		opt.turn_bytes = 4 + throw_dice(&d, 3000);
		opt.round_bytes = 4 + throw_dice(&d, 9000);
	}
	if (rank == 0)
		memset(counted, 0, sizeof *counted);
	int rc = comm_barrier(world, e);
	if (!rc)
		rc = load(world, &opt, &all[rank], &culprit, e) ||
		     compare_alone(&all[rank], fix_path(step, NULL), e) || comm_barrier(world, e);
	if (!rc && rank == 0)
		rc = check_counts(step, all, ranks, e);
	for (int r = 0; r < ranks; r++)
		free_boxes(&all[r]);
	return rc ? err_prefix(e, "seed %" PRIu64 ", trial %" PRIu64 ", step %" PRId64, seed, trial,
			       step)
		  : 0;
}

static int run_trials(struct comm *world, void *arg, struct err *e)
{
	struct boxes *all = calloc((size_t)comm_size(world), sizeof *all);
	int rc = 0;
	(void)arg;
	for (uint64_t i = 0; i < TRIALS && !rc; i++)
		rc = run_trial(world, i * WORLD_MAX + (uint64_t)comm_size(world), all, e);
	free(all);
	return rc;
}

static void any_ranks_load_what_each_would_alone_and_read_each_byte_once(void **state)
{
	(void)state;
	for (int n = 2; n <= 6; n++)
		assert_int_equal(world_run(n, run_trials, NULL), 0);
}

/* --- large slices, with the default limits --- */

enum { BIG_ROWS = 1500, BIG_COLUMNS = 1000, BIG_BYTES = BIG_ROWS * BIG_COLUMNS * 4 };

static float big_value(int64_t row, int64_t column)
{
	return (float)(row * 7919 + column);
}

static struct ckpt_tensor big_box(int64_t row_lo, int64_t row_hi, int64_t column_lo,
				  int64_t column_hi)
{
	struct ckpt_tensor t = { .name = "big",
				 .dims = 2,
				 .shape = { BIG_ROWS, BIG_COLUMNS },
				 .lo = { row_lo, column_lo },
				 .hi = { row_hi, column_hi } };
	t.data = calloc((size_t)((row_hi - row_lo) * (column_hi - column_lo)), sizeof *t.data);
	return t;
}

static bool is_big(const struct ckpt_tensor *t)
{
	const float *at = t->data;
	for (int64_t i = t->lo[0]; i < t->hi[0]; i++)
		for (int64_t j = t->lo[1]; j < t->hi[1]; j++)
			if (*at++ != big_value(i, j))
				return false;
	return true;
}

/* Writes 3 slices of one tensor, each in a shard of its own. */
static void write_big(void)
{
	struct err e = ERR_INIT;
	struct manifest m, part;
	struct snapshot s = { 0 };
	struct buf text = BUF_INIT;
	struct ckpt_state st = fix_state(BIG_STEP);
	json_t *model = fix_model(), *layout = json_object();
	ckpt_manifest_init(&m, &st, 1, model, layout);
	assert_int_equal(mkdir(fix_path(BIG_STEP, NULL), 0700), 0);
	for (int r = 0; r < 3; r++) {
		struct ckpt_tensor t = big_box(r * 500, (r + 1) * 500, 0, BIG_COLUMNS);
		float *at = t.data;
		for (int64_t i = t.lo[0]; i < t.hi[0]; i++)
			for (int64_t j = 0; j < BIG_COLUMNS; j++)
				*at++ = big_value(i, j);
		ckpt_manifest_init(&part, &st, 1, model, layout);
		assert_int_equal(ckpt_snapshot_take(&s, &t, 1), 0);
		if (ckpt_snapshot_write(&s, &ckpt_storage_posix, fix_path(BIG_STEP, NULL), r, &part,
					&e) ||
		    ckpt_manifest_merge(&m, &part, &e))
			fail_msg("%s", e.text);
		ckpt_manifest_fini(&part);
		free(t.data);
	}
	ckpt_manifest_write(&m, &text);
	assert_int_equal(file_replace(fix_path(BIG_STEP, MANIFEST_NAME), text.data, text.len, &e),
			 0);
	buf_fini(&text);
	ckpt_snapshot_fini(&s);
	ckpt_manifest_fini(&m);
	json_decref(model);
	json_decref(layout);
}

/* The boxes of 3 ranks, and the bytes that they have to send to each other. */
static const struct sharing {
	const char *name;
	int64_t lo[3][2], hi[3][2];
	int64_t sent;
} sharings[] = {
	{ "replicas",
	  { { 0 } },
	  { { 1500, 1000 }, { 1500, 1000 }, { 1500, 1000 } },
	  2 * BIG_BYTES },
	{ "own rows",
	  { { 0, 0 }, { 500, 0 }, { 1000, 0 } },
	  { { 500, 1000 }, { 1000, 1000 }, { 1500, 1000 } },
	  0 },
	{ "columns",
	  { { 0, 0 }, { 0, 200 }, { 0, 600 } },
	  { { 1500, 200 }, { 1500, 600 }, { 1500, 1000 } },
	  BIG_BYTES * 2 / 3 },
	{ "one has nothing",
	  { { 0, 0 }, { 0, 0 }, { 0, 0 } },
	  { { 1500, 1000 }, { 1500, 1000 }, { 0, 0 } },
	  BIG_BYTES },
};

static int load_big(struct comm *world, void *arg, struct err *e)
{
	const struct sharing *s = arg;
	int culprit, rank = comm_rank(world);
	struct boxes b = { .list = { big_box(s->lo[rank][0], s->hi[rank][0], s->lo[rank][1],
					     s->hi[rank][1]) },
			   .n = 1 };
	struct ckpt_load_options opt = options_of(BIG_STEP);
	int64_t sent = (int64_t)comm_bytes(world), slack = BIG_BYTES / 100;
	if (load(world, &opt, &b, &culprit, e))
		return -1;
	sent = (int64_t)comm_bytes(world) - sent;
	if (comm_all_reduce(world, &sent, &sent, 1, COMM_I64, COMM_SUM, e))
		return -1;
	bool right = is_big(&b.list[0]);
	free_boxes(&b);
	if (!right)
		return err_set(e, ERR_INTERNAL, "%s: wrong numbers", s->name);
	if (sent < s->sent || sent > s->sent + slack)
		return err_set(e, ERR_INTERNAL, "%s: %" PRId64 " bytes were sent, not %" PRId64,
			       s->name, sent, s->sent);
	return 0;
}

static void ranks_send_only_what_others_need(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof sharings / sizeof *sharings; i++) {
		counted->bytes = 0;
		assert_int_equal(world_run(3, load_big, (void *)&sharings[i]), 0);
		assert_in_range(counted->bytes, BIG_BYTES, BIG_BYTES + 10000);
	}
}

/* --- failures --- */

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

static int setup(void **state)
{
	if (fix_setup(state) || !(counted = counted_open()))
		return -1;
	for (int i = 0; i < LAYOUTS; i++)
		fix_write(&layouts[i], i + 1);
	write_big();
	return 0;
}

static int teardown(void **state)
{
	counted_close(counted);
	return fix_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_ranks_load_what_each_would_alone_and_read_each_byte_once),
		cmocka_unit_test(ranks_send_only_what_others_need),
		cmocka_unit_test(every_rank_gets_the_error_of_any_failed_read),
		cmocka_unit_test(every_rank_learns_of_a_flipped_bit),
		cmocka_unit_test(nobody_waits_for_a_rank_that_dies),
		cmocka_unit_test(nobody_waits_for_a_rank_without_memory),
		cmocka_unit_test(what_one_rank_cannot_take_no_rank_loads),
	};
	const char *given = getenv("MUSTER_SEED");
	seed = given ? strtoull(given, NULL, 10) : 1;
	printf("seed %" PRIu64 "\n", seed);
	return cmocka_run_group_tests(tests, setup, teardown);
}
