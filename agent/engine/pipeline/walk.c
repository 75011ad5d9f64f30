/* Walking a row of the schedule table: one handler for each kind of step. */
#include "agent/engine/pipeline/rank.h"

#include "base/clock.h"

struct walk {
	struct engine *g;
	const struct sched_row *row;
	const struct engine_batch *batch;
	bool backward; /* gradients are wanted */
};

static struct model_batch micro_batch(const struct walk *w, int micro)
{
	const struct engine *g = w->g;
	int64_t at = micro * g->micro_tokens;
	return (struct model_batch){
		.inputs = w->batch->inputs + at,
		.targets = w->batch->targets + at,
		.starts = w->batch->starts ? w->batch->starts + at : NULL,
		.sample = w->batch->sample + micro * g->job->batch.micro,
		.grad_scale = (float)(w->batch->loss_scale / (double)g->global_tokens),
		.last = micro == g->micros - 1,
	};
}

static int recv(struct walk *w, const struct sched_step *s, struct err *e)
{
	return pipeline_receive(w->g, w->row, s, e);
}

/* What passes between two stages of this rank. */
static void hand_over(struct engine *g, void *to, const void *from)
{
	backend_copy(g->backend, to, from,
		     (size_t)model_boundary(g->model) * backend_width(g->backend));
}

/* The chunk's input when the stage before it is here. Without gradients that was all its output
 * was kept for. */
static void take_input(struct walk *w, const struct sched_step *s, int slot)
{
	struct engine *g = w->g;
	int before = g->tracks[s->chunk].before;
	if (before < 0)
		return;
	hand_over(g, model_input(g->model, s->chunk, slot),
		  model_output(g->model, before, g->tracks[before].slot_of[s->micro]));
	if (!w->backward)
		pipeline_track_leave(g, before, s->micro);
}

static int forward(struct walk *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	struct model_batch b = micro_batch(w, s->micro);
	int slot = pipeline_track_slot(g, s->chunk, s->micro);
	if (slot < 0)
		return err_set(e, ERR_INTERNAL,
			       "schedule: chunk %d keeps more than its %d micro-batches", s->chunk,
			       g->tracks[s->chunk].slots);
	/* The output of the slot's last owner lies where this one's will. */
	if (pp_wait(&g->pipe, &pipeline_track_berth(g, s->chunk, s->micro)->act_sent, e))
		return -1;
	take_input(w, s, slot);
	if (model_forward(g->model, s->chunk, slot, &b, w->backward, e))
		return -1;
	if (!w->backward && g->tracks[s->chunk].after < 0)
		pipeline_track_leave(g, s->chunk, s->micro);
	return 0;
}

static int send_act(struct walk *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	struct track *t = &g->tracks[s->chunk];
	int slot = t->slot_of[s->micro];
	return pp_send(&g->pipe, PIPE_ACT, t->to, model_output(g->model, s->chunk, slot),
		       &t->berths[slot].act_sent, e);
}

/* The gradient of the chunk's input is that of the output of the stage before it: its, when that
 * is here. */
static int give_gradient(struct walk *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	int before = g->tracks[s->chunk].before;
	if (before < 0)
		return 0;
	if (pp_wait(&g->pipe, &pipeline_track_berth(g, before, s->micro)->grad_sent, e))
		return -1;
	hand_over(g, model_grad(g->model, before, g->tracks[before].slot_of[s->micro]),
		  model_grad(g->model, s->chunk, g->tracks[s->chunk].slot_of[s->micro]));
	return 0;
}

static int backward_pass(struct walk *w, const struct sched_step *s, enum model_pass pass,
			 struct err *e)
{
	struct engine *g = w->g;
	struct model_batch b = micro_batch(w, s->micro);
	int slot = g->tracks[s->chunk].slot_of[s->micro];
	/* The last stage writes its gradient here without having received one. */
	if (pass != BACKWARD_WEIGHT &&
	    pp_wait(&g->pipe, &g->tracks[s->chunk].berths[slot].grad_sent, e))
		return -1;
	if (model_backward(g->model, s->chunk, slot, &b, pass, e) ||
	    (pass != BACKWARD_WEIGHT && give_gradient(w, s, e)))
		return -1;
	if (pass != BACKWARD_INPUT)
		pipeline_track_leave(g, s->chunk, s->micro);
	return 0;
}

static int backward(struct walk *w, const struct sched_step *s, struct err *e)
{
	return backward_pass(w, s, BACKWARD_BOTH, e);
}

static int backward_input(struct walk *w, const struct sched_step *s, struct err *e)
{
	return backward_pass(w, s, BACKWARD_INPUT, e);
}

static int backward_weight(struct walk *w, const struct sched_step *s, struct err *e)
{
	return backward_pass(w, s, BACKWARD_WEIGHT, e);
}

