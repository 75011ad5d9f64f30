/* Tests the feed: the batches are the same with and without read-ahead, the shares tile the batch,
 * errors appear at their step, and the feed can end at any time. */
#include "agent/engine/data/feed.h"
#include "agent/engine/data/tokens.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQ = 8, GLOBAL = 6, STEPS = 25, VOCAB = 1000 };

static char dir[64], prefix[80];
static struct dataset *data;

/* Opens about 100 training samples in documents of 13 tokens. Token i is i mod VOCAB. */
static int open_data(void **state)
{
	struct token_writer *w;
	(void)state;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(prefix, sizeof prefix, "%s/d", dir);
	if (data_token_writer_open(prefix, TOKEN_U16, &w, NULL))
		return -1;
	for (int i = 0; i < 130 * SEQ; i++) {
		uint16_t v = (uint16_t)(i % VOCAB);
		if (data_token_writer_add(w, &v, 1, NULL) ||
		    (i % 13 == 12 && data_token_writer_end(w, NULL)))
			return -1;
	}
	int rc = data_token_writer_end(w, NULL) || data_token_writer_commit(w, NULL);
	data_token_writer_close(w);
	return rc ? -1 : dataset_open(prefix, SEQ, 0.2, &data, NULL);
}

static int close_data(void **state)
{
	char path[128];
	(void)state;
	dataset_close(data);
	snprintf(path, sizeof path, "%s.bin", prefix);
	unlink(path);
	snprintf(path, sizeof path, "%s.idx", prefix);
	unlink(path);
	return rmdir(dir);
}

static struct feed_options options(int64_t ahead)
{
	return (struct feed_options){
		.data = data,
		.split = DATA_TRAIN,
		.seed = 3,
		.vocab = VOCAB,
		.position = 40,
		.global = GLOBAL,
		.offset = 0,
		.share = GLOBAL,
		.steps = STEPS,
		.ahead = ahead,
		.starts = true,
	};
}

static struct feed *open_feed(const struct feed_options *o)
{
	struct err e = ERR_INIT;
	struct feed *f;
	if (data_feed_open(o, &f, &e))
		fail_msg("%s", e.text);
	return f;
}

static void every_depth_gives_what_the_data_has(void **state)
{
	static const int64_t depths[] = { 0, 1, 2, 7, STEPS, 1000 };
	(void)state;
	for (size_t k = 0; k < sizeof depths / sizeof *depths; k++) {
		struct feed_options o = options(depths[k]);
		struct feed *f = open_feed(&o);
		for (int64_t step = 0; step < STEPS; step++) {
			struct feed_batch b;
			struct digest again;
			int32_t in[GLOBAL * SEQ], to[GLOBAL * SEQ], starts[GLOBAL * SEQ],
				room[2 * SEQ];
			int64_t at = 40 + step * GLOBAL;
			assert_int_equal(data_feed_next(f, &b, NULL), 0);
			assert_int_equal(dataset_read(data, DATA_TRAIN, 3, at, GLOBAL, VOCAB, in,
						      to, starts, NULL),
					 0);
			assert_int_equal(b.position, at);
			assert_int_equal(b.count, GLOBAL);
			assert_memory_equal(b.inputs, in, sizeof in);
			assert_memory_equal(b.targets, to, sizeof to);
			assert_memory_equal(b.starts, starts, sizeof starts);
			assert_int_equal(data_feed_digest(data, DATA_TRAIN, 3, VOCAB,
							  &(struct feed_share){ .position = at,
										.count = GLOBAL },
							  room, &again, NULL),
					 0);
			assert_true(ckpt_digest_equal(&b.digest, &again));
		}
		assert_int_equal(data_feed_next(f, &(struct feed_batch){ 0 }, NULL), -1);
		data_feed_close(f);
	}
}

static void unequal_shares_tile_the_batch(void **state)
{
	static const int64_t shares[] = { 3, 1, 2 };
	struct feed *f[3], *all;
	(void)state;
	struct feed_options o = options(2);
	all = open_feed(&o);
	o.starts = false;
	for (int64_t r = 0, offset = 0; r < 3; offset += shares[r++]) {
		o.offset = offset;
		o.share = shares[r];
		f[r] = open_feed(&o);
	}
	for (int step = 0; step < STEPS; step++) {
		struct feed_batch whole, part;
		assert_int_equal(data_feed_next(all, &whole, NULL), 0);
		for (int64_t r = 0, at = 0; r < 3; at += shares[r++] * SEQ) {
			assert_int_equal(data_feed_next(f[r], &part, NULL), 0);
			assert_null(part.starts);
			assert_int_equal(part.position, whole.position + at / SEQ);
			assert_memory_equal(part.inputs, whole.inputs + at,
					    (size_t)shares[r] * SEQ * sizeof(int32_t));
			assert_memory_equal(part.targets, whole.targets + at,
					    (size_t)shares[r] * SEQ * sizeof(int32_t));
		}
	}
	for (int r = 0; r < 3; r++)
		data_feed_close(f[r]);
	data_feed_close(all);
}

