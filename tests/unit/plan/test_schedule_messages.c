/* The common order of the pipeline's messages. */
#include "plan/spec/schedule/messages.h"
#include "tests/unit/plan/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MICROS_MAX = 2 * RANKS_MAX + 2 };

static bool is_act(enum sched_op op)
{
	return op == SCHED_SEND_ACT || op == SCHED_RECV_ACT;
}

static bool is_send(enum sched_op op)
{
	return op == SCHED_SEND_ACT || op == SCHED_SEND_GRAD;
}

static bool is_message(enum sched_op op)
{
	return is_send(op) || op == SCHED_RECV_ACT || op == SCHED_RECV_GRAD;
}

/* The number of a message, which both of its steps have. */
static int id_of(const struct schedule *s, int rank, const struct sched_step *step)
{
	int stage = layout_stage(&s->layout, rank, step->chunk);
	if (is_send(step->op))
		stage += is_act(step->op) ? 1 : -1;
	return (stage * s->micros + step->micro) * 2 + is_act(step->op);
}

/* --- Devices that run one kernel at a time, in the order of the starts ---------------------- */

struct machine {
	const struct schedule *s;
	struct sched_messages *lists; /* by rank */
	int at[RANKS_MAX];            /* the next step of each rank */
	int started[RANKS_MAX], ended[RANKS_MAX];
	bool *complete; /* by id */
};

/* The message that a rank's device runs; -1: none. */
static int running(const struct machine *w, int rank)
{
	if (w->ended[rank] == w->started[rank])
		return -1;
	int step = w->lists[rank].list[w->ended[rank]].step;
	return id_of(w->s, rank, &w->s->rows[rank].steps[step]);
}

static bool complete_one(struct machine *w)
{
	for (int a = 0; a < w->s->layout.pp; a++)
		for (int b = a + 1; b < w->s->layout.pp; b++)
			if (running(w, a) >= 0 && running(w, a) == running(w, b)) {
				w->complete[running(w, a)] = true;
				w->ended[a]++;
				w->ended[b]++;
				return true;
			}
	return false;
}

/* Runs a rank's steps until it waits for a message. */
static bool run_rank(struct machine *w, int rank)
{
	const struct sched_row *row = &w->s->rows[rank];
	const struct sched_messages *m = &w->lists[rank];
	int first = w->at[rank];
	for (; w->at[rank] < row->n; w->at[rank]++) {
		const struct sched_step *step = &row->steps[w->at[rank]];
		while (w->started[rank] < m->n && m->list[w->started[rank]].before <= w->at[rank])
			w->started[rank]++;
		if (is_message(step->op) && !is_send(step->op) &&
		    !w->complete[id_of(w->s, rank, step)])
			break;
	}
	return w->at[rank] > first;
}

/* Returns whether all ranks come to their ends. */
static bool run_machine(const struct schedule *s, struct sched_messages *lists)
{
	struct machine w = { .s = s, .lists = lists };
	w.complete = calloc((size_t)(layout_n_stages(&s->layout) * s->micros) * 2, 1);
	assert_non_null(w.complete);
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < s->layout.pp; i++)
			moved |= run_rank(&w, i);
		while (complete_one(&w))
			moved = true;
	}
	bool all = true;
	for (int i = 0; i < s->layout.pp; i++)
		all = all && w.at[i] == s->rows[i].n && w.ended[i] == lists[i].n;
	free(w.complete);
	return all;
}

/* --- What holds for a list ----------------------------------------------------------------- */

static int place_of(const struct schedule *s, int rank, enum sched_op op, int chunk, int micro)
{
	const struct sched_row *row = &s->rows[rank];
	for (int i = 0; i < row->n; i++)
		if (row->steps[i].op == op && row->steps[i].chunk == chunk &&
		    row->steps[i].micro == micro)
			return i;
	return -1;
}

/* Where the message of the step is started; -1: there is none. */
static int start_of(const struct sched_messages *m, int step)
{
	for (int i = 0; i < m->n; i++)
		if (m->list[i].step == step)
			return m->list[i].before;
	return -1;
}

/* A forward pass writes over the output of the slot's earlier micro-batch, and a receive over its
 * input and its gradient. */
static void check_slots(const struct schedule *s, const struct schedule *slots, int rank,
			const struct sched_messages *m)
{
	const struct sched_row *row = &s->rows[rank];
	for (int i = 0; i < row->n; i++) {
		const struct sched_step *step = &row->steps[i];
		int earlier = step->micro - (step->op == SCHED_REDUCE
						     ? 0
						     : slots->rows[rank].slots.live[step->chunk]);
		if (step->op == SCHED_REDUCE || earlier < 0)
			continue;
		int act = place_of(s, rank, SCHED_SEND_ACT, step->chunk, earlier);
		int grad = place_of(s, rank, SCHED_SEND_GRAD, step->chunk, earlier);
		int whole = place_of(s, rank, SCHED_BACKWARD, step->chunk, earlier);
		int half = place_of(s, rank, SCHED_BACKWARD_WEIGHT, step->chunk, earlier);
		if (step->op == SCHED_FORWARD && act >= 0)
			assert_true(start_of(m, act) <= i);
		if ((step->op == SCHED_BACKWARD || step->op == SCHED_BACKWARD_INPUT) && grad >= 0)
			assert_true(start_of(m, grad) <= i);
		if (step->op == SCHED_RECV_GRAD && grad >= 0)
			assert_true(start_of(m, grad) <= start_of(m, i));
		if (step->op == SCHED_RECV_ACT && !s->forwards_only)
			assert_true(start_of(m, i) > (whole > half ? whole : half));
	}
}

