#include "launcher/goodput/costs.h"

#include "plan/cost/train_time.h"
#include "plan/spec/optimizers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Measured by `make bench-agents` with 10,000 ranks: the end of a process is seen after 2.9 ms; the supervisor
 * decides, and tells the others, in 70 µs per rank. */
static const double closed_s = 3e-3, decide_rank_s = 70e-6;
/* srun starts a step of 256 ranks in 10 s under Slurm's PMIx, most of which Slurm needs. More nodes take longer;
 * this is an assumption for 2,048. */
static const double start_s = 30, replace_s = 10;
/* An assumption: the job has a high priority. */
static const double queue_s = 600;
/* Nobody waits beside the run: half an hour to notice, to look, and to begin again. */
static const double person_s = 1800;
/* Bytes per second that the ranks of a node exchange with another one, if its adapters are not known. */
static const double network = 10e9;

static const struct goodput_cost_row rows[GOODPUT_COST_COUNT] = {
#define COST_ROW(name, doc) { #name, doc, offsetof(struct goodput_costs, name) },
	GOODPUT_COSTS(COST_ROW)
#undef COST_ROW
};

const struct goodput_cost_row *goodput_cost_row(int i)
{
	return &rows[i];
}

double *goodput_cost(struct goodput_costs *c, int i)
{
	return (double *)((char *)c + rows[i].at);
}

/* Of the first node that has ranks. */
static double network_of(const struct deployment *d)
{
	const struct node_kind *k = topo_cluster_kind(&d->cluster, d->plan.ranks[0].node);
	double sum = 0;
	for (int i = 0; i < k->n_nics; i++)
		sum += k->nics[i].bandwidth;
	return sum > 0 ? sum : network;
}

/* A rank that is slow for three windows is found. */
static double slow_of(const struct job *job, const struct train_costs *t)
{
	enum { WINDOWS = 3, STEPS = 3 };
	double window = fmax(job->health.slow_window, STEPS * t->step);
	return WINDOWS * window + t->snapshot + t->write;
}

/* Replicas compare their weights every few steps, and before each checkpoint. */
static double numbers_of(const struct job *job, const struct train_costs *t, int replicas)
{
	double every = (double)job->checkpoint.every, compare = (double)job->health.compare_every;
	if (compare > 0)
		every = every > 0 ? fmin(every, compare) : compare;
	return compare < 0 || every <= 0 || replicas < 2 ? INFINITY : every * t->step / 2;
}

void goodput_costs_of(const struct deployment *d, struct goodput_costs *out)
{
	const struct job *job = &d->job;
	struct train_costs t;
	cost_train_costs_of(job, &d->cluster, &d->plan, &t);
	double bytes = optimizer_checkpoint_bytes(job->optimizer.kind, &d->plan.shape),
	       copy = bytes / launcher_deployment_nodes(d) / network_of(d);
	*out = (struct goodput_costs){
		.step = t.step,
		.snapshot = t.snapshot,
		.write = t.write,
		.copy = copy,
		.closed = closed_s,
		.silent = job->restart.silent_timeout,
		.hang = job->restart.hang_timeout > 0
				? fmin(job->restart.hang_timeout, job->restart.hang_floor) +
					  job->restart.stacks_timeout
				: INFINITY,
		.numbers = numbers_of(job, &t, d->plan.layout.dp),
		.slow = slow_of(job, &t),
		.end = decide_rank_s * d->plan.world,
		.respawn = job->restart.respawn,
		.replace = replace_s,
		.recall = copy + t.snapshot,
		.load = t.restart - job->restart.respawn,
		.start = start_s,
		.queue = queue_s,
		.person = person_s,
	};
}

static int find(const char *word, size_t len)
{
	for (int i = 0; i < GOODPUT_COST_COUNT; i++)
		if (strlen(rows[i].name) == len && !strncmp(word, rows[i].name, len))
			return i;
	return -1;
}

int goodput_costs_set(struct goodput_costs *c, const char *word, struct err *e)
{
	const char *equals = strchr(word, '=');
	int i = equals ? find(word, (size_t)(equals - word)) : -1;
	if (i < 0)
		return err_set(
			e, ERR_USAGE,
			"--costs %.60s: write NAME=SECONDS, such as hang=120; muster simulate "
			"--help lists the names",
			*word ? word : "\"\"");
	char *end;
	double seconds = strtod(equals + 1, &end);
	if (end == equals + 1 || *end || !(seconds >= 0 && seconds <= 1e9))
		return err_set(e, ERR_USAGE,
			       "--costs %.60s: the seconds must be a number from 0 to 1e9", word);
	if (i == COST_step && seconds <= 0)
		return err_set(e, ERR_USAGE, "--costs %.60s: a step takes longer than 0 s", word);
	*goodput_cost(c, i) = seconds;
	return 0;
}
