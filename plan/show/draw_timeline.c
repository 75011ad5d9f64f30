/* The parts of drawings that the terminal and SVG share. */
#include "plan/show/draw_timeline.h"

#include "base/human.h"

/* clang-format off */
static const struct draw_look looks[SCHED_OPS] = {
	[SCHED_FORWARD] = { 'F', "forward", { { 25, "#1f5fa8" }, { 110, "#8ab8e6" } } },
	[SCHED_BACKWARD] = { 'B', "backward", { { 28, "#2a7d3f" }, { 114, "#93cfa0" } } },
	[SCHED_BACKWARD_INPUT] = { 'B', "backward, input", { { 30, "#137a7a" }, { 116, "#86cccb" } } },
	[SCHED_BACKWARD_WEIGHT] = { 'W', "backward, weights", { { 130, "#b0641a" }, { 180, "#e6bd8c" } } },
	[SCHED_REDUCE] = { 'R', "reduction", { { 240, "#777777" }, { 240, "#777777" } } },
};
/* clang-format on */

const struct draw_look *show_draw_look(enum sched_op op)
{
	return (unsigned)op < SCHED_OPS && looks[op].letter ? &looks[op] : NULL;
}

bool show_draw_has(const struct drawing *d, enum sched_op op)
{
	for (int p = 0; p < d->n_parts; p++)
		for (int i = 0; i < d->parts[p].timeline->n; i++)
			if (d->parts[p].timeline->events[i].op == op)
				return true;
	return false;
}

double show_draw_end(const struct drawing *d)
{
	double end = 0;
	for (int p = 0; p < d->n_parts; p++) {
		double mine = timeline_end(d->parts[p].timeline);
		end = mine > end ? mine : end;
	}
	return end;
}

void show_draw_caption(const struct draw_part *part, struct buf *out)
{
	char text[HUMAN];
	buf_printf(out, "%s: %s, bubble %.1f %%", part->name,
		   human_seconds(timeline_end(part->timeline), text),
		   100 * timeline_bubble(part->timeline));
}
