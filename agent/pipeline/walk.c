/* Walking a row of the schedule table: one handler for each kind of step. */
#include "agent/pipeline/rank.h"

#include "base/clock.h"

struct walk {
	struct engine *g;
	const struct engine_batch *batch;
	bool backward; /* gradients are wanted */
	double loss;
};

/* The micro-batch's slot; a new one when it has none yet. The round robin gives messages time to leave. */
static int berth_of(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	if (g->slot_of[micro] >= 0)
		return g->slot_of[micro];
	for (int i = 0; i < g->slots; i++) {
		int slot = (g->next_slot + i) % g->slots;
		struct berth *b = &g->berths[slot];
		if (b->taken)
			continue;
		if (pipe_wait(&g->pipe, &b->act_sent, e))
			return -1;
		b->taken = true;
		g->next_slot = slot + 1;
		return g->slot_of[micro] = slot;
	}
	return err_set(e, ERR_INTERNAL, "schedule: stage %d keeps more than its %d micro-batches", g->at.pp, g->slots);
}

static struct model_batch micro_batch(const struct walk *w, int micro)
{
	const struct engine *g = w->g;
	int64_t at = micro * g->micro_tokens;
	return (struct model_batch){
		.inputs = w->batch->inputs + at, .targets = w->batch->targets + at,
		.starts = w->batch->starts ? w->batch->starts + at : NULL,
		.sample = w->batch->sample + micro * g->job->batch.micro,
		.grad_scale = (float)(w->batch->loss_scale / (double)g->global_tokens),
		.last = micro == g->micros - 1,
	};
}

static int recv_act(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	int slot = berth_of(w, micro, e);
	return slot < 0 ? -1 : pipe_recv_act(&g->pipe, model_input(g->model, 0, slot), (size_t)model_boundary(g->model), e);
}

static int forward(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	int slot = berth_of(w, micro, e);
	struct model_batch b = micro_batch(w, micro);
	if (slot < 0 || model_forward(g->model, 0, slot, &b, w->backward, &w->loss, e))
		return -1;
	g->berths[slot].taken = w->backward;
	return 0;
}

static int send_act(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	int slot = g->slot_of[micro];
	return pipe_send_act(&g->pipe, model_output(g->model, 0, slot), (size_t)model_boundary(g->model),
			     &g->berths[slot].act_sent, e);
}

static int recv_grad(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	int slot = g->slot_of[micro];
	if (pipe_wait(&g->pipe, &g->berths[slot].grad_sent, e))
		return -1;
	return pipe_recv_grad(&g->pipe, model_grad(g->model, 0, slot), (size_t)model_boundary(g->model), e);
}

static int backward(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	int slot = g->slot_of[micro];
	struct model_batch b = micro_batch(w, micro);

	/* The last stage writes its gradient here without having received one. */
	if (pipe_wait(&g->pipe, &g->berths[slot].grad_sent, e) ||
	    model_backward(g->model, 0, slot, &b, BACKWARD_BOTH, e))
		return -1;
	g->berths[slot].taken = false;
	return 0;
}

static int send_grad(struct walk *w, int micro, struct err *e)
{
	struct engine *g = w->g;
	int slot = g->slot_of[micro];
	return pipe_send_grad(&g->pipe, model_grad(g->model, 0, slot), (size_t)model_boundary(g->model),
			      &g->berths[slot].grad_sent, e);
}

static int reduce(struct walk *w, int micro, struct err *e)
{
	(void)micro;
	struct engine *g = w->g;
	double start = clock_s();
	if (store_finish(g->store, e))
		return -1;
	g->times.dp_exposed += clock_s() - start;
	return 0;
}

static const struct {
	const char *phase;
	bool computes;
	int (*run)(struct walk *w, int micro, struct err *e);
} handlers[] = {
	[SCHED_RECV_ACT] = { "receive-activations", false, recv_act },
	[SCHED_FORWARD] = { "forward", true, forward },
	[SCHED_SEND_ACT] = { "send-activations", false, send_act },
	[SCHED_RECV_GRAD] = { "receive-gradients", false, recv_grad },
	[SCHED_BACKWARD] = { "backward", true, backward },
	[SCHED_SEND_GRAD] = { "send-gradients", false, send_grad },
	[SCHED_REDUCE] = { "reduce-gradients", false, reduce },
};

static double waits(const struct engine *g)
{
	return g->tp.seconds + g->cp.seconds + g->ep.seconds + g->pipe.seconds;
}

static int run_step(struct walk *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	if (g->phase)
		g->phase(handlers[s->op].phase, g->phase_arg);
	double start = clock_s(), waited = waits(g);
	int rc = handlers[s->op].run(w, s->micro, e);
	if (handlers[s->op].computes)
		g->times.compute += clock_s() - start - (waits(g) - waited);
	return rc;
}

int walk_settle(struct engine *g, struct err *e)
{
	int rc = 0;
	for (int i = 0; g->berths && i < g->slots; i++) {
		if (pipe_wait(&g->pipe, &g->berths[i].act_sent, rc ? NULL : e))
			rc = -1;
		if (pipe_wait(&g->pipe, &g->berths[i].grad_sent, rc ? NULL : e))
			rc = -1;
	}
	return rc;
}

int walk_row(struct engine *g, const struct sched_row *row, const struct engine_batch *batch, bool backward, double *loss, struct err *e)
{
	struct walk w = { .g = g, .batch = batch, .backward = backward };

	g->times = (struct engine_times){ 0 };
	g->tp.seconds = g->cp.seconds = g->ep.seconds = g->pipe.seconds = 0;
	for (int i = 0; i < g->micros; i++)
		g->slot_of[i] = -1;
	for (int i = 0; i < g->slots; i++)
		g->berths[i].taken = false;
	for (int i = 0; i < row->n; i++)
		if (run_step(&w, &row->steps[i], e))
			return -1;
	if (walk_settle(g, e))
		return -1;
	g->times.tp = g->tp.seconds;
	g->times.cp = g->cp.seconds;
	g->times.ep = g->ep.seconds;
	g->times.pp = g->pipe.seconds;
	*loss = w.loss;
	return 0;
}
