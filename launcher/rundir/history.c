#include "launcher/rundir/history.h"

#include "base/buf.h"
#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/agents.h"
#include "launcher/rundir/events.h"
#include "launcher/rundir/follow.h"
#include "launcher/rundir/output.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 1 << 20 };

/* A new element, zeroed, at the end of a list; NULL: the list is full. */
static void *append(struct rundir_history *h, void *list, size_t *n, size_t size)
{
	void **at = list;
	bool whole = (*n & (*n - 1)) == 0; /* 0, or a power of two: the room is used up */
	if (*n >= RUNDIR_HISTORY_MOST) {
		h->left_out++;
		return NULL;
	}
	if (whole) {
		void *more = reallocarray(*at, *n ? 2 * *n : 1, size);
		if (!more) {
			h->left_out++;
			return NULL;
		}
		*at = more;
	}
	void *new = (char *)*at + *n *size;
	memset(new, 0, size);
	(*n)++;
	return new;
}

#define APPEND(h, list) append(h, &(h)->list, &(h)->n_##list, sizeof *(h)->list)

/* A text that is not there is "". */
static char *copy(const char *text)
{
	return strdup(text ? text : "");
}

static struct rundir_generation *find_generation(struct rundir_history *h, int64_t number)
{
	for (size_t i = h->n_generations; i-- > 0;)
		if (h->generations[i].number == number)
			return &h->generations[i];
	return NULL;
}

static struct rundir_generation *generation_of(struct rundir_history *h, int64_t number)
{
	struct rundir_generation *g = find_generation(h, number);
	if (g || number < 1)
		return g;
	g = APPEND(h, generations);
	if (g)
		*g = (struct rundir_generation){ .number = number,
						 .begin = NAN,
						 .ready = NAN,
						 .first_step = NAN,
						 .end = NAN,
						 .last_line = NAN,
						 .predicted_s = NAN,
						 .resumed = -1,
						 .last_step = -1 };
	return g;
}

static void on_plan(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_plan p;
	struct rundir_generation *g = generation_of(h, l->generation);
	if (!g || rundir_read_plan(l->fields, &p, NULL))
		return;
	g->world = p.world;
	g->tp = p.tp;
	g->cp = p.cp;
	g->ep = p.ep;
	g->dp = p.dp;
	g->pp = p.pp;
	g->predicted_s = p.has_step_s && p.step_s > 0 ? p.step_s : NAN;
}

static void on_start(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_start s;
	struct rundir_generation *g = generation_of(h, l->generation);
	rundir_read_start(l->fields, &s, NULL);
	if (s.restarts == 0 || h->ended)
		h->runs++;
	else
		h->restarts++;
	h->ended = NULL;
	free(h->reason);
	h->reason = NULL;
	if (g)
		g->begin = l->time;
	for (size_t i = 0; i < h->n_seats; i++)
		free(h->seats[i].node);
	free(h->seats);
	h->seats = NULL;
	h->n_seats = 0;
}

/* The seat of a rank; NULL: there is no such rank, or no memory. */
static struct rundir_seat *seat_of(struct rundir_history *h, int rank)
{
	if (rank < 0 || rank >= RANKS_MOST)
		return NULL;
	if ((size_t)rank >= h->n_seats) {
		size_t n = (size_t)rank + 1, room = 64;
		while (room < n)
			room *= 2;
		struct rundir_seat *more = reallocarray(h->seats, room, sizeof *more);
		if (!more)
			return NULL;
		h->seats = more;
		for (; h->n_seats < n; h->n_seats++)
			h->seats[h->n_seats] = (struct rundir_seat){ .factor = NAN };
	}
	return &h->seats[rank];
}

static void take_seat(void *history, const struct rundir_joined *a)
{
	struct rundir_seat *s = seat_of(history, a->rank);
	if (!s)
		return;
	free(s->node);
	s->node = copy(a->node);
}

static void on_hello(struct rundir_history *h, const struct rundir_line *l)
{
	rundir_agents_of(l->fields, take_seat, h);
}

