#include "agent/engine/train/step_trace.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/run_paths.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PHASES_ROOM = 1 << 20 }; /* phases, at most */

struct phase {
	const char *name;
	int64_t step; /* from 1 */
	double begin, end;
	int chunk, micro;
};

/* A recording that is over: its text is made and written on a thread of its own, so that training goes
 * on. */
struct writing {
	struct step_trace *trace;
	int number;
	int64_t first, last, lost;
	struct phase *phases;
	int n;
	struct comm_tape *tape;
	struct err failure; /* why the tape could not be taken */
};

struct step_trace {
	const struct rank_view *view;
	struct comm *world;
	const struct train_hooks *hooks;
	char dir[RUN_PATH], path[RUN_PATH];
	struct job_range job;        /* of [trace] steps; max 0: none, or it has begun before */
	struct step_trace_ask asked; /* number 0: nothing */
	bool running;
	int number;                /* of the request that is being recorded; 0: the job's steps */
	int64_t first, step, last; /* the first one that is recorded; the present one; the last */
	struct phase *phases;      /* the last one has not ended while the trace runs */
	int n, room, step_begin;
	int64_t lost;
	int64_t begun;                    /* phases so far, also those that are not recorded */
	int64_t begun_before, ops_before; /* when the present step began */
	pthread_t thread;                 /* that writes */
	bool writes;
};

int train_step_trace_open(const struct rank_view *view, struct comm *world, const char *run_dir,
			  uint32_t generation, const struct train_hooks *hooks,
			  struct step_trace **out, struct err *e)
{
	struct step_trace *t = calloc(1, sizeof *t);
	*out = NULL;
	if (!t)
		return err_set(e, ERR_NOMEM, "trace.steps: no memory for the trace");
	t->view = view;
	t->world = world;
	t->hooks = hooks;
	t->job = view->job->trace.steps;
	run_path_trace(t->dir, run_dir, generation);
	run_path_steps(t->path, t->dir, comm_rank(world));
	*out = t;
	return 0;
}

/* --- The phases --- */

static void end_phase(struct step_trace *t, double now)
{
	if (t->n && !t->phases[t->n - 1].end)
		t->phases[t->n - 1].end = now;
}

static struct phase *phase_room(struct step_trace *t)
{
	if (t->n == t->room) {
		int room = t->room ? 2 * t->room : 256;
		struct phase *phases = room > PHASES_ROOM
					       ? NULL
					       : realloc(t->phases, (size_t)room * sizeof *phases);
		if (!phases)
			return NULL;
		t->phases = phases;
		t->room = room;
	}
	return &t->phases[t->n++];
}

void train_step_trace_phase(struct step_trace *t, const char *name)
{
	if (!t)
		return;
	t->begun++;
	if (!t->running)
		return;
	double now = clock_s();
	end_phase(t, now);
	struct phase *p = phase_room(t);
	if (p)
		*p = (struct phase){
			.name = name, .step = t->step, .begin = now, .chunk = -1, .micro = -1
		};
	else
		t->lost++;
}

/* Both lists are in the order of time. */
void train_step_trace_passes(struct step_trace *t, const struct timeline *passes)
{
	if (!t || !t->running)
		return;
	int i = t->step_begin;
	for (int k = 0; k < passes->n; k++) {
		const struct timeline_event *v = &passes->events[k];
		if (v->op == SCHED_REDUCE)
			continue;
		while (i < t->n && strcmp(t->phases[i].name, schedule_op_word(v->op)))
			i++;
		if (i == t->n)
			return;
		t->phases[i].chunk = v->chunk;
		t->phases[i++].micro = v->micro;
	}
}

/* --- The file --- */

static void put_phases(const struct writing *w, struct buf *b)
{
	double offset = 1e-9 * (double)clock_wall_offset_ns();
	buf_puts(b, " \"phases\": [");
	for (int i = 0; i < w->n; i++) {
		const struct phase *p = &w->phases[i];
		buf_printf(b, "%s[\"%s\", %" PRId64 ", %.1f, %.1f, %d, %d]", i ? ",\n" : "\n",
			   p->name, p->step, 1e6 * (p->begin + offset), 1e6 * (p->end + offset),
			   p->chunk, p->micro);
	}
	buf_puts(b, "],\n");
}

static int make_text(const struct writing *w, struct buf *out, struct err *e)
{
	const struct coords *at = &w->trace->view->at;
	buf_printf(out,
		   "{\"muster_steps\": 1, \"rank\": %d, \"place\": \"tp %d, cp %d, pp %d, dp %d\", "
		   "\"first\": %" PRId64 ", \"last\": %" PRId64 ", \"lost\": %" PRId64 ",\n",
		   comm_rank(w->trace->world), at->tp, at->cp, at->pp, at->dp, w->first, w->last,
		   w->lost + comm_tape_lost(w->tape));
	put_phases(w, out);
	buf_puts(out, " \"comm\": ");
	if (comm_tape_write(w->tape, out, e))
		return -1;
	buf_puts(out, "}\n");
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory for the trace of %d phases", w->n)
			       : 0;
}

