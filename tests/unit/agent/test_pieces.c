/* Tests which rank reads which slice, and in which turns. */
#include "agent/engine/ckpt/load/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 600, RANKS_MAX = 8 };

/* --- a manifest of many slices of one tensor --- */

static struct manifest_slice slices[MANY];
static struct manifest_tensor tensor = { .name = "w", .dims = 2, .slices = slices };
static struct manifest m = { .tensors = &tensor, .n_tensors = 1 };

/* n slices of some rows each, dealt to the files in turn. */
static void make_rows(int n, int64_t rows, int64_t columns, int files)
{
	tensor.shape[0] = n * rows;
	tensor.shape[1] = columns;
	tensor.n = n;
	m.n_files = files;
	for (int i = 0; i < n; i++)
		slices[i] = (struct manifest_slice){ .file = i % files,
						     .lo = { i * rows, 0 },
						     .hi = { (i + 1) * rows, columns } };
}

static void add_want(struct wants *w, int rank, int64_t row_lo, int64_t row_hi, int64_t column_lo,
		     int64_t column_hi)
{
	w->list = realloc(w->list, (size_t)(w->n + 1) * sizeof *w->list);
	w->list[w->n++] = (struct want){ .box = { { row_lo, column_lo }, { row_hi, column_hi } },
					 .rank = rank };
}

/* --- providers: the storage, and memory that some ranks hold slices in --- */

static const struct ckpt_provider_ops storage_ops = { .name = "storage" };
static struct ckpt_provider storage = { &storage_ops };

static int held_by[MANY]; /* -1: nobody */

static int holder_of(const struct ckpt_provider *p, const struct slice_entry *s, const int **ranks)
{
	const int *rank = &held_by[s->slice - slices];
	(void)p;
	*ranks = rank;
	return *rank >= 0;
}

static const struct ckpt_provider_ops memory_ops = { .name = "memory", .holders = holder_of };
static struct ckpt_provider memory = { &memory_ops };

static struct pieces plan(struct wants *w, int ranks, struct ckpt_provider *const *from, int n)
{
	struct err e = ERR_INIT;
	struct pieces p;
	if (ckpt_pieces_init(&p, &m, w, 0, ranks, from, n, &e))
		fail_msg("%s", e.text);
	ckpt_wants_fini(w);
	return p;
}

static struct pieces plan_storage(struct wants *w, int ranks)
{
	struct ckpt_provider *from[] = { &storage };
	return plan(w, ranks, from, 1);
}

static int64_t load_of(const struct pieces *p, int rank)
{
	int64_t bytes = 0;
	for (int64_t i = p->queue_at[rank]; i < p->queue_at[rank + 1]; i++)
		bytes += p->slices[p->queue[i]].bytes;
	return bytes;
}

static void replicas_share_the_bytes_evenly_and_keep_files_together(void **state)
{
	struct wants w = { 0 };
	int opened = 0;
	(void)state;
	make_rows(400, 10, 100, 4);
	for (int i = 0; i < 400; i++)
		slices[i].file = (int64_t)(i * 2654435761u >> 16) % 4;
	for (int r = 0; r < 4; r++)
		add_want(&w, r, 0, 4000, 0, 100);
	struct pieces p = plan_storage(&w, 4);
	for (int r = 0; r < 4; r++) {
		bool uses[4] = { false };
		assert_in_range(load_of(&p, r), 80 * 4000, 120 * 4000);
		for (int64_t i = p.queue_at[r]; i < p.queue_at[r + 1]; i++)
			uses[p.slices[p.queue[i]].entry.slice->file] = true;
		for (int f = 0; f < 4; f++)
			opened += uses[f];
	}
	assert_in_range(opened, 4, 6);
	assert_int_equal(p.most_senders, 3);
	ckpt_pieces_fini(&p);
}

static void a_rank_reads_what_it_alone_needs(void **state)
{
	struct wants w = { 0 };
	(void)state;
	make_rows(100, 10, 100, 1);
	add_want(&w, 0, 0, 10, 0, 100);
	add_want(&w, 1, 10, 900, 0, 50);
	add_want(&w, 2, 900, 950, 0, 100);
	struct pieces p = plan_storage(&w, 4);
	assert_int_equal(load_of(&p, 0), 4000);
	assert_int_equal(load_of(&p, 1), 89 * 4000);
	assert_int_equal(load_of(&p, 2), 5 * 4000);
	assert_int_equal(load_of(&p, 3), 0); /* slices that nobody needs are not read */
	assert_int_equal(p.most_senders, 0);
	ckpt_pieces_fini(&p);
}

