/* Messages to and from other pipeline ranks. They are started in the common order of all ranks
 * (plan/spec/schedule/messages.h), which may be before a receive's step, or after a send's. */
#include "agent/engine/pipeline/rank.h"

static enum pp_message kind_of(const struct sched_step *step)
{
	return step->op == SCHED_RECV_ACT || step->op == SCHED_SEND_ACT ? PP_ACT : PP_GRAD;
}

/* The slot's transfer of the step. */
static struct comm_request **transfer_of(struct slot_state *s, const struct sched_step *step)
{
	switch (step->op) {
	case SCHED_RECV_ACT:
		return &s->act_received;
	case SCHED_RECV_GRAD:
		return &s->grad_received;
	case SCHED_SEND_ACT:
		return &s->act_sent;
	default:
		return &s->grad_sent;
	}
}

static int start_send(struct engine *g, const struct sched_step *step, struct err *e)
{
	const struct chunk_state *t = &g->chunk_states[step->chunk];
	enum pp_message kind = kind_of(step);
	int slot = t->slot_of[step->micro];
	return pp_send(&g->pipe, kind, kind == PP_ACT ? t->to : t->from,
		       kind == PP_ACT ? model_output(g->model, step->chunk, slot)
				      : model_grad(g->model, step->chunk, slot),
		       transfer_of(&t->slot_states[slot], step), e);
}

/* The send of the slot's previous gradient reads the buffer that a gradient comes to. A send of its
 * previous output uses another buffer than the activations. */
static int start_receive(struct engine *g, const struct sched_step *step, struct err *e)
{
	const struct chunk_state *t = &g->chunk_states[step->chunk];
	enum pp_message kind = kind_of(step);
	int slot = pipeline_slot_find(g, step->chunk, step->micro);
	if (slot < 0)
		return err_set(e, ERR_INTERNAL, "schedule: chunk %d needs more than its %d slots",
			       step->chunk, t->slots);
	if (kind == PP_GRAD && pp_wait(&g->pipe, &t->slot_states[slot].grad_sent, e))
		return -1;
	return pp_recv_start(&g->pipe, kind, kind == PP_ACT ? t->from : t->to,
			     kind == PP_ACT ? model_input(g->model, step->chunk, slot)
					    : model_grad(g->model, step->chunk, slot),
			     transfer_of(&t->slot_states[slot], step), e);
}

bool pipeline_starts_messages(const struct engine *g, const struct sched_messages *list, int at)
{
	return g->started < list->n && list->list[g->started].before <= at;
}

int pipeline_start_messages(struct engine *g, const struct sched_row *row,
			    const struct sched_messages *list, int at, struct err *e)
{
	for (; pipeline_starts_messages(g, list, at); g->started++) {
		const struct sched_step *step = &row->steps[list->list[g->started].step];
		bool send = step->op == SCHED_SEND_ACT || step->op == SCHED_SEND_GRAD;
		if ((send ? start_send : start_receive)(g, step, e))
			return -1;
	}
	return 0;
}

int pipeline_receive(struct engine *g, const struct sched_step *step, struct err *e)
{
	struct slot_state *s = pipeline_slot_state(g, step->chunk, step->micro);
	return pp_wait(&g->pipe, transfer_of(s, step), e);
}

int pipeline_wait_messages(struct engine *g, struct err *e)
{
	int rc = 0;
	for (int c = 0; g->chunk_states && c < g->view->layout.chunks; c++)
		for (int i = 0; g->chunk_states[c].slot_states && i < g->chunk_states[c].slots;
		     i++) {
			struct slot_state *s = &g->chunk_states[c].slot_states[i];
			struct comm_request **all[] = { &s->act_received, &s->grad_received,
							&s->act_sent, &s->grad_sent };
			for (size_t k = 0; k < sizeof all / sizeof *all; k++)
				if (pp_wait(&g->pipe, all[k], rc ? NULL : e))
					rc = -1;
		}
	return rc;
}
