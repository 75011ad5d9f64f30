#include "agent/engine/train/step_trace.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/run_paths.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PHASES_ROOM = 1 << 20 }; /* phases, at most */

struct phase {
	const char *name;
	int64_t step; /* from 1 */
	double begin, end;
	int chunk, micro;
};

struct step_trace {
	const struct rank_view *view;
	struct comm *world;
	char dir[RUN_PATH], path[RUN_PATH];
	struct job_range steps; /* from 1 */
	bool running, written;
	int64_t first, step;  /* the first one that was traced; the present one */
	struct phase *phases; /* the last one has not ended while the trace runs */
	int n, room, step_begin;
	int64_t lost;
};

int train_step_trace_open(const struct rank_view *view, struct comm *world, const char *run_dir,
			  uint32_t generation, struct step_trace **out, struct err *e)
{
	*out = NULL;
	if (view->job->trace.steps.max < 1)
		return 0;
	struct step_trace *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(e, ERR_NOMEM, "trace.steps: no memory for the trace");
	t->view = view;
	t->world = world;
	t->steps = view->job->trace.steps;
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
	if (!t || !t->running)
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

static void put_phases(const struct step_trace *t, struct buf *b)
{
	double offset = 1e-9 * (double)clock_wall_offset_ns();
	buf_puts(b, " \"phases\": [");
	for (int i = 0; i < t->n; i++) {
		const struct phase *p = &t->phases[i];
		buf_printf(b, "%s[\"%s\", %" PRId64 ", %.1f, %.1f, %d, %d]", i ? ",\n" : "\n",
			   p->name, p->step, 1e6 * (p->begin + offset), 1e6 * (p->end + offset),
			   p->chunk, p->micro);
	}
	buf_puts(b, "],\n");
}

static int write_trace(const struct step_trace *t, struct err *e)
{
	const struct coords *at = &t->view->at;
	struct buf text = BUF_INIT;
	buf_printf(&text,
		   "{\"muster_steps\": 1, \"rank\": %d, \"place\": \"tp %d, cp %d, pp %d, dp %d\", "
		   "\"first\": %" PRId64 ", \"last\": %" PRId64 ", \"lost\": %" PRId64 ",\n",
		   comm_rank(t->world), at->tp, at->cp, at->pp, at->dp, t->first, t->step, t->lost);
	put_phases(t, &text);
	buf_puts(&text, " \"comm\": ");
	int rc = comm_tape_stop(t->world, &text, e);
	buf_puts(&text, "}\n");
	if (!rc && buf_failed(&text))
		rc = err_set(e, ERR_NOMEM, "%s: no memory for the trace of %d phases", t->path,
			     t->n);
	if (!rc)
		rc = file_make_dirs(t->dir, e) || file_replace(t->path, text.data, text.len, e);
	buf_fini(&text);
	return rc ? -1 : 0;
}

/* Nothing depends on the trace, so a failure is only logged. */
static void finish(struct step_trace *t)
{
	struct err e = ERR_INIT;
	t->running = false;
	t->written = true;
	end_phase(t, clock_s());
	if (write_trace(t, &e))
		log_warn("%s", e.text);
	free(t->phases);
	t->phases = NULL;
	t->n = t->room = 0;
}

/* --- The steps --- */

void train_step_trace_begin(struct step_trace *t, int64_t step)
{
	if (!t || t->written)
		return;
	if (t->running && step >= t->steps.max)
		return finish(t);
	if (step + 1 < t->steps.min || step >= t->steps.max)
		return;
	t->step = step + 1;
	t->step_begin = t->n;
	if (t->running)
		return;
	t->first = t->step;
	t->running = true;
	comm_tape_start(t->world);
}

void train_step_trace_close(struct step_trace *t)
{
	if (!t)
		return;
	if (t->running)
		finish(t);
	free(t);
}