static void a_file_is_checked_by_one_of_its_readers(void **state)
{
	struct wants w = { 0 };
	int checks[RANKS_MAX] = { 0 };
	(void)state;
	make_rows(64, 1, 100, 1);
	for (int r = 0; r < RANKS_MAX; r++)
		add_want(&w, r, 0, 64, 0, 100);
	struct pieces p = plan_storage(&w, RANKS_MAX);
	int readers = 0, checkers = 0;
	for (int64_t i = 0; i < p.n_slices; i++)
		checks[p.slices[i].reader] += p.slices[i].checks ? 1 : 100;
	for (int r = 0; r < RANKS_MAX; r++) {
		readers += checks[r] > 0;
		checkers += checks[r] > 0 && checks[r] < 100;
		assert_true(checks[r] < 100 ||
			    checks[r] % 100 == 0); /* all of a reader's, or none */
	}
	assert_int_equal(readers, RANKS_MAX);
	assert_int_equal(checkers, 1);
	ckpt_pieces_fini(&p);
}

/* A slice that begins first may end last. */
static void a_box_finds_all_slices_that_it_touches(void **state)
{
	struct wants w = { 0 };
	(void)state;
	make_rows(4, 25, 9, 1);
	for (int i = 0; i < 4; i++)
		slices[i].lo[1] = 1;
	slices[4] = (struct manifest_slice){ .lo = { 0, 0 }, .hi = { 100, 1 } };
	tensor.n = 5;
	add_want(&w, 0, 80, 90, 0, 9);
	struct pieces p = plan_storage(&w, 1);
	assert_int_equal(p.n_slices, 2);
	assert_int_equal(p.slices[0].bytes, 100 * 4);
	assert_int_equal(p.slices[1].bytes, 25 * 8 * 4);
	ckpt_pieces_fini(&p);
}

static void a_holder_supplies_a_slice_and_the_next_provider_the_others(void **state)
{
	struct ckpt_provider *from[] = { &memory, &storage };
	struct wants w = { 0 };
	(void)state;
	make_rows(4, 10, 100, 1);
	for (int i = 0; i < 4; i++)
		held_by[i] = i == 3 ? -1 : i;
	add_want(&w, 0, 0, 40, 0, 100);
	struct pieces p = plan(&w, 3, from, 2);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(p.slices[i].provider, i == 3);
		assert_int_equal(p.slices[i].reader, i == 3 ? 0 : i);
	}
	assert_int_equal(p.most_senders, 2);
	ckpt_pieces_fini(&p);
}

static void a_slice_that_nobody_holds_fails_the_plan(void **state)
{
	struct ckpt_provider *from[] = { &memory };
	struct wants w = { 0 };
	struct err e = ERR_INIT;
	struct pieces p;
	(void)state;
	make_rows(2, 10, 100, 1);
	held_by[0] = 0;
	held_by[1] = -1;
	add_want(&w, 0, 0, 20, 0, 100);
	assert_int_equal(ckpt_pieces_init(&p, &m, &w, 0, 2, from, 1, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "tensor w: nothing holds its slice at row 10"));
	ckpt_wants_fini(&w);
}

/* --- turns --- */

static struct turn turn;

/* Visits all turns of rank 0 and returns their number. Each takes up where the last one stopped. */
static int walk(const struct pieces *p, int64_t most_bytes)
{
	struct turn_cursor at = ckpt_turn_begin(p, 0);
	int64_t slice = p->queue_at[0], element = 0;
	int turns = 0;
	for (; ckpt_turn_next(p, 0, &at, &turn); turns++) {
		int64_t elements = 0;
		assert_in_range(turn.n, 1, TURN_SEGMENTS);
		for (int i = 0; i < turn.n; i++) {
			const struct segment *s = &turn.segments[i];
			assert_ptr_equal(s->slice, &p->slices[p->queue[slice]]);
			assert_int_equal(s->first, element);
			element += s->n;
			elements += s->n;
			if (element * 4 == s->slice->bytes) {
				slice++;
				element = 0;
			}
		}
		assert_in_range(elements, 1, most_bytes / 4);
	}
	assert_int_equal(slice, p->queue_at[1]);
	return turns;
}