/* The batches are the samples that are left, in their order, whatever the shares. */
static void skipped_samples_are_in_no_batch(void **state)
{
	static const int64_t shares[] = { 3, 1, 2 };
	struct ranges skips;
	struct feed *f[3];
	(void)state;
	assert_int_equal(ranges_parse("7-9,41,44-52,60,75-1000", &skips, NULL), 0);
	struct feed_options o = options(2);
	o.position = 40;
	o.skipped = 3;
	o.skips = &skips;
	for (int64_t r = 0, offset = 0; r < 3; offset += shares[r++]) {
		o.offset = offset;
		o.share = shares[r];
		f[r] = open_feed(&o);
	}
	int64_t position = 40, consumed = 37;
	for (int step = 0; step < STEPS; step++) {
		for (int r = 0; r < 3; r++) {
			struct feed_batch b;
			assert_int_equal(data_feed_next(f[r], &b, NULL), 0);
			assert_int_equal(b.sample, consumed);
			for (int64_t i = 0; i < b.count; i++, position++, consumed++) {
				int32_t in[SEQ], to[SEQ];
				while (ranges_count(&skips, position, position + 1))
					position++;
				assert_true(i || b.position == position);
				assert_int_equal(dataset_read(data, DATA_TRAIN, 3, position, 1,
							      VOCAB, in, to, NULL, NULL),
						 0);
				assert_memory_equal(b.inputs + i * SEQ, in, sizeof in);
				assert_memory_equal(b.targets + i * SEQ, to, sizeof to);
			}
		}
	}
	assert_true(position > 1000);
	for (int r = 0; r < 3; r++)
		data_feed_close(f[r]);
}

#define SAMPLE(at) \
	&(struct feed_share) \
	{ \
		.position = at, .count = 1 \
	}

static void the_digest_knows_position_and_tokens(void **state)
{
	int32_t room[2 * SEQ];
	struct digest one, other;
	(void)state;
	assert_int_equal(
		data_feed_digest(data, DATA_VALIDATION, 3, VOCAB, SAMPLE(5), room, &one, NULL), 0);
	assert_int_equal(data_feed_digest(data, DATA_VALIDATION, 4, VOCAB, SAMPLE(5), room, &other,
					  NULL),
			 0);
	assert_true(ckpt_digest_equal(&one, &other)); /* the seed orders only the training split */
	assert_int_equal(data_feed_digest(data, DATA_VALIDATION, 3, VOCAB,
					  SAMPLE(5 + dataset_samples(data, DATA_VALIDATION)), room,
					  &other, NULL),
			 0);
	assert_false(ckpt_digest_equal(&one, &other)); /* the same tokens at another place */
	assert_int_equal(data_feed_digest(data, DATA_TRAIN, 3, VOCAB, SAMPLE(5), room, &one, NULL),
			 0);
	assert_int_equal(
		data_feed_digest(data, DATA_TRAIN, 4, VOCAB, SAMPLE(5), room, &other, NULL), 0);
	assert_false(ckpt_digest_equal(&one, &other)); /* other tokens there */
}

/* Returns the first step that contains a token >= vocab. */
static int64_t first_bad_step(int64_t vocab)
{
	for (int64_t step = 0; step < STEPS; step++) {
		int32_t in[GLOBAL * SEQ], to[GLOBAL * SEQ];
		if (dataset_read(data, DATA_TRAIN, 3, 40 + step * GLOBAL, GLOBAL, vocab, in, to,
				 NULL, NULL))
			return step;
	}
	return STEPS;
}

static void an_error_comes_at_its_step_and_stays(void **state)
{
	(void)state;
	for (int64_t ahead = 0; ahead < 6; ahead++) {
		struct feed_options o = options(ahead);
		o.vocab = 820;
		int64_t bad = first_bad_step(o.vocab);
		assert_in_range(bad, 1, STEPS - 2);
		struct feed *f = open_feed(&o);
		for (int64_t step = 0; step < bad; step++)
			assert_int_equal(data_feed_next(f, &(struct feed_batch){ 0 }, NULL), 0);
		for (int again = 0; again < 3; again++) {
			struct err e = ERR_INIT;
			assert_int_equal(data_feed_next(f, &(struct feed_batch){ 0 }, &e), -1);
			assert_int_equal(e.code, ERR_CORRUPT);
			assert_non_null(strstr(e.text, "outside the vocabulary of 820"));
		}
		data_feed_close(f);
	}
}

static void count_call(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void a_feed_ends_at_any_time(void **state)
{
	(void)state;
	for (int64_t ahead = 0; ahead < 4; ahead++)
		for (int taken = 0; taken < 5; taken++) {
			struct feed_options o = options(ahead);
			o.steps = 1000000000; /* there is always more to read */
			struct feed *f = open_feed(&o);
			for (int i = 0; i < taken; i++)
				assert_int_equal(data_feed_next(f, &(struct feed_batch){ 0 }, NULL),
						 0);
			data_feed_close(f);
		}
	data_feed_close(NULL);
}

static void only_who_waits_hears_that_the_reader_moves(void **state)
{
	(void)state;
	for (int64_t ahead = 0; ahead < 2; ahead++) {
		atomic_int calls = 0;
		struct feed_options o = options(ahead);
		o.steps = 1;
		o.moved = count_call;
		o.moved_arg = &calls;
		struct feed *f = open_feed(&o);
		assert_int_equal(calls, 0);
		assert_int_equal(data_feed_next(f, &(struct feed_batch){ 0 }, NULL), 0);
		data_feed_close(f);
		if (ahead)
			assert_in_range(calls, 0, GLOBAL); /* the thread may have been faster */
		else
			assert_int_equal(calls, GLOBAL);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_data, close_data)
	const struct CMUnitTest tests[] = {
		TEST(every_depth_gives_what_the_data_has),
		TEST(unequal_shares_tile_the_batch),
		TEST(skipped_samples_are_in_no_batch),
		TEST(the_digest_knows_position_and_tokens),
		TEST(an_error_comes_at_its_step_and_stays),
		TEST(a_feed_ends_at_any_time),
		TEST(only_who_waits_hears_that_the_reader_moves),
	};
	return cmocka_run_group_tests_name("data feed", tests, NULL, NULL);
}