static int send_grad(struct walk *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	struct track *t = &g->tracks[s->chunk];
	int slot = t->slot_of[s->micro];
	return pp_send(&g->pipe, PIPE_GRAD, t->from, model_grad(g->model, s->chunk, slot),
		       &t->berths[slot].grad_sent, e);
}

static int reduce(struct walk *w, const struct sched_step *s, struct err *e)
{
	(void)s;
	struct engine *g = w->g;
	double start = clock_s(), waited = param_store_waited(g->store);
	if (param_store_finish(g->store, e))
		return -1;
	g->times.dp += clock_s() - start - (param_store_waited(g->store) - waited);
	return 0;
}

static const struct {
	const char *phase;
	bool computes;
	int (*run)(struct walk *w, const struct sched_step *s, struct err *e);
} handlers[SCHED_OPS] = {
	[SCHED_RECV_ACT] = { "receive-activations", false, recv },
	[SCHED_FORWARD] = { "forward", true, forward },
	[SCHED_SEND_ACT] = { "send-activations", false, send_act },
	[SCHED_RECV_GRAD] = { "receive-gradients", false, recv },
	[SCHED_BACKWARD] = { "backward", true, backward },
	[SCHED_BACKWARD_INPUT] = { "backward-input", true, backward_input },
	[SCHED_BACKWARD_WEIGHT] = { "backward-weight", true, backward_weight },
	[SCHED_SEND_GRAD] = { "send-gradients", false, send_grad },
	[SCHED_REDUCE] = { "reduce-gradients", false, reduce },
};

static double waits(const struct engine *g)
{
	return g->tp.seconds + g->cp.seconds + g->ep.seconds + g->pipe.seconds +
	       param_store_waited(g->store);
}

static int record(struct engine *g, const struct sched_step *s, double begin, double end,
		  struct err *e)
{
	struct timeline_event v = { g->at.pp, s->op, s->chunk, s->micro, begin, end };
	return timeline_add(&g->timeline, &v)
		       ? err_set(e, ERR_NOMEM, "a step's timeline: out of memory")
		       : 0;
}

static int run_step(struct walk *w, const struct sched_step *s, double origin, struct err *e)
{
	struct engine *g = w->g;
	bool passes = handlers[s->op].computes;
	if (g->phase)
		g->phase(handlers[s->op].phase, g->phase_arg);
	double start = clock_s(), waited = waits(g);
	if (handlers[s->op].run(w, s, e) || pipeline_receive_ahead(g, w->row, e))
		return -1;
	double end = clock_s();
	if (passes)
		g->times.compute += end - start - (waits(g) - waited);
	if (w->backward && (passes || s->op == SCHED_REDUCE))
		return record(g, s, start - origin, end - origin, e);
	return 0;
}

int pipeline_walk_settle(struct engine *g, struct err *e)
{
	int rc = 0;
	for (int c = 0; g->tracks && c < g->layout.chunks; c++)
		for (int i = 0; g->tracks[c].berths && i < g->tracks[c].slots; i++) {
			struct berth *b = &g->tracks[c].berths[i];
			if (pp_wait(&g->pipe, &b->act_sent, rc ? NULL : e) ||
			    pp_wait(&g->pipe, &b->grad_sent, rc ? NULL : e))
				rc = -1;
		}
	for (int kind = 0; kind < PIPE_KINDS; kind++)
		for (int side = 0; side < PIPE_SIDES; side++)
			if (pp_wait(&g->pipe, &g->inboxes[kind][side].request, rc ? NULL : e))
				rc = -1;
	return rc;
}

static void begin(struct engine *g, const struct sched_row *row, bool backward)
{
	g->times = (struct engine_times){ 0 };
	g->tp.seconds = g->cp.seconds = g->ep.seconds = g->pipe.seconds = 0;
	pipeline_tracks_begin(g, row);
	if (backward) {
		g->timeline.n = 0;
		g->timeline.start = clock_wall_s();
	}
}

int pipeline_walk_row(struct engine *g, const struct sched_row *row,
		      const struct engine_batch *batch, bool backward, struct err *e)
{
	struct walk w = { .g = g, .row = row, .batch = batch, .backward = backward };
	double origin = clock_s(), waited = param_store_waited(g->store),
	       again = model_recompute_s(g->model);
	begin(g, row, backward);
	model_loss_begin(g->model);
	if (pipeline_receive_ahead(g, row, e))
		return -1;
	for (int i = 0; i < row->n; i++)
		if (run_step(&w, &row->steps[i], origin, e))
			return -1;
	if (pipeline_walk_settle(g, e))
		return -1;
	g->times.recompute = model_recompute_s(g->model) - again;
	g->times.compute -= g->times.recompute;
	g->times.tp = g->tp.seconds;
	g->times.cp = g->cp.seconds;
	g->times.ep = g->ep.seconds;
	g->times.pp = g->pipe.seconds;
	g->times.dp += param_store_waited(g->store) - waited;
	return 0;
}