static void a_turn_holds_a_limited_number_of_slices_and_bytes(void **state)
{
	struct wants w = { 0 };
	(void)state;
	make_rows(MANY, 1, 1, 1);
	add_want(&w, 0, 0, MANY, 0, 1);
	struct pieces p = plan_storage(&w, 1);
	ckpt_turns_limit(&p, 0, 0);
	assert_int_equal(walk(&p, TURN_BYTES), 3); /* 256, 256 and 88 slices */
	ckpt_pieces_fini(&p);
	make_rows(2, 3000, 1000, 1);
	add_want(&w, 0, 0, 6000, 0, 1000);
	p = plan_storage(&w, 1);
	ckpt_turns_limit(&p, 0, 0);
	assert_int_equal(walk(&p, TURN_BYTES), 12); /* 24 MB in turns of 2 MiB */
	ckpt_pieces_fini(&p);
}

static void the_more_ranks_send_the_smaller_is_a_turn(void **state)
{
	struct wants w = { 0 };
	(void)state;
	make_rows(64, 1000, 1000, 64);
	for (int r = 0; r < 64; r++)
		add_want(&w, r, 0, 64000, 0, 1000);
	struct pieces p = plan_storage(&w, 64);
	assert_int_equal(p.most_senders, 63);
	ckpt_turns_limit(&p, 0, 0);
	assert_in_range(p.turn_bytes, TURN_BYTES_LEAST, ROUND_BYTES / 63);
	ckpt_pieces_fini(&p);
}

struct round_count {
	const struct pieces *p;
	int64_t received[RANKS_MAX], elements;
	int turns;
};

static void add_received(void *arg, const struct turn_message *x)
{
	struct round_count *c = arg;
	for (int64_t i = x->group->first; i < x->group->first + x->group->n; i++)
		if (c->p->ranks[i] != x->segment->slice->reader)
			c->received[c->p->ranks[i]] += x->n * 4;
}

static void count_turn(void *arg, const struct turn *t)
{
	struct round_count *c = arg;
	c->turns++;
	for (int i = 0; i < t->n; i++)
		c->elements += t->segments[i].n;
	ckpt_turn_messages(c->p, t, add_received, c);
}

static void a_round_brings_no_rank_more_than_its_limit(void **state)
{
	struct wants w = { 0 };
	int64_t elements = 0;
	(void)state;
	make_rows(300, 10, 100, 8);
	for (int r = 0; r < RANKS_MAX; r++)
		add_want(&w, r, r % 2 ? 0 : 1000, 3000, 0, 100);
	struct pieces p = plan_storage(&w, RANKS_MAX);
	ckpt_turns_limit(&p, 8000, 20000); /* of 7 readers, 2 fit into a round */
	struct rounds_order *o;
	assert_int_equal(ckpt_rounds_order_open(&p, &o, NULL), 0);
	for (;;) {
		struct round_count c = { .p = &p };
		if (!ckpt_rounds_order_next(o, count_turn, &c))
			break;
		elements += c.elements;
		for (int r = 0; r < RANKS_MAX; r++)
			assert_in_range(c.received[r], 0, c.turns == 1 ? 8000 : 20000);
	}
	assert_int_equal(elements, 300000);
	ckpt_rounds_order_close(o);
	ckpt_pieces_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replicas_share_the_bytes_evenly_and_keep_files_together),
		cmocka_unit_test(a_rank_reads_what_it_alone_needs),
		cmocka_unit_test(a_file_is_checked_by_one_of_its_readers),
		cmocka_unit_test(a_box_finds_all_slices_that_it_touches),
		cmocka_unit_test(a_holder_supplies_a_slice_and_the_next_provider_the_others),
		cmocka_unit_test(a_slice_that_nobody_holds_fails_the_plan),
		cmocka_unit_test(a_turn_holds_a_limited_number_of_slices_and_bytes),
		cmocka_unit_test(the_more_ranks_send_the_smaller_is_a_turn),
		cmocka_unit_test(a_round_brings_no_rank_more_than_its_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
