/*
 * Messages from other pipeline ranks. The next receive of a channel is started as soon as its
 * buffer is free, before its step in the row, so that the transfer overlaps computation.
 */
#include "agent/engine/pipeline/rank.h"

static bool is_receive(enum sched_op op)
{
	return op == SCHED_RECV_ACT || op == SCHED_RECV_GRAD;
}

static enum pp_message kind_of(const struct sched_step *step)
{
	return step->op == SCHED_RECV_ACT ? PP_ACT : PP_GRAD;
}

static enum pp_side side_of(const struct engine *g, const struct sched_step *step)
{
	const struct chunk_state *t = &g->chunk_states[step->chunk];
	return step->op == SCHED_RECV_ACT ? t->from : t->to;
}

/* Finds the channel's next receive in the row. */
static void find_next_receive(struct engine *g, const struct sched_row *row, enum pp_message kind,
			      enum pp_side side, int from)
{
	struct inbox *in = &g->inboxes[kind][side];
	for (in->next = from; in->next < row->n; in->next++) {
		const struct sched_step *step = &row->steps[in->next];
		if (is_receive(step->op) && kind_of(step) == kind && side_of(g, step) == side)
			break;
	}
	in->started = false;
}

void pipeline_slots_begin(struct engine *g, const struct sched_row *row)
{
	for (int c = 0; c < g->view->layout.chunks; c++) {
		struct chunk_state *t = &g->chunk_states[c];
		t->began_at = t->next_slot;
		for (int i = 0; i < g->view->batch.micros; i++)
			t->slot_of[i] = -1;
		for (int i = 0; i < t->slots; i++)
			t->slot_states[i].taken = false;
	}
	for (int kind = 0; kind < PP_MESSAGES; kind++)
		for (int side = 0; side < PP_SIDES; side++)
			find_next_receive(g, row, kind, side, 0);
}

/* The buffer for the message. NULL: it is not free now. Activations need a free slot; a send of the
 * slot's previous output uses another buffer. Gradients use the buffer from which the gradients of
 * the slot's previous micro-batch were sent. */
static void *free_buffer(struct engine *g, const struct sched_step *step)
{
	if (step->op == SCHED_RECV_GRAD) {
		if (g->chunk_states[step->chunk].slot_of[step->micro] < 0 ||
		    !comm_test(pipeline_slot_state(g, step->chunk, step->micro)->grad_sent))
			return NULL;
		return model_grad(g->model, step->chunk,
				  g->chunk_states[step->chunk].slot_of[step->micro]);
	}
	int slot = pipeline_slot_find(g, step->chunk, step->micro);
	return slot < 0 ? NULL : model_input(g->model, step->chunk, slot);
}

static int start_receive(struct engine *g, struct inbox *in, const struct sched_step *step, void *x,
			 struct err *e)
{
	in->started = true;
	return pp_recv_start(&g->pipe, kind_of(step), side_of(g, step), x, &in->request, e);
}

int pipeline_receive_ahead(struct engine *g, const struct sched_row *row, struct err *e)
{
	for (int kind = 0; kind < PP_MESSAGES; kind++)
		for (int side = 0; side < PP_SIDES; side++) {
			struct inbox *in = &g->inboxes[kind][side];
			if (in->started || in->next == row->n)
				continue;
			const struct sched_step *step = &row->steps[in->next];
			void *x = free_buffer(g, step);
			if (x && start_receive(g, in, step, x, e))
				return -1;
		}
	return 0;
}

static int receive_now(struct engine *g, const struct sched_step *step, struct err *e)
{
	int slot = pipeline_slot_find(g, step->chunk, step->micro);
	if (slot < 0)
		return err_set(e, ERR_INTERNAL, "schedule: chunk %d needs more than its %d slots",
			       step->chunk, g->chunk_states[step->chunk].slots);
	if (step->op == SCHED_RECV_ACT)
		return pp_recv(&g->pipe, PP_ACT, side_of(g, step),
			       model_input(g->model, step->chunk, slot), e);
	if (pp_wait(&g->pipe, &pipeline_slot_state(g, step->chunk, step->micro)->grad_sent, e))
		return -1;
	return pp_recv(&g->pipe, PP_GRAD, side_of(g, step), model_grad(g->model, step->chunk, slot),
		       e);
}

int pipeline_receive(struct engine *g, const struct sched_row *row, const struct sched_step *step,
		     struct err *e)
{
	enum pp_message kind = kind_of(step);
	enum pp_side side = side_of(g, step);
	struct inbox *in = &g->inboxes[kind][side];
	int at = in->next;
	if (in->started ? pp_wait(&g->pipe, &in->request, e) : receive_now(g, step, e))
		return -1;
	find_next_receive(g, row, kind, side, at + 1);
	return 0;
}