static void on_ready(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_ready r;
	struct rundir_generation *g = generation_of(h, l->generation);
	if (!g || rundir_read_ready(l->fields, &r, NULL))
		return;
	g->ready = l->time;
	g->resumed = r.step < 0 ? 0 : r.step;
}

static void on_first_step(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_generation *g = generation_of(h, l->generation);
	if (g)
		g->first_step = l->time;
	for (size_t i = h->n_losses; i-- > 0 && isnan(h->losses[i].restart_s);)
		if (h->losses[i].generation < l->generation)
			h->losses[i].restart_s = l->time - h->losses[i].time;
}

static void on_lost(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_rank_lost r;
	struct rundir_generation *g = generation_of(h, l->generation);
	struct rundir_loss *lost = APPEND(h, losses);
	rundir_read_rank_lost(l->fields, &r, NULL);
	if (g) {
		g->end = l->time;
		g->lost = true;
	}
	if (lost)
		*lost = (struct rundir_loss){ .generation = l->generation,
					      .time = l->time,
					      .rank = r.has_rank ? r.rank : -1,
					      .node = copy(r.has_node ? r.node : ""),
					      .how = copy(r.how),
					      .fault = copy(r.fault),
					      .text = copy(r.text),
					      .remedy = copy(""),
					      .still_s = NAN,
					      .restart_s = NAN,
					      .repeated = -1 };
}

static struct rundir_loss *last_loss(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_loss *lost = h->n_losses ? &h->losses[h->n_losses - 1] : NULL;
	return lost && lost->generation == l->generation ? lost : NULL;
}

static void replace(char **text, const char *by)
{
	char *new = by &&*by ? copy(by) : NULL;
	if (!new)
		return;
	free(*text);
	*text = new;
}

static void on_fault(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_fault f;
	struct rundir_loss *lost = last_loss(h, l);
	if (!lost || rundir_read_fault(l->fields, &f, NULL))
		return;
	replace(&lost->fault, f.fault);
	replace(&lost->text, f.text);
	replace(&lost->remedy, f.remedy);
	if (f.has_node)
		replace(&lost->node, f.node);
	if (f.has_rank)
		lost->rank = f.rank;
}

static void on_hang(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_hang hang;
	struct rundir_loss *lost = last_loss(h, l);
	if (lost && !rundir_read_hang(l->fields, &hang, NULL))
		lost->still_s = hang.still_s;
}

static void add_checkpoint(struct rundir_history *h, const struct rundir_line *l, bool local)
{
	struct rundir_ckpt c;
	struct rundir_checkpoint *k;
	if (rundir_read_ckpt(l->fields, &c, NULL) || !(k = APPEND(h, checkpoints)))
		return;
	*k = (struct rundir_checkpoint){ .time = l->time,
					 .seconds = c.seconds,
					 .stall_s = c.stall_s,
					 .step = c.step,
					 .bytes = c.bytes,
					 .path = copy(c.path),
					 .local = local };
}

static void on_ckpt(struct rundir_history *h, const struct rundir_line *l)
{
	add_checkpoint(h, l, false);
}

static void on_ckpt_local(struct rundir_history *h, const struct rundir_line *l)
{
	add_checkpoint(h, l, true);
}

static void on_eval(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_eval v;
	struct rundir_evaluation *to;
	if (rundir_read_eval(l->fields, &v, NULL))
		return;
	/* An evaluation that is repeated after a restart replaces the first one. */
	while (h->n_evaluations && h->evaluations[h->n_evaluations - 1].step >= v.step)
		h->n_evaluations--;
	if ((to = APPEND(h, evaluations)))
		*to = (struct rundir_evaluation){ v.step, l->time, v.loss };
}

static void on_slow_rank(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_slow_rank r;
	struct rundir_seat *s;
	if (rundir_read_slow_rank(l->fields, &r, NULL) || !(s = seat_of(h, r.rank)))
		return;
	s->slow = r.slow;
	s->factor = r.factor;
}

