/* Tests that ranks which load together get what each would load by itself, and read every byte
 * once. */
#include "tests/unit/agent/exchange_boxes.h"

enum { TRIALS = 200, BIG_STEP = 99 };

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

static int setup(void **state)
{
	if (exchange_setup(state))
		return -1;
	write_big();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_ranks_load_what_each_would_alone_and_read_each_byte_once),
		cmocka_unit_test(ranks_send_only_what_others_need),
	};
	return cmocka_run_group_tests(tests, setup, exchange_teardown);
}