static int write_trace(const struct writing *w, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = make_text(w, &text, e) || file_make_dirs(w->trace->dir, e) ||
		 file_replace(w->trace->path, text.data, text.len, e);
	buf_fini(&text);
	return rc ? -1 : 0;
}

/* Nothing depends on the trace, so a failure is only logged, and told to who asked for it. */
static void *writer_main(void *arg)
{
	struct writing *w = arg;
	const struct train_hooks *h = w->trace->hooks;
	struct err e = w->failure;
	if (!e.code && write_trace(w, &e))
		err_prefix(&e, "the trace of steps %" PRId64 " to %" PRId64, w->first, w->last);
	if (e.code)
		log_warn("%s", e.text);
	if (w->number)
		h->traced(h->arg, &(struct trace_report){ .number = w->number,
							  .first = w->first,
							  .last = w->last,
							  .why = e.code ? e.text : NULL });
	comm_tape_free(w->tape);
	free(w->phases);
	free(w);
	return NULL;
}

static void await_writer(struct step_trace *t)
{
	if (t->writes)
		pthread_join(t->thread, NULL);
	t->writes = false;
}

static void report_refusal(const struct step_trace *t, int number, const char *why)
{
	t->hooks->traced(t->hooks->arg, &(struct trace_report){ .number = number, .why = why });
}

/* Takes what was recorded, for the writer. */
static struct writing *take(struct step_trace *t)
{
	struct writing *w = calloc(1, sizeof *w);
	struct comm_tape *tape = NULL;
	struct err e = ERR_INIT;
	comm_tape_stop(t->world, &tape, &e); /* also without memory, because it must stop */
	if (!w) {
		comm_tape_free(tape);
		return NULL;
	}
	*w = (struct writing){ .trace = t,
			       .number = t->number,
			       .first = t->first,
			       .last = t->step,
			       .lost = t->lost,
			       .phases = t->phases,
			       .n = t->n,
			       .tape = tape,
			       .failure = e };
	t->phases = NULL;
	return w;
}

static void finish(struct step_trace *t)
{
	t->running = false;
	end_phase(t, clock_s());
	await_writer(t); /* of an earlier recording */
	struct writing *w = take(t);
	if (w)
		t->writes = !pthread_create(&t->thread, NULL, writer_main, w);
	if (w && !t->writes)
		writer_main(w);
	if (!w && t->number)
		report_refusal(t, t->number, "there is no memory for the trace");
	free(t->phases);
	t->phases = NULL;
	t->n = t->room = 0;
	t->lost = 0;
}

/* --- The steps --- */

static void start(struct step_trace *t, int64_t step, int64_t last, int number)
{
	t->first = step + 1;
	t->last = last;
	t->number = number;
	t->running = true;
	comm_tape_start(t->world);
}

/* The job's steps come first, if they meet the ones that somebody has asked for. */
static void choose(struct step_trace *t, int64_t step)
{
	if (step >= t->job.max)
		t->job = (struct job_range){ 0 };
	if (t->job.max && step + 1 >= t->job.min) {
		start(t, step, t->job.max, 0);
		t->job = (struct job_range){ 0 };
	} else if (t->asked.number && !(t->job.max && step + t->asked.steps >= t->job.min)) {
		start(t, step, step + t->asked.steps, t->asked.number);
		t->asked = (struct step_trace_ask){ 0 };
	}
}

void train_step_trace_begin(struct step_trace *t, int64_t step)
{
	if (!t)
		return;
	if (t->running && step >= t->last)
		finish(t);
	t->begun_before = t->begun;
	t->ops_before = comm_ops_begun(t->world);
	if (!t->running)
		choose(t, step);
	if (!t->running)
		return;
	t->step = step + 1;
	t->step_begin = t->n;
}

/* Steps as the last one that fit. */
static int64_t room_of(const struct step_trace *t)
{
	int64_t ops = comm_ops_begun(t->world) - t->ops_before, phases = t->begun - t->begun_before;
	int64_t fit = COMM_TAPE_OPS / (ops > 1 ? ops : 1);
	int64_t fit_phases = PHASES_ROOM / (phases > 1 ? phases : 1);
	return fit < fit_phases ? fit : fit_phases;
}

int train_step_trace_ask(struct step_trace *t, const struct step_trace_ask *ask, struct err *e)
{
	char why[200];
	int64_t room = room_of(t);
	if (comm_all_reduce(t->world, &room, &room, 1, COMM_I64, COMM_MIN, e))
		return err_prefix(e, "the room for a trace of steps");
	if (ask->steps <= room) {
		t->asked = *ask;
		return 0;
	}
	snprintf(why, sizeof why,
		 "a rank records at most %d operations and %d phases, which are %" PRId64
		 " steps of this job; ask for at most as many",
		 COMM_TAPE_OPS, PHASES_ROOM, room);
	report_refusal(t, ask->number, why);
	return 0;
}

void train_step_trace_close(struct step_trace *t)
{
	if (!t)
		return;
	if (t->running)
		finish(t);
	await_writer(t);
	if (t->asked.number)
		report_refusal(t, t->asked.number, "training ended before the steps began");
	free(t);
}
