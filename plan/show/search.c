#include "plan/show/search.h"

#include "base/human.h"
#include "plan/search/fit.h"
#include "plan/show/missing.h"
#include "plan/show/program.h"
#include "plan/show/sureness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNNERS_UP = 8, BAR = 16 };

static double tokens_of(const struct job *job)
{
	return (double)job->batch.global * (double)job->model.seq;
}

static int world_of(const struct search_config *c)
{
	return c->tp * c->cp * c->dp * c->pp;
}

/* "75 of 80 GiB"; "75 GiB" if the limit is unknown. */
static void print_room(double bytes, double limit, struct buf *out)
{
	char text[HUMAN], has[HUMAN];
	buf_printf(out, "%s", human_bytes(bytes, text));
	if (limit > 0)
		buf_printf(out, " of %s", human_bytes(limit, has));
}

/* Says why the best one is not the fastest: its room, or that its devices are of fewer kinds. On
 * processors it is their cores, which the layout shows. */
static void print_preference(const struct search *s, struct buf *out)
{
	const struct search_found *best = &s->found[0], *fastest = best;
	for (int i = 1; i < s->n; i++)
		if (s->found[i].time.total < fastest->time.total)
			fastest = &s->found[i];
	double gain = 100 * (1 - fastest->time.total / best->time.total);
	if (fastest == best || fastest->crowd > 1)
		return;
	if (fastest->peak.kinds > best->peak.kinds)
		buf_printf(
			out,
			"  It is simpler than a layout on %s that is predicted %.1f %% faster:\n  "
			"predictions err by more than that\n",
			fastest->peak.devices, gain);
	else
		buf_printf(out,
			   "  It leaves more memory free than a layout that is predicted %.1f %% "
			   "faster and fills %.0f %%:\n  predictions err by more than that\n",
			   gain, 100 * fastest->memory / fastest->limit);
}

static void print_best(const struct job *job, const struct cluster *c, const struct search *s,
		       struct buf *out)
{
	const struct search_found *f = &s->found[0];
	struct model_shape m;
	char text[HUMAN], rate[HUMAN];
	int world = world_of(&f->leaf.config), all = plan_devices(c);
	shape_of_job(job, &m);
	double done = tokens_of(job) * shape_flops_token(&m) / f->time.total;
	buf_puts(out, "  ");
	search_config_print(&f->leaf.config, out);
	buf_printf(out, "\n  %s per step, %s tokens/s", human_seconds(f->time.total, text),
		   human_count(tokens_of(job) / f->time.total, "", rate));
	if (f->peak.flops > 0)
		buf_printf(out, ", %.0f %% of %s", 100 * done / f->peak.flops, f->peak.devices);
	buf_puts(out, "; ");
	print_room(f->memory, f->limit, out);
	buf_puts(out, " on the fullest device\n");
	print_preference(s, out);
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	if (mine) {
		*mine = *job;
		search_config_apply(&f->leaf.config, mine);
		show_sureness_print(mine, &f->peak, f->time.total, out);
	}
	free(mine);
	double days = f->time.total * (double)job->job.steps / 86400;
	if (days >= 0.1)
		buf_printf(out,
			   "  %lld steps take %.1f days, without failures and checkpoints: the "
			   "plan of these lines has them\n",
			   (long long)job->job.steps, days);
	if (world < all)
		buf_printf(out,
			   "  It leaves %d of the %d devices unused: no layout that uses more of "
			   "them is surely faster.\n",
			   all - world, all);
}

static void print_row(const struct search_found *f, double best, struct buf *out)
{
	char time[HUMAN], memory[HUMAN];
	buf_printf(out, "  %9s  %+6.1f %%  %9s  ", human_seconds(f->time.total, time),
		   100 * (f->time.total / best - 1), human_bytes(f->memory, memory));
	search_config_print(&f->leaf.config, out);
	buf_puts(out, "\n");
}

