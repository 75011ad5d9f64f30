/* Executes a row of the schedule table, with one handler for each kind of step. */
#include "agent/engine/pipeline/rank.h"

#include "base/clock.h"

struct row_run {
	struct engine *g;
	const struct sched_row *row;
	const struct sched_messages *messages;
	const struct engine_batch *batch;
	bool backward; /* false: an evaluation */
};

static struct model_batch micro_batch(const struct row_run *w, int micro)
{
	const struct engine *g = w->g;
	int64_t at = micro * g->view->micro_tokens;
	return (struct model_batch){
		.inputs = w->batch->inputs + at,
		.targets = w->batch->targets + at,
		.starts = w->batch->starts ? w->batch->starts + at : NULL,
		.sample = w->batch->sample + micro * g->view->job->batch.micro,
		.last = micro == g->view->batch.micros - 1,
		.number = micro,
	};
}

static int receive_step(struct row_run *w, const struct sched_step *s, struct err *e)
{
	return pipeline_receive(w->g, s, e);
}

/* Copies activations or gradients between two stages of this rank. */
static void copy_boundary(struct engine *g, void *to, const void *from)
{
	backend_copy(g->backend, to, from,
		     (size_t)model_boundary(g->model) * backend_width(g->backend));
}

/* Copies the chunk's input if this rank has the previous stage too. Without a backward pass the
 * previous chunk's slot is not needed afterwards. */
static void copy_input_from_chunk(struct row_run *w, const struct sched_step *s, int slot)
{
	struct engine *g = w->g;
	int before = g->chunk_states[s->chunk].before;
	if (before < 0)
		return;
	copy_boundary(g, model_input(g->model, s->chunk, slot),
		      model_output(g->model, before, g->chunk_states[before].slot_of[s->micro]));
	if (!w->backward)
		pipeline_slot_release(g, before, s->micro);
}

static int forward_step(struct row_run *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	struct model_batch b = micro_batch(w, s->micro);
	int slot = pipeline_slot_find(g, s->chunk, s->micro);
	if (slot < 0)
		return err_set(e, ERR_INTERNAL, "schedule: chunk %d needs more than its %d slots",
			       s->chunk, g->chunk_states[s->chunk].slots);
	/* The send of the slot's previous output reads the buffer that this pass writes. */
	if (pp_wait(&g->pipe, &pipeline_slot_state(g, s->chunk, s->micro)->act_sent, e))
		return -1;
	copy_input_from_chunk(w, s, slot);
	if (model_forward(g->model, s->chunk, slot, &b, w->backward, e))
		return -1;
	if (!w->backward && g->chunk_states[s->chunk].after < 0)
		pipeline_slot_release(g, s->chunk, s->micro);
	return 0;
}

/* Copies the gradient of the chunk's input to the previous stage, if this rank has that stage. */
static int copy_gradient_to_chunk(struct row_run *w, const struct sched_step *s, struct err *e)
{
	struct engine *g = w->g;
	int before = g->chunk_states[s->chunk].before;
	if (before < 0)
		return 0;
	if (pp_wait(&g->pipe, &pipeline_slot_state(g, before, s->micro)->grad_sent, e))
		return -1;
	copy_boundary(g, model_grad(g->model, before, g->chunk_states[before].slot_of[s->micro]),
		      model_grad(g->model, s->chunk, g->chunk_states[s->chunk].slot_of[s->micro]));
	return 0;
}

static int backward_pass(struct row_run *w, const struct sched_step *s, enum model_pass pass,
			 struct err *e)
{
	struct engine *g = w->g;
	struct model_batch b = micro_batch(w, s->micro);
	int slot = g->chunk_states[s->chunk].slot_of[s->micro];
	/* The last stage writes its gradient here without receiving one. */
	if (pass != BACKWARD_WEIGHT &&
	    pp_wait(&g->pipe, &g->chunk_states[s->chunk].slot_states[slot].grad_sent, e))
		return -1;
	if (model_backward(g->model, s->chunk, slot, &b, pass, e) ||
	    (pass != BACKWARD_WEIGHT && copy_gradient_to_chunk(w, s, e)))
		return -1;
	if (pass != BACKWARD_INPUT)
		pipeline_slot_release(g, s->chunk, s->micro);
	return 0;
}

static int backward_step(struct row_run *w, const struct sched_step *s, struct err *e)
{
	return backward_pass(w, s, BACKWARD_BOTH, e);
}

static int backward_input_step(struct row_run *w, const struct sched_step *s, struct err *e)
{
	return backward_pass(w, s, BACKWARD_INPUT, e);
}

static int backward_weight_step(struct row_run *w, const struct sched_step *s, struct err *e)
{
	return backward_pass(w, s, BACKWARD_WEIGHT, e);
}

