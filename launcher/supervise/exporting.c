#include "launcher/supervise/exporting.h"

#include "launcher/supervise/supervisor.h"
#include "plan/show/plan.h"

static void tell(void *arg, bool warning, const char *text)
{
	struct supervisor *s = arg;
	supervise_terminal_event(s->o.term, warning ? TONE_WARN : TONE_PLAIN,
				 warning ? "warn" : "metrics", "%s", text);
}

static bool rank_of(void *arg, int rank, struct export_rank *out)
{
	const struct supervisor *s = arg;
	if (rank >= s->world)
		return false;
	const struct rank_state *k = &s->ranks[rank];
	out->node = supervise_node(s, rank);
	out->step = k->step;
	out->still_s = k->moved > 0 ? supervise_now(s) - k->moved : 0;
	return true;
}

static const int64_t *time_of(void *arg)
{
	struct supervisor *s = arg;
	return s->generation ? supervise_times_parts(s) : NULL;
}

void supervise_exporting_open(struct supervisor *s)
{
	s->exports = exports_open(&(struct exports_options){ .job = s->o.job,
							     .run = rundir_path(s->o.run),
							     .tell = tell,
							     .rank = rank_of,
							     .time = time_of,
							     .arg = s });
}

void supervise_exporting_begin(struct supervisor *s)
{
	struct buf plan = BUF_INIT;
	if (!s->exports)
		return;
	show_plan_text(&s->d->job, &s->d->cluster, &s->d->plan, &plan);
	exports_begin(s->exports, &(struct export_begin){ .generation = s->generation,
							  .job = &s->d->job,
							  .plan = buf_str(&plan),
							  .predicted_s = s->d->plan.time.total,
							  .step = s->resumed > 0 ? s->resumed : 0,
							  .ranks = s->world,
							  .nodes = s->d->cluster.n_nodes });
	buf_fini(&plan);
}

void supervise_exporting_tick(struct supervisor *s)
{
	exports_state(s->exports, s->view.id, s->restart.restarts);
	exports_tick(s->exports, supervise_now(s));
}

void supervise_exporting_close(struct supervisor *s)
{
	exports_close(s->exports, s->view.id);
	s->exports = NULL;
}
