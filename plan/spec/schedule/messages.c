#include "plan/spec/schedule/messages.h"

#include <stdlib.h>

enum message_kind { ACT, GRAD, KINDS };
enum message_state { UNSENT, SENT, HAPPENED };

/* A message of a micro-batch: activations to a stage, or the gradient of a stage's output. */
struct message {
	enum message_kind kind;
	int stage, micro; /* of the receiver */
};

struct chunk {
	int slots;
	int forwards, released; /* micro-batches so far */
	bool sends[KINDS];      /* whether another rank has the stage after it, or before it */
	int before;             /* the chunk of this rank with the stage before; -1: none */
};

/* A rank of the pipeline in the run. */
struct runner {
	int at;                      /* its next step, or the one in progress */
	int until;                   /* the end of the pass in progress; 0: none */
	int pass, began, pass_ahead; /* its last pass, when that began, and the one before */
	struct chunk chunk[LAYOUT_CHUNKS_MAX];
};

/* Where the listed rank's row has something. */
struct places {
	int *step[KINDS]; /* [chunks][micros]: where a chunk receives the message */
	int *sent[KINDS]; /* and where it sends one */
	int *forward, *release;
};

struct run {
	const struct schedule *s;
	int rank, now;
	struct runner *runners; /* [pp] */
	unsigned char *state;   /* [KINDS][stages][micros] */
	struct message *under_way;
	int n_under_way;
	struct places own;
	int *room; /* of `own` */
	struct sched_messages out;
};

/* --- Where things are --------------------------------------------------------------------- */

static unsigned char *state_of(const struct run *w, struct message m)
{
	size_t row = (size_t)m.kind * (size_t)layout_n_stages(&w->s->layout) + (size_t)m.stage;
	return &w->state[row * (size_t)w->s->micros + (size_t)m.micro];
}

static int cell(const struct run *w, int chunk, int micro)
{
	return chunk * w->s->micros + micro;
}

static bool is_send(enum sched_op op)
{
	return op == SCHED_SEND_ACT || op == SCHED_SEND_GRAD;
}

static bool is_receive(enum sched_op op)
{
	return op == SCHED_RECV_ACT || op == SCHED_RECV_GRAD;
}

static bool is_pass(enum sched_op op)
{
	return op == SCHED_FORWARD || op == SCHED_BACKWARD || op == SCHED_BACKWARD_INPUT ||
	       op == SCHED_BACKWARD_WEIGHT;
}

static struct message message_of(const struct run *w, int rank, const struct sched_step *step)
{
	int stage = layout_stage(&w->s->layout, rank, step->chunk);
	enum message_kind kind = step->op == SCHED_RECV_ACT || step->op == SCHED_SEND_ACT ? ACT
											  : GRAD;
	if (is_send(step->op))
		stage += kind == ACT ? 1 : -1;
	return (struct message){ kind, stage, step->micro };
}

static void note_place(struct run *w, int i)
{
	const struct sched_step *step = &w->s->rows[w->rank].steps[i];
	if (step->op == SCHED_REDUCE)
		return;
	int at = cell(w, step->chunk, step->micro);
	enum message_kind kind = message_of(w, w->rank, step).kind;
	if (is_receive(step->op))
		w->own.step[kind][at] = i;
	else if (is_send(step->op))
		w->own.sent[kind][at] = i;
}

static struct chunk chunk_of(const struct schedule *s, const struct schedule *slots, int rank,
			     int chunk)
{
	struct chunk c = { .slots = slots->rows[rank].slots.live[chunk], .before = -1 };
	int stage = layout_stage(&s->layout, rank, chunk), holder, there;
	if (stage > 0) {
		layout_holder(&s->layout, stage - 1, &holder, &there);
		c.before = holder == rank ? there : -1;
		c.sends[GRAD] = holder != rank && !s->forwards_only;
	}
	if (stage + 1 < layout_n_stages(&s->layout)) {
		layout_holder(&s->layout, stage + 1, &holder, &there);
		c.sends[ACT] = holder != rank;
	}
	return c;
}

