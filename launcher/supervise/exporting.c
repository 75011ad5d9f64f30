#include "launcher/supervise/exporting.h"

#include "launcher/supervise/supervisor.h"
#include "plan/show/plan.h"

/* The state of a run that has ended. */
static const char *end_word(const struct supervisor *s)
{
	switch (s->status) {
	case STATUS_DONE:
		return "done";
	case STATUS_STOPPED:
		return "stopped";
	case STATUS_GAVE_UP:
		return "gave-up";
	default:
		return "failed";
	}
}

/* A state between two generations is part of a restart, and before the first one of the start. */
static const char *state_word(const struct supervisor *s)
{
	const char *between = s->first ? "starting" : "restarting";
	switch (s->state) {
	case SUP_TRAINING:
	case SUP_EXITING:
		return "training";
	case SUP_STOPPING:
	case SUP_LEAVING:
	case SUP_ENDING:
		return "stopping";
	case SUP_WAITING:
		return "waiting";
	case SUP_UPLOADING:
		return "uploading";
	case SUP_DONE:
		return end_word(s);
	default:
		return between;
	}
}

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

void supervise_exporting_open(struct supervisor *s)
{
	s->exports = exports_open(&(struct exports_options){ .job = s->o.job,
							     .run = rundir_path(s->o.run),
							     .tell = tell,
							     .rank = rank_of,
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
	exports_state(s->exports, state_word(s), s->restart.restarts);
	exports_tick(s->exports, supervise_now(s));
}

void supervise_exporting_close(struct supervisor *s)
{
	exports_close(s->exports, end_word(s));
	s->exports = NULL;
}