static void on_contract(struct rundir_history *h, const struct rundir_line *l)
{
	json_decref(h->contract);
	h->contract = json_incref((json_t *)(uintptr_t)l->fields);
}

/* clang-format off */
static const struct {
	const char *event;
	void (*take)(struct rundir_history *h, const struct rundir_line *l);
} takers[] = {
	{ "plan",             on_plan },
	{ "generation-start", on_start },
	{ "hello",            on_hello },
	{ "ready",            on_ready },
	{ "first-step",       on_first_step },
	{ "rank-lost",        on_lost },
	{ "fault",            on_fault },
	{ "hang",             on_hang },
	{ "ckpt",             on_ckpt },
	{ "ckpt-local",       on_ckpt_local },
	{ "eval",             on_eval },
	{ "slow-rank",        on_slow_rank },
	{ "contract",         on_contract },
};

/* Events that become marks, and the field with their text. */
static const struct {
	const char *event, *field;
} marks[] = {
	{ "stop",           "reason" },
	{ "slow-rank",      "text" },
	{ "slow-link",      "text" },
	{ "slow-ckpt",      "text" },
	{ "slow-node",      "text" },
	{ "rank-paused",    "text" },
	{ "rollback",       "text" },
	{ "numbers-traced", "text" },
	{ "health-alarm",   "text" },
	{ "decision",       "text" },
	{ "node-suspected", "evidence" },
	{ "upload-failed",  "why" },
	{ "warning",        "text" },
};

static const char *const ends[] = { "done", "stopped", "failed", "gave-up" };
/* clang-format on */

static void add_mark(struct rundir_history *h, const struct rundir_line *l)
{
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		if (strcmp(l->event, marks[i].event))
			continue;
		struct rundir_mark *m = APPEND(h, marks);
		const json_t *text = json_object_get(l->fields, marks[i].field);
		bool over = json_is_false(json_object_get(l->fields, "holds"));
		if (m)
			*m = (struct rundir_mark){ over ? "warning ends" : marks[i].event, l->time,
						   l->generation, copy(json_string_value(text)) };
	}
}

static void take_end(struct rundir_history *h, const struct rundir_line *l)
{
	struct rundir_end end;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		struct rundir_generation *g;
		if (strcmp(l->event, ends[i]))
			continue;
		rundir_read_end(l->fields, &end, NULL);
		h->ended = ends[i];
		free(h->reason);
		h->reason = copy(end.reason);
		if ((g = find_generation(h, l->generation)) && isnan(g->end))
			g->end = l->time;
	}
}

static void see_time(struct rundir_history *h, double time)
{
	if (!(time > 0))
		return;
	h->begin = isnan(h->begin) ? time : fmin(h->begin, time);
	h->end = isnan(h->end) ? time : fmax(h->end, time);
}

void rundir_history_event(struct rundir_history *h, const struct rundir_line *l)
{
	if (!l->has_event)
		return;
	see_time(h, l->time);
	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
		if (!strcmp(l->event, takers[i].event))
			takers[i].take(h, l);
	add_mark(h, l);
	take_end(h, l);
}

/* --- The files ----------------------------------------------------------------------- */

static void take_event(void *arg, const struct rundir_line *l)
{
	rundir_history_event(arg, l);
}

/* A line of health.jsonl. */
static void take_health(void *arg, const struct rundir_line *l)
{
	struct rundir_history *h = arg;
	struct rundir_health w;
	if (rundir_read_health(l->fields, &w, NULL) || w.rank < 0 || (size_t)w.rank >= h->n_seats)
		return;
	/* A window of an earlier generation tells nothing about this one's seats. */
	if (!h->n_generations || l->generation != h->generations[h->n_generations - 1].number)
		return;
	h->seats[w.rank].slow = w.slow;
	if (w.pace_s > 0 && w.peers_s > 0)
		h->seats[w.rank].factor = w.pace_s / w.peers_s;
}