static bool run_init(struct run *w, const struct schedule *s, const struct schedule *slots,
		     int rank)
{
	size_t pp = (size_t)s->layout.pp, stages = (size_t)layout_n_stages(&s->layout),
	       micros = (size_t)s->micros, own = (size_t)s->layout.chunks * micros;
	*w = (struct run){
		.s = s,
		.rank = rank,
		.runners = calloc(pp, sizeof *w->runners),
		.state = calloc(KINDS * stages * micros, sizeof *w->state),
		.under_way = calloc(KINDS * stages * micros, sizeof *w->under_way),
		.room = calloc(6 * own, sizeof *w->room),
		.out = { .list = calloc((size_t)s->rows[rank].n + 1, sizeof *w->out.list) },
	};
	if (!w->runners || !w->state || !w->under_way || !w->room || !w->out.list)
		return false;
	for (int i = 0; i < KINDS; i++) {
		w->own.step[i] = w->room + (size_t)i * own;
		w->own.sent[i] = w->room + (size_t)(KINDS + i) * own;
	}
	w->own.forward = w->room + 4 * own;
	w->own.release = w->room + 5 * own;
	for (int r = 0; r < s->layout.pp; r++)
		for (int c = 0; c < s->layout.chunks; c++)
			w->runners[r].chunk[c] = chunk_of(s, slots, r, c);
	for (int i = 0; i < s->rows[rank].n; i++)
		note_place(w, i);
	return true;
}

static void run_fini(struct run *w)
{
	free(w->runners);
	free(w->state);
	free(w->under_way);
	free(w->room);
	free(w->out.list);
}

/* --- Messages ----------------------------------------------------------------------------- */

/* Whether a chunk's send of a kind has happened, or there is none. */
static bool has_left(const struct run *w, int rank, int chunk, enum message_kind kind, int micro)
{
	if (micro < 0 || !w->runners[rank].chunk[chunk].sends[kind])
		return true;
	int stage = layout_stage(&w->s->layout, rank, chunk) + (kind == ACT ? 1 : -1);
	return *state_of(w, (struct message){ kind, stage, micro }) == HAPPENED;
}

/* Whether the receiver has a buffer: a free slot, or the gradient of a slot in use. */
static bool has_buffer(const struct run *w, struct message m)
{
	int rank, c;
	layout_holder(&w->s->layout, m.stage, &rank, &c);
	const struct chunk *k = &w->runners[rank].chunk[c];
	if (m.kind == ACT)
		return m.micro < k->released + k->slots;
	return m.micro < k->forwards && has_left(w, rank, c, GRAD, m.micro - k->slots);
}

static void put(struct run *w, int step, int before)
{
	int n = w->out.n++;
	if (n && before < w->out.list[n - 1].before)
		before = w->out.list[n - 1].before;
	w->out.list[n] = (struct sched_message){ step, before };
}

/* The first step before which the receiver can start: it has the buffer, and a pass that it has
 * begun has still to overlap the transfer. */
static int start_of_receive(const struct run *w, struct message m, int chunk)
{
	const struct runner *r = &w->runners[w->rank];
	int pass = r->began < w->now ? r->pass : r->pass_ahead, slots = r->chunk[chunk].slots;
	int ready = m.kind == GRAD    ? w->own.forward[cell(w, chunk, m.micro)] + 1
		    : m.micro < slots ? 0
				      : w->own.release[cell(w, chunk, m.micro - slots)] + 1;
	return pass > ready ? pass : ready;
}

static void happen(struct run *w, struct message m)
{
	int from, to, out, in;
	layout_holder(&w->s->layout, m.stage + (m.kind == ACT ? -1 : 1), &from, &out);
	layout_holder(&w->s->layout, m.stage, &to, &in);
	*state_of(w, m) = HAPPENED;
	if (from == w->rank) {
		int step = w->own.sent[m.kind][cell(w, out, m.micro)];
		put(w, step, step);
	} else if (to == w->rank) {
		put(w, w->own.step[m.kind][cell(w, in, m.micro)], start_of_receive(w, m, in));
	}
}

/* Lets happen what can; returns whether anything has. */
static bool deliver(struct run *w)
{
	int left = 0, n = w->n_under_way;
	for (int i = 0; i < n; i++) {
		struct message m = w->under_way[i];
		if (has_buffer(w, m))
			happen(w, m);
		else
			w->under_way[left++] = m;
	}
	w->n_under_way = left;
	return left < n;
}

/* --- Steps -------------------------------------------------------------------------------- */

static bool can_pass(const struct run *w, int rank, const struct sched_step *step)
{
	const struct chunk *k = &w->runners[rank].chunk[step->chunk];
	if (step->op == SCHED_FORWARD)
		return has_left(w, rank, step->chunk, ACT, step->micro - k->slots);
	if (step->op == SCHED_BACKWARD_WEIGHT)
		return true;
	return has_left(w, rank, step->chunk, GRAD, step->micro - k->slots) &&
	       (k->before < 0 || has_left(w, rank, k->before, GRAD,
					  step->micro - w->runners[rank].chunk[k->before].slots));
}

