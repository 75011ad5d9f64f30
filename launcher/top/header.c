/* header: the lines about the run at the top of the screen. */
#include "launcher/top/curve.h"
#include "launcher/top/layout.h"
#include "launcher/top/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 11, LABEL_NARROW = 9, NARROW = 60, CURVE_MOST = 6, VALUE = 9, BAR_LEAST = 6, RANGE = 8 };

/* The table keeps so many rows, if there are ranks for them, on a small and on a usual screen. */
enum { KEEP_SMALL = 4, KEEP = 8, SMALL = 16, AROUND = 2 /* the table's head, and the footer */ };

static int label_width(const struct top_page *p)
{
	return p->cols < NARROW ? LABEL_NARROW : LABEL;
}

static int label(struct top_page *p, int row, const char *text)
{
	top_page_put(p, row, 1, label_width(p), TOP_DIM, text);
	return 1 + label_width(p);
}

static bool has_object(const struct top_view *v)
{
	return v->facts->look.object != NULL;
}

static bool is_active(const struct top_view *v)
{
	return rundir_state_active(v->facts->look.id);
}

/* --- lines -------------------------------------------------------------------------------- */

static bool always(const struct top_view *v)
{
	(void)v;
	return true;
}

static void draw_title(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct look *l = &v->facts->look;
	const struct rundir_state *s = &l->state;
	const char *slash = strrchr(l->run, '/');
	char since[HUMAN], right[96];
	(void)height;
	int col = top_page_print(p, row, 1, TOP_STRONG, "%s",
				 has_object(v) ? s->name
				 : slash       ? slash + 1
					       : l->run);
	if (l->id == RUNDIR_STATE_COUNT)
		return;
	col = top_page_print(p, row, col + 2, top_text_state_style(l->id), "%s",
			     rundir_state_word(l->id));
	if (!has_object(v))
		return;
	bool same = rundir_state_find(s->state) == l->id;
	top_text_duration(v->now - (same ? s->since : s->time), since);
	col = top_page_print(p, row, col, TOP_PLAIN, is_active(v) ? " for %s" : ", %s ago", since);
	snprintf(right, sizeof right, "generation %lld, %lld restart%s", (long long)s->generation,
		 (long long)s->restarts, human_s(s->restarts));
	int width = top_page_width(p, right);
	if (s->generation && col + 2 + width < p->cols)
		top_page_put(p, row, p->cols - 1 - width, width, s->restarts ? TOP_WARN : TOP_DIM,
			     right);
}

static bool has_steps(const struct top_view *v)
{
	return has_object(v) && v->facts->look.state.steps > 0;
}

/* The time that is left, without its second unit where there is little room. */
static const char *left_of(const struct top_view *v, const struct top_page *p, char out[HUMAN])
{
	const struct rundir_state *s = &v->facts->look.state;
	*out = 0;
	if (!s->has_eta_s || !is_active(v))
		return out;
	top_text_duration(s->eta_s, out);
	char *space = strchr(out, ' ');
	space = space && p->cols < NARROW ? strchr(space + 1, ' ') : NULL;
	if (space)
		*space = 0;
	return out;
}

static void draw_progress(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct rundir_state *s = &v->facts->look.state;
	int64_t step = s->has_step ? s->step : 0;
	double share = fmin((double)step / (double)s->steps, 1);
	char text[160], left[HUMAN];
	(void)height;
	left_of(v, p, left);
	snprintf(text, sizeof text, "step %lld / %lld  %.1f %%%s%s", (long long)step,
		 (long long)s->steps, 100 * share, *left ? "  left " : "", left);
	int bar = p->cols - 4 - top_page_width(p, text);
	if (bar >= BAR_LEAST)
		top_curve_bar(p, row, 1, bar, share);
	top_page_put(p, row, bar >= BAR_LEAST ? bar + 3 : 1, p->cols, TOP_PLAIN, text);
}

/* What else is known: why it stopped, why nothing is known, what has become of the supervisor. */
static const char *note_of(const struct top_view *v, char out[1100])
{
	const struct top_facts *f = v->facts;
	char age[HUMAN];
	bool old = has_object(v) && !f->look.live && rundir_state_active(f->look.id);
	*out = 0;
	if (*f->trouble)
		snprintf(out, 1100, "%s", f->trouble);
	else if (*f->look.note)
		snprintf(out, 1100, "%s%s%s", f->look.note, old ? "; this is what it was " : "",
			 old ? top_text_duration(v->now - f->look.state.time, age) : "");
	else if (has_object(v) && f->look.state.has_reason)
		snprintf(out, 1100, "%s", f->look.state.reason);
	if (old && *out)
		snprintf(out + strlen(out), 1100 - strlen(out), " ago");
	return out;
}

static bool has_note(const struct top_view *v)
{
	char text[1100];
	return *note_of(v, text) != 0;
}

static void draw_note(const struct top_view *v, struct top_page *p, int row, int height)
{
	char text[1100];
	enum rundir_state_id id = v->facts->look.id;
	bool calm = id == RUNDIR_STATE_DONE || id == RUNDIR_STATE_QUEUED;
	top_page_wrap(p, row, 1, p->cols - 2, height, calm ? TOP_PLAIN : TOP_WARN,
		      note_of(v, text));
}