static int reduce_step(struct row_run *w, const struct sched_step *s, struct err *e)
{
	(void)s;
	struct engine *g = w->g;
	double start = clock_s(), waited = param_store_wait_seconds(g->store);
	if (param_store_finish(g->store, e))
		return -1;
	g->times.dp += clock_s() - start - (param_store_wait_seconds(g->store) - waited);
	return 0;
}

static const struct {
	const char *phase;
	bool computes;
	/* NULL: nothing is left, because run_step() starts messages in the ranks' common order */
	int (*run)(struct row_run *w, const struct sched_step *s, struct err *e);
} handlers[SCHED_OPS] = {
	[SCHED_RECV_ACT] = { "receive-activations", false, receive_step },
	[SCHED_FORWARD] = { "forward", true, forward_step },
	[SCHED_SEND_ACT] = { "send-activations", false, NULL },
	[SCHED_RECV_GRAD] = { "receive-gradients", false, receive_step },
	[SCHED_BACKWARD] = { "backward", true, backward_step },
	[SCHED_BACKWARD_INPUT] = { "backward-input", true, backward_input_step },
	[SCHED_BACKWARD_WEIGHT] = { "backward-weight", true, backward_weight_step },
	[SCHED_SEND_GRAD] = { "send-gradients", false, NULL },
	[SCHED_REDUCE] = { "reduce-gradients", false, reduce_step },
};

static double transfer_seconds(const struct engine *g)
{
	return g->tp.seconds + g->cp.seconds + g->ep.seconds + g->pipe.seconds +
	       param_store_wait_seconds(g->store);
}

static int record_event(struct engine *g, const struct sched_step *s, double begin, double end,
			struct err *e)
{
	struct timeline_event v = { g->view->at.pp, s->op, s->chunk, s->micro, begin, end };
	return timeline_add(&g->timeline, &v)
		       ? err_set(e, ERR_NOMEM, "pipeline: no memory for the step's timeline")
		       : 0;
}

static void set_phase(struct engine *g, const char *what)
{
	if (g->phase)
		g->phase(what, g->phase_arg);
}

/* Starting a message can wait for an earlier one. That wait has a phase of its own, so that it does
 * not count as the pass. */
static int start_messages(struct row_run *w, int at, struct err *e)
{
	const char *phase = handlers[w->row->steps[at].op].phase;
	bool apart = handlers[w->row->steps[at].op].computes &&
		     pipeline_starts_messages(w->g, w->messages, at);
	set_phase(w->g, apart ? "start-messages" : phase);
	if (pipeline_start_messages(w->g, w->row, w->messages, at, e))
		return -1;
	if (apart)
		set_phase(w->g, phase);
	return 0;
}

static int run_step(struct row_run *w, int at, double origin, struct err *e)
{
	struct engine *g = w->g;
	const struct sched_step *s = &w->row->steps[at];
	bool passes = handlers[s->op].computes;
	double start = clock_s(), waited = transfer_seconds(g);
	if (start_messages(w, at, e) || (handlers[s->op].run && handlers[s->op].run(w, s, e)))
		return -1;
	double end = clock_s();
	if (passes)
		g->times.compute += end - start - (transfer_seconds(g) - waited);
	if (w->backward && (passes || s->op == SCHED_REDUCE))
		return record_event(g, s, start - origin, end - origin, e);
	return 0;
}

/* origin: the time now, by clock_s(). */
static void begin_row(struct engine *g, bool backward, double origin)
{
	g->times = (struct engine_times){ 0 };
	g->tp.seconds = g->cp.seconds = g->ep.seconds = g->pipe.seconds = 0;
	g->started = 0;
	pipeline_slots_begin(g);
	if (backward) {
		g->timeline.n = 0;
		g->timeline.start = origin + 1e-9 * (double)clock_wall_offset_ns();
	}
}

int pipeline_run_row(struct engine *g, bool backward, const struct engine_batch *batch,
		     struct err *e)
{
	const struct schedule *table = backward ? &g->schedule : &g->forwards;
	const struct sched_row *row = &table->rows[g->view->at.pp];
	struct row_run w = { .g = g,
			     .row = row,
			     .messages = backward ? &g->messages : &g->forwards_messages,
			     .batch = batch,
			     .backward = backward };
	double origin = clock_s(), waited = param_store_wait_seconds(g->store),
	       again = model_recompute_s(g->model);
	begin_row(g, backward, origin);
	model_loss_begin(g->model);
	for (int i = 0; i < row->n; i++)
		if (run_step(&w, i, origin, e))
			return -1;
	if (pipeline_wait_messages(g, e))
		return -1;
	g->times.recompute = model_recompute_s(g->model) - again;
	g->times.compute -= g->times.recompute;
	g->times.tp = g->tp.seconds;
	g->times.cp = g->cp.seconds;
	g->times.ep = g->ep.seconds;
	g->times.pp = g->pipe.seconds;
	g->times.dp += param_store_wait_seconds(g->store) - waited;
	return 0;
}