static void release(struct run *w, int rank, int chunk, int micro)
{
	struct runner *r = &w->runners[rank];
	r->chunk[chunk].released++;
	if (rank == w->rank)
		w->own.release[cell(w, chunk, micro)] = r->at;
}

static void end_pass(struct run *w, int rank)
{
	struct runner *r = &w->runners[rank];
	const struct sched_step *step = &w->s->rows[rank].steps[r->at];
	struct chunk *k = &r->chunk[step->chunk];
	bool forward = step->op == SCHED_FORWARD, alone = w->s->forwards_only;
	int stage = layout_stage(&w->s->layout, rank, step->chunk);
	bool last = k->sends[ACT] || stage + 1 == layout_n_stages(&w->s->layout);
	r->until = 0;
	k->forwards += forward;
	if (forward && rank == w->rank)
		w->own.forward[cell(w, step->chunk, step->micro)] = r->at;
	if (forward && alone && k->before >= 0)
		release(w, rank, k->before, step->micro);
	if ((forward && alone && last) || step->op == SCHED_BACKWARD ||
	    step->op == SCHED_BACKWARD_WEIGHT)
		release(w, rank, step->chunk, step->micro);
	r->at++;
}

static void begin_pass(struct run *w, int rank, enum sched_op op)
{
	struct runner *r = &w->runners[rank];
	r->until = w->now + (op == SCHED_BACKWARD ? 2 : 1);
	r->pass_ahead = r->pass;
	r->pass = r->at;
	r->began = w->now;
}

/* Runs what a rank can do now, up to the begin of a pass; returns whether it did anything. */
static bool run_rank(struct run *w, int rank)
{
	struct runner *r = &w->runners[rank];
	const struct sched_row *row = &w->s->rows[rank];
	int first = r->at;
	while (r->at < row->n && !r->until) {
		const struct sched_step *step = &row->steps[r->at];
		if (is_pass(step->op)) {
			if (!can_pass(w, rank, step))
				break;
			begin_pass(w, rank, step->op);
			return true;
		}
		if (step->op != SCHED_REDUCE) {
			struct message m = message_of(w, rank, step);
			if (is_send(step->op)) {
				*state_of(w, m) = SENT;
				w->under_way[w->n_under_way++] = m;
			} else if (*state_of(w, m) != HAPPENED) {
				break;
			}
		}
		r->at++;
	}
	return r->at > first;
}

/* To the next end of a pass. Returns false if no pass is in progress. */
static bool advance_time(struct run *w)
{
	int next = 0, pp = w->s->layout.pp;
	for (int i = 0; i < pp; i++)
		if (w->runners[i].until && (!next || w->runners[i].until < next))
			next = w->runners[i].until;
	w->now = next;
	for (int i = 0; next && i < pp; i++)
		if (w->runners[i].until == next)
			end_pass(w, i);
	return next;
}

/* Returns the first rank that waits forever; -1: none does. */
static int run_table(struct run *w)
{
	do {
		for (bool moved = true; moved;) {
			moved = deliver(w);
			for (int i = 0; i < w->s->layout.pp; i++)
				moved |= run_rank(w, i);
		}
	} while (advance_time(w));
	for (int i = 0; i < w->s->layout.pp; i++)
		if (w->runners[i].at < w->s->rows[i].n)
			return i;
	return -1;
}

int schedule_order_messages(const struct schedule *s, const struct schedule *slots, int rank,
			    struct sched_messages *out, struct err *e)
{
	struct run w;
	if (!run_init(&w, s, slots, rank)) {
		run_fini(&w);
		return err_set(e, ERR_NOMEM,
			       "no memory for the order of a pipeline's messages; close other "
			       "programs");
	}
	int stuck = run_table(&w);
	if (stuck < 0) {
		*out = w.out;
		w.out.list = NULL;
	} else {
		err_set(e, ERR_INTERNAL,
			"schedule: rank %d waits for a message at step %d, and has no slot for it "
			"(deadlock); the table's generator must be mended",
			stuck, w.runners[stuck].at);
	}
	run_fini(&w);
	return stuck < 0 ? 0 : -1;
}

void schedule_messages_free(struct sched_messages *m)
{
	free(m->list);
	*m = (struct sched_messages){ 0 };
}