static size_t n_messages(const struct top_view *v)
{
	const struct rundir_state *s = &v->facts->look.state;
	return has_object(v) ? json_array_size(s->warnings) + json_array_size(s->stand_out) : 0;
}

static bool has_messages(const struct top_view *v)
{
	return n_messages(v) > 0;
}

/* The first warning, or what stands out first. */
static void first_message(const struct top_view *v, char *out, size_t size)
{
	const struct rundir_state *s = &v->facts->look.state;
	const char *warning = json_string_value(json_array_get(s->warnings, 0));
	struct rundir_state_spot spot;
	*out = 0;
	if (warning)
		snprintf(out, size, "! %s", warning);
	else if (rundir_state_spot_read(json_array_get(s->stand_out, 0), &spot, NULL))
		return;
	else if (spot.has_rank)
		snprintf(out, size, "! rank %d on %s: %s", spot.rank, spot.node, spot.what);
	else
		snprintf(out, size, "! node %s: %s", spot.node, spot.what);
}

static void draw_message(const struct top_view *v, struct top_page *p, int row, int height)
{
	char text[1024], more[40] = "";
	size_t n = n_messages(v);
	(void)height;
	first_message(v, text, sizeof text);
	if (n > 1)
		snprintf(more, sizeof more, "  w shows %zu more", n - 1);
	int room = p->cols - 2 - top_page_width(p, more);
	int col = top_page_put(p, row, 1, room, TOP_WARN, text);
	top_page_put(p, row, col, p->cols, TOP_DIM, more);
}

static bool has_speed(const struct top_view *v)
{
	const struct rundir_state *s = &v->facts->look.state;
	return has_object(v) && (s->has_step_s || s->has_goodput);
}

static void draw_speed(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct rundir_state *s = &v->facts->look.state;
	char took[HUMAN];
	int col = label(p, row, "speed");
	(void)height;
	if (s->has_step_s)
		col = top_page_print(p, row, col, TOP_PLAIN, "%s per step",
				     human_seconds(s->step_s, took));
	if (s->has_step_s && s->predicted_s > 0)
		col = top_page_print(p, row, col,
				     s->step_s > 2 * s->predicted_s ? TOP_WARN : TOP_PLAIN,
				     ", %.2f× the predicted %s", s->step_s / s->predicted_s,
				     human_seconds(s->predicted_s, took));
	if (s->has_goodput) {
		col = top_page_put(p, row, s->has_step_s ? col + 3 : col, p->cols, TOP_DIM,
				   "goodput ");
		top_page_print(p, row, col, TOP_PLAIN, "%.1f %%", 100 * s->goodput);
	}
}

static bool has_checkpoint(const struct top_view *v)
{
	const struct rundir_state *s = &v->facts->look.state;
	return has_object(v) && (s->has_checkpoint || (s->has_next_checkpoint && is_active(v)));
}

static void draw_checkpoint(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct rundir_state *s = &v->facts->look.state;
	struct rundir_state_ckpt c;
	struct rundir_state_next n;
	char age[HUMAN], size[HUMAN], took[HUMAN];
	int col = label(p, row, "checkpoint");
	(void)height;
	if (s->has_checkpoint && !rundir_state_ckpt_read(s->checkpoint, &c, NULL))
		col = top_page_print(p, row, col, TOP_PLAIN, "step %lld, %s ago, %s in %s",
				     (long long)c.step, top_text_duration(v->now - c.time, age),
				     human_bytes((double)c.bytes, size),
				     human_seconds(c.seconds, took));
	else
		col = top_page_put(p, row, col, p->cols, TOP_PLAIN, "none yet");
	if (!s->has_next_checkpoint || !is_active(v) ||
	    rundir_state_next_read(s->next_checkpoint, &n, NULL))
		return;
	col = top_page_put(p, row, col + 3, p->cols, TOP_DIM, "next ");
	top_page_print(p, row, col, TOP_PLAIN, "step %lld%s%s", (long long)n.step,
		       n.has_eta_s ? " in " : "",
		       n.has_eta_s ? top_text_duration(n.eta_s, age) : "");
}

static void draw_place(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct rundir_state *s = &v->facts->look.state;
	double ends = s->ends - v->now;
	char left[HUMAN];
	int col = label(p, row, "ranks");
	(void)height;
	col = top_page_print(p, row, col, TOP_PLAIN, "%d on %d node%s: %s", s->world, s->nodes,
			     human_s(s->nodes), s->layout);
	if (s->has_job)
		col = top_page_print(p, row, col, TOP_PLAIN, ", job %s", s->job);
	if (s->has_ends && is_active(v)) {
		col = top_page_put(p, row, col + 3, p->cols, TOP_DIM, "time limit in ");
		top_page_print(p, row, col, ends < 600 ? TOP_WARN : TOP_PLAIN, "%s",
			       top_text_duration(ends, left));
	}
}

/* --- curves ------------------------------------------------------------------------------- */

static bool has_samples(const struct top_view *v)
{
	return v->facts->n_samples > 0;
}