/* Reads a file with its segments. */
static int read_lines(struct rundir_history *h, const char *run, const char *name,
		      void (*take)(void *arg, const struct rundir_line *l), struct err *e)
{
	enum { BLOCK = 256 << 10 };
	struct rundir_lines lines = { 0 };
	struct segments_reader reader;
	char *data = malloc(BLOCK);
	ssize_t n = 0;
	if (!data)
		return err_set(e, ERR_NOMEM, "%s: no memory to read %s; close other programs", run,
			       name);
	segments_reader_init(&reader, run, name);
	while (!lines.newer && (n = segments_read(&reader, data, BLOCK, e)) > 0)
		rundir_lines_feed(&lines, data, (size_t)n, take, h);
	int rc = n < 0 ? -1 : 0;
	if (lines.newer)
		rc = rundir_head_check(
			&(struct rundir_head){ .format = name, .version = lines.newer }, run, e);
	h->damaged += lines.damaged;
	segments_reader_fini(&reader);
	rundir_lines_fini(&lines);
	free(data);
	return rc;
}

/* A line of metrics.jsonl. */
static void take_row(void *arg, const double row[COLUMN_COUNT])
{
	struct rundir_history *h = arg;
	int64_t number = row[COLUMN_GENERATION] >= 1 && row[COLUMN_GENERATION] < 1e9
				 ? (int64_t)row[COLUMN_GENERATION]
				 : 0;
	struct rundir_generation *g = generation_of(h, number);
	see_time(h, row[COLUMN_TIME]);
	if (!g)
		return;
	if (isnan(g->begin))
		g->begin = row[COLUMN_TIME];
	g->last_step = (int64_t)fmin(row[COLUMN_STEP], 1e15);
	g->last_line = row[COLUMN_TIME];
	g->steps++;
}

/* What only the events and the metrics together show. */
static void join(struct rundir_history *h)
{
	for (size_t i = 0; i < h->n_losses; i++) {
		struct rundir_loss *lost = &h->losses[i];
		const struct rundir_generation *was = find_generation(h, lost->generation);
		size_t k = was ? (size_t)(was - h->generations) + 1 : h->n_generations;
		for (; k < h->n_generations; k++) {
			const struct rundir_generation *g = &h->generations[k];
			if (g->resumed < 0)
				continue;
			int64_t had = was->last_step > was->resumed ? was->last_step : was->resumed;
			lost->repeated = had > g->resumed ? had - g->resumed : 0;
			break;
		}
	}
}

int rundir_history_read(const char *run, struct rundir_history *out, struct err *e)
{
	*out = (struct rundir_history){ .begin = NAN, .end = NAN };
	if (access(run, R_OK | X_OK))
		return errno == ENOENT
			       ? err_set(e, ERR_NOTFOUND,
					 "%s: there is no such run folder; muster ls lists the "
					 "runs",
					 run)
			       : err_errno(e, ERR_IO, "%s: cannot read the run's folder", run);
	if (read_lines(out, run, RUN_EVENTS, take_event, e) ||
	    rundir_columns_read(run, &out->steps, take_row, out, e) ||
	    read_lines(out, run, RUN_HEALTH, take_health, e))
		return -1;
	out->damaged += out->steps.damaged;
	join(out);
	return 0;
}

void rundir_history_fini(struct rundir_history *h)
{
	for (size_t i = 0; i < h->n_losses; i++) {
		const struct rundir_loss *lost = &h->losses[i];
		char *const texts[] = { lost->node, lost->how, lost->fault, lost->text,
					lost->remedy };
		for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
			free(texts[k]);
	}
	for (size_t i = 0; i < h->n_checkpoints; i++)
		free(h->checkpoints[i].path);
	for (size_t i = 0; i < h->n_marks; i++)
		free(h->marks[i].text);
	for (size_t i = 0; i < h->n_seats; i++)
		free(h->seats[i].node);
	free(h->generations);
	free(h->losses);
	free(h->checkpoints);
	free(h->evaluations);
	free(h->marks);
	free(h->seats);
	free(h->reason);
	json_decref(h->contract);
	rundir_columns_fini(&h->steps);
	*h = (struct rundir_history){ 0 };
}
