#include "plan/show/train_time.h"

#include "base/human.h"
#include "plan/cost/train_time.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* If fewer failures than this are expected in a run, they are not mentioned. */
#define RARE 0.01

/* The costs, the time with the job's interval, and the time with the best interval. */
struct outlook {
	struct train_costs costs;
	struct train_time asked, best;
};

static struct outlook outlook_of(const struct job *job, const struct cluster *c,
				 const struct plan *p)
{
	struct outlook o;
	cost_train_costs_of(job, c, p, &o.costs);
	cost_train_expect(&o.costs, job->job.steps, job->checkpoint.every, &o.asked);
	cost_train_expect(&o.costs, job->job.steps, cost_train_interval(&o.costs, job->job.steps),
			  &o.best);
	return o;
}

static void print_checkpoints(const struct job *job, const struct outlook *o, struct buf *out)
{
	char each[HUMAN], total[HUMAN];
	const struct train_time *t = &o->asked;
	if (job->checkpoint.every > 0)
		buf_printf(out, "  %-16s one in %" PRId64 " steps, %s each", "checkpoints",
			   t->every, human_seconds(o->costs.snapshot, each));
	else
		buf_printf(out, "  %-16s only at the end", "checkpoints");
	if (t->total > 1.001 * o->best.total)
		buf_printf(out, "; best is checkpoint.every = %" PRId64 ", %s in all",
			   o->best.every, human_span(o->best.total, total));
	buf_puts(out, "\n");
}

static void print_failures(const struct job *job, const struct train_time *t, struct buf *out)
{
	char text[HUMAN];
	buf_printf(out, "  %-16s one of each node in %.*f hours", "failures",
		   job->restart.node_mtbf < 10, job->restart.node_mtbf);
	if (t->total < HUMAN_FOR_EVER)
		buf_printf(out, ", about %.*f: %s lost\n", t->failures < 10, t->failures,
			   human_span(t->lost, text));
	else
		buf_puts(out, ": more is lost than done\n");
}

void show_train_time_print(const struct job *job, const struct cluster *c, const struct plan *p,
			   struct buf *out)
{
	struct outlook o = outlook_of(job, c, p);
	char all[HUMAN], work[HUMAN], steps[HUMAN];
	bool failing = o.best.failures >= RARE;
	snprintf(steps, sizeof steps, "%" PRId64 " step%s", job->job.steps,
		 human_s(job->job.steps));
	buf_printf(out, "\nPredicted run\n  %-16s %s", steps,
		   human_span(failing ? o.asked.total : o.asked.work, all));
	buf_printf(out, failing ? ", %s without failures and checkpoints\n" : "\n",
		   human_span(o.asked.work, work));
	if (failing) {
		print_checkpoints(job, &o, out);
		print_failures(job, &o.asked, out);
	}
}

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

json_t *show_train_time_json(const struct job *job, const struct cluster *c, const struct plan *p)
{
	struct outlook o = outlook_of(job, c, p);
	const struct train_time *t = &o.asked;
	return json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "steps",
			 (json_int_t)job->job.steps, "checkpoint_every", (json_int_t)t->every,
			 "best_every", (json_int_t)o.best.every, "snapshot_seconds",
			 o.costs.snapshot, "work_seconds", t->work, "saving_seconds", t->saving,
			 "lost_seconds", number(t->lost), "failures", number(t->failures),
			 "total_seconds", number(t->total), "best_total_seconds",
			 number(o.best.total));
}