static void find_range(const double *values, int n, double *low, double *high)
{
	*low = INFINITY;
	*high = -INFINITY;
	for (int i = 0; i < n; i++)
		if (isfinite(values[i])) {
			*low = fmin(*low, values[i]);
			*high = fmax(*high, values[i]);
		}
}

/* The label and the last value; the curve; the range of the values at its right. */
static void draw_curve(struct top_page *p, int row, int height, const char *name, const char *last,
		       const double *values, int n, const char *low, const char *high)
{
	int col = label(p, row, name), end = p->cols - 1;
	bool range = p->cols >= 70;
	top_page_put(p, row, col, VALUE - 1, TOP_STRONG, last);
	col += VALUE;
	int width = end - col - (range ? (height > 1 ? RANGE : 2 * RANGE + 3) + 1 : 0);
	int drawn = top_curve_draw(p, row, col, height, width, values, n);
	if (!range)
		return;
	if (height > 1) {
		top_page_put(p, row, col + drawn + 1, RANGE, TOP_DIM, high);
		top_page_put(p, row + height - 1, col + drawn + 1, RANGE, TOP_DIM, low);
	} else {
		top_page_print(p, row, col + drawn + 1, TOP_DIM, "%s to %s", low, high);
	}
}

static void draw_loss(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct top_facts *f = v->facts;
	double values[TOP_SAMPLES], low, high;
	char last[32], least[32], most[32];
	for (int i = 0; i < f->n_samples; i++)
		values[i] = f->samples[i].loss;
	find_range(values, f->n_samples, &low, &high);
	snprintf(last, sizeof last, "%.4f", values[f->n_samples - 1]);
	snprintf(least, sizeof least, "%.3f", low);
	snprintf(most, sizeof most, "%.3f", high);
	draw_curve(p, row, height, "loss", last, values, f->n_samples, least, most);
}

static void draw_tokens(const struct top_view *v, struct top_page *p, int row, int height)
{
	const struct top_facts *f = v->facts;
	double values[TOP_SAMPLES], low, high;
	char last[HUMAN], least[HUMAN], most[HUMAN];
	for (int i = 0; i < f->n_samples; i++)
		values[i] = f->samples[i].tokens_s;
	find_range(values, f->n_samples, &low, &high);
	double now = values[f->n_samples - 1];
	if (has_object(v) && f->look.state.has_tokens_s && is_active(v))
		now = f->look.state.tokens_s;
	draw_curve(p, row, height, "tokens/s", human_count(now, "", last), values, f->n_samples,
		   human_count(low, "", least), human_count(high, "", most));
}

/* --- which lines fit ---------------------------------------------------------------------- */

/* In the order of the screen. Lines of a lower number are kept longer when there is no room. */
static const struct {
	int priority;
	bool (*is_there)(const struct top_view *v);
	void (*draw)(const struct top_view *v, struct top_page *p, int row, int height);
	int more; /* further rows that it may take where there is room */
} lines[] = {
	{ 0, always, draw_title, 0 },
	{ 1, has_steps, draw_progress, 0 },
	{ 2, has_note, draw_note, 2 },
	{ 3, has_messages, draw_message, 0 },
	{ 6, has_speed, draw_speed, 0 },
	{ 7, has_checkpoint, draw_checkpoint, 0 },
	{ 8, has_object, draw_place, 0 },
	{ 4, has_samples, draw_loss, CURVE_MOST - 1 },
	{ 5, has_samples, draw_tokens, CURVE_MOST - 1 },
};
enum { LINES = sizeof lines / sizeof *lines };

/* Sets the height of each line, and returns the sum. */
static int plan_lines(const struct top_view *v, int rows, int heights[LINES])
{
	int keep = rows < SMALL ? KEEP_SMALL : KEEP, used = 0;
	int budget = rows - AROUND - keep > 1 ? rows - AROUND - keep : 1;
	memset(heights, 0, LINES * sizeof *heights);
	for (int priority = 0; priority < LINES; priority++)
		for (int i = 0; i < LINES; i++)
			if (lines[i].priority == priority && used < budget && lines[i].is_there(v))
				used += heights[i] = 1;
	/* Rows that no rank needs, without one that stays empty above the table. Other pages need all. */
	int ranks = v->ui->kind != TOP_TABLE ? rows : v->facts->world > keep ? v->facts->world : keep;
	int spare = rows - AROUND - used - ranks - 1;
	for (int round = 0; round < CURVE_MOST; round++)
		for (int i = 0; i < LINES; i++)
			if (heights[i] && heights[i] <= lines[i].more && heights[i] == round + 1 &&
			    spare > 1) {
				heights[i]++;
				used++;
				spare--;
			}
	return used;
}

int top_header_height(const struct top_view *v, int rows)
{
	int heights[LINES];
	return plan_lines(v, rows, heights);
}

void top_header_draw(const struct top_view *v, struct top_page *p)
{
	int heights[LINES], row = 0;
	plan_lines(v, p->rows, heights);
	for (int i = 0; i < LINES; i++) {
		if (heights[i])
			lines[i].draw(v, p, row, heights[i]);
		row += heights[i];
	}
}