static void check_list(const struct schedule *s, const struct schedule *slots, int rank,
		       const struct sched_messages *m)
{
	const struct sched_row *row = &s->rows[rank];
	int messages = 0;
	for (int i = 0; i < row->n; i++)
		messages += is_message(row->steps[i].op);
	assert_int_equal(m->n, messages);
	for (int i = 0; i < m->n; i++) {
		const struct sched_message *x = &m->list[i];
		assert_true(is_message(row->steps[x->step].op));
		assert_true(is_send(row->steps[x->step].op) ? x->before >= x->step
							    : x->before <= x->step);
		assert_true(i == 0 || x->before >= x[-1].before);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(m->list[j].step, x->step);
	}
	check_slots(s, slots, rank, m);
}

static void check_table(const struct schedule *s, const struct schedule *slots)
{
	struct sched_messages lists[RANKS_MAX];
	struct err e = ERR_INIT;
	for (int i = 0; i < s->layout.pp; i++) {
		if (schedule_order_messages(s, slots, i, &lists[i], &e))
			fail_msg("%s", e.text);
		check_list(s, slots, i, &lists[i]);
	}
	if (!run_machine(s, lists))
		fail_msg("%s, %d ranks of %d chunks, %d micro-batches: a deadlock",
			 schedule_words[s->kind], s->layout.pp, s->layout.chunks, s->micros);
	for (int i = 0; i < s->layout.pp; i++)
		schedule_messages_free(&lists[i]);
}

static void no_table_deadlocks_on_devices_that_run_one_kernel_at_a_time(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++)
		for (int pp = 1; pp <= RANKS_MAX; pp += 1 + pp / 4)
			for (int micros = 1; micros <= MICROS_MAX; micros += 1 + micros / 6) {
				struct schedule s = table_of(forms[f].kind, pp, forms[f].chunks,
							     micros);
				struct schedule forwards;
				assert_int_equal(schedule_build_forwards(&s.layout, micros,
									 &forwards, NULL),
						 0);
				check_table(&s, &s);
				check_table(&forwards, &s);
				schedule_free(&forwards);
				schedule_free(&s);
			}
}

/* Starts each message at its own step. */
static void row_order(const struct schedule *s, int rank, struct sched_messages *out)
{
	const struct sched_row *row = &s->rows[rank];
	*out = (struct sched_messages){ .list = calloc((size_t)row->n, sizeof *out->list) };
	assert_non_null(out->list);
	for (int i = 0; i < row->n; i++)
		if (is_message(row->steps[i].op))
			out->list[out->n++] = (struct sched_message){ i, i };
}

static void the_order_of_the_rows_deadlocks(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_1F1B, 4, 8);
	struct sched_messages lists[4];
	for (int i = 0; i < 4; i++)
		row_order(&s, i, &lists[i]);
	assert_false(run_machine(&s, lists));
	for (int i = 0; i < 4; i++)
		schedule_messages_free(&lists[i]);
	schedule_free(&s);
}

/* A middle rank of 1f1b, where each step has an index:
 * 0 RA0 1 F0 2 SA0 3 RA1 4 F1 5 SA1 6 RG0 7 B0 8 SG0 9 RA2 10 F2 11 SA2 12 RG1 13 B1 14 SG1 ... */
static void a_receive_is_started_a_pass_ahead_and_a_send_when_it_can_arrive(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_1F1B, 3, 4);
	struct sched_messages m;
	assert_int_equal(schedule_order_messages(&s, &s, 1, &m, NULL), 0);
	assert_int_equal(s.rows[1].steps[9].op, SCHED_RECV_ACT);
	assert_int_equal(start_of(&m, 0), 0);
	assert_int_equal(start_of(&m, 3), 1); /* before the pass of micro-batch 0 */
	assert_int_equal(start_of(&m, 9), 8); /* once the slot of micro-batch 0 is free */
	/* Rank 2 has one slot, and takes micro-batch 1 after it has sent the gradient of 0. */
	assert_int_equal(start_of(&m, 2), 2);
	assert_true(start_of(&m, 5) >= start_of(&m, 6));
	schedule_messages_free(&m);
	schedule_free(&s);
}

static void a_table_that_deadlocks_is_refused(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_1F1B, 2, 2);
	struct sched_messages m;
	struct err e = ERR_INIT;
	struct sched_step first = s.rows[1].steps[0];
	s.rows[1].steps[0] = s.rows[1].steps[4]; /* it waits for micro-batch 1 first */
	s.rows[1].steps[4] = first;
	assert_int_equal(first.op, SCHED_RECV_ACT);
	assert_int_equal(schedule_order_messages(&s, &s, 0, &m, &e), -1);
	assert_non_null(strstr(e.text, "deadlock"));
	schedule_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_table_deadlocks_on_devices_that_run_one_kernel_at_a_time),
		cmocka_unit_test(the_order_of_the_rows_deadlocks),
		cmocka_unit_test(a_receive_is_started_a_pass_ahead_and_a_send_when_it_can_arrive),
		cmocka_unit_test(a_table_that_deadlocks_is_refused),
	};
	return cmocka_run_group_tests_name("the order of the pipeline's messages", tests, NULL,
					   NULL);
}