static void print_runners_up(const struct search *s, struct buf *out)
{
	if (s->n < 2)
		return;
	buf_puts(out, "\nOther layouts, and the time they lose\n  step          lost     memory  "
		      "layout\n");
	for (int i = 1; i < s->n && i <= RUNNERS_UP; i++)
		print_row(&s->found[i], s->found[0].time.total, out);
}

static void print_parts(const struct plan_rank *r, struct buf *out)
{
	bool any = false;
	for (int i = 0; i < FIT_PARTS; i++) {
		char text[HUMAN];
		double bytes = search_fit_part(r, i);
		if (bytes < 0.005 * r->total)
			continue;
		buf_printf(out, "%s%s %s", any ? ", " : "", search_fit_part_name(i),
			   human_bytes(bytes, text));
		any = true;
	}
}

/* Prints what keeps a configuration from being chosen: the device, its node, or the room to
 * spare. */
static void print_lack(const struct eval_leaf *l, struct buf *out)
{
	char bytes[HUMAN], limit[HUMAN];
	if (l->limit > 0 && l->rank.total > l->limit)
		buf_printf(out, "%s too much at pp %d",
			   human_bytes(l->rank.total - l->limit, bytes), l->rank.at.pp);
	else if ((l->config.optimizer || l->config.activations) && l->host_limit <= 0)
		buf_puts(out, "offloads to nodes whose memory is unknown");
	else if ((l->config.optimizer || l->config.activations) && l->host > l->host_limit)
		buf_printf(out, "a rank's %s in its node's memory, which leaves it %s",
			   human_bytes(l->host, bytes), human_bytes(l->host_limit, limit));
	else
		buf_printf(out, "%s of %s at pp %d, which leaves less than %.0f %% free",
			   human_bytes(l->rank.total, bytes), human_bytes(l->limit, limit),
			   l->rank.at.pp, 100 * (1 - SPACE_ROOMY));
}

static void print_misfits(const struct search *s, struct buf *out)
{
	if (!s->n_misfits)
		return;
	buf_puts(out, "\nFaster, but too large\n");
	for (int i = 0; i < s->n_misfits; i++) {
		const struct eval_leaf *l = &s->misfits[i];
		char time[HUMAN];
		buf_printf(out, "  %9s  ", human_seconds(l->time.total, time));
		search_config_print(&l->config, out);
		buf_puts(out, "\n             ");
		print_lack(l, out);
		buf_puts(out, ": ");
		print_parts(&l->rank, out);
		buf_puts(out, "\n");
	}
}

static void print_front(const struct search *s, struct buf *out)
{
	if (s->n_front < 2)
		return;
	double best = s->front[s->n_front - 1].time.total;
	buf_puts(out, "\nMemory against time, by closed forms: nothing smaller is as fast\n     "
		      "memory       step\n");
	for (int i = 0; i < s->n_front; i++) {
		const struct eval_leaf *l = &s->front[i];
		char time[HUMAN], memory[HUMAN];
		buf_printf(out, "  %9s  %9s  ", human_bytes(l->rank.total, memory),
			   human_seconds(l->time.total, time));
		human_bar(best / l->time.total, BAR, out);
		buf_puts(out, "  ");
		search_config_print(&l->config, out);
		buf_puts(out, "\n");
	}
}

void show_search_print(const struct job *job, const struct cluster *c, const struct search *s,
		       struct buf *out)
{
	char count[HUMAN];
	buf_printf(out, "Best layout for %s on %s, %d device%s\n\n", job->job.name, c->name,
		   plan_devices(c), human_s(plan_devices(c)));
	show_program_print(job, out);
	print_best(job, c, s, out);
	if (*s->found[0].warning)
		buf_printf(out, "\nWarning: %s\n", s->found[0].warning);
	show_missing_print(c, NULL, out);
	print_runners_up(s, out);
	print_misfits(s, out);
	print_front(s, out);
	buf_printf(out, "\nEvaluated %s configurations; all others are proven slower.\n",
		   human_count((double)s->considered, "", count));
	buf_puts(out, "\nThe best layout as lines of a job file\n\n");
	search_config_lines(&s->found[0].leaf.config, out);
}
