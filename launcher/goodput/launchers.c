#include "launcher/goodput/launchers.h"

#include <math.h>

/* Of copies in memory with checkpoint.memory_every = -1: the share of the time that they may take. */
static const double copies_share = 0.01;

/*
 * Seconds; restarts: -1: as many as are needed.
 *
 * torchrun: torch 2.15, torch/distributed/run.py (--max-restarts 0, --monitor-interval 0.1),
 * elastic/agent/server/api.py (30 s from SIGTERM to SIGKILL), and NCCL's time-out of 10 minutes. An agent that
 * is gone restarts nobody: the others see it when NCCL fails, some 30 s later by the defaults of its retries.
 * nvrx: nvidia-resiliency-ext 0.6, fault_tolerance (max-restarts 0, no limit for hangs by default, monitor 0.3 s,
 * a restart within the job in about a minute), inprocess/wrap.py (soft, hard and barrier time-outs of 60, 90
 * and 120 s). nvrx-restarts has the limit for hangs that NVIDIA's Megatron Bridge sets, 300 s.
 * start: interpreters and libraries on all nodes, a minute.
 */
static const struct {
	const char *name, *doc;
	double closed, silent, hang, end, start;
	int restarts;
	bool warm, keeps, copies;
} launchers[GOODPUT_LAUNCHERS] = {
	{ .name = "muster", .doc = "as the job file says" },
	{ "torchrun", "its defaults: a person begins again after each fault", 0.1, 30, 600, 30, 60,
	  0, false, false, false },
	{ "torchrun-restarts", "with any number of restarts, and nodes that wait", 0.1, 30, 600, 30,
	  60, -1, false, false, false },
	{ "nvrx", "ft_launcher, its defaults", 0.3, 30, 600, 15, 60, 0, false, false, false },
	{ "nvrx-restarts", "with any number of restarts, spares, and local checkpoints", 0.3, 30,
	  300, 15, 45, -1, false, true, true },
	{ "nvrx-in-process", "its restart inside the process, and local checkpoints", 1.5, 30, 96,
	  5, 60, -1, true, true, true },
};

const char *goodput_launcher_name(int i)
{
	return launchers[i].name;
}

const char *goodput_launcher_doc(int i)
{
	return launchers[i].doc;
}

void goodput_launch_by(int launcher, struct goodput_setup *s)
{
	s->costs.closed = launchers[launcher].closed;
	s->costs.silent = launchers[launcher].silent;
	s->costs.hang = launchers[launcher].hang;
	s->costs.end = launchers[launcher].end;
	s->costs.start = launchers[launcher].start;
	s->rules.restarts = launchers[launcher].restarts;
	s->rules.warm = launchers[launcher].warm;
	s->rules.keeps = launchers[launcher].keeps;
	s->rules.shrinks = s->rules.leaves_slow = false;
	s->rules.futile = s->rules.exclude_after = 0;
	s->rules.backoff = 0;
	if (!launchers[launcher].copies)
		s->rules.copy_every = 0;
}

/* As the agents choose it (agent/engine/train/copy_pace.h): as often as one is done, as it costs less than a
 * share of the time, and as it is worth it. */
static int64_t copy_every(const struct job *job, const struct goodput_costs *c, int nodes)
{
	int64_t asked = job->checkpoint.memory_every;
	bool kept = job->restart.warm && job->checkpoint.copies > 0 &&
		    (asked >= 0 || job->parallel.sync != SYNC_SERVER);
	if (!kept || asked >= 0)
		return kept ? asked : 0;
	double mtbf = job->restart.node_mtbf > 0 ? 3600 * job->restart.node_mtbf / nodes : INFINITY,
	       seconds = fmax(fmax(c->snapshot / copies_share, c->copy),
			      sqrt(2 * c->snapshot * mtbf));
	return (int64_t)fmin(fmax(ceil(seconds / c->step), 1), 1e9);
}

void goodput_setup_of(const struct deployment *d, const struct goodput_faults *faults,
		      struct goodput_setup *out)
{
	const struct job *job = &d->job;
	*out = (struct goodput_setup){
		.nodes = launcher_deployment_nodes(d),
		.replicas = d->plan.layout.dp,
		.spares = (int)job->slurm.spares,
		.steps = job->job.steps,
		.faults = faults,
	};
	goodput_costs_of(d, &out->costs);
	out->rules = (struct goodput_rules){
		.warm = job->restart.warm,
		.finds = job->health.slow_factor > 0 ? job->health.slow_factor : INFINITY,
		.leaves_slow = job->health.slow_policy == SLOW_EXCLUDE,
		.shrinks = job->restart.shrink != SHRINK_KEEP,
		.regrows = job->restart.regrow != REGROW_NO,
		.requeues = job->slurm.requeue,
		.restarts = job->restart.max_restarts,
		.futile = job->restart.max_futile,
		.backoff = job->restart.backoff,
		.exclude_after = job->restart.exclude_after,
		.patience = job->restart.patience,
		.every = job->checkpoint.every,
		.copy_every = copy_every(job, &out->costs, out->nodes),
	};
}
