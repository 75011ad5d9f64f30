/* chaos: a small run that meets many faults, made from a seed alone. */
#include "base/random.h"
#include "launcher/simulate/simulate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 48, WORD = 64, DEVICES = 8, NODES = 12 };

struct words {
	int n;
	char text[WORDS][WORD];
	const char *list[WORDS];
};

static void add_word(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_word(struct words *w, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vsnprintf(w->text[w->n], WORD, fmt, args);
	va_end(args);
	w->list[w->n] = w->text[w->n];
	w->n++;
}

static const char *pick(struct random_stream *r, const char *const *list)
{
	int n = 0;
	while (list[n])
		n++;
	return list[random_below(r, n)];
}

/* How the run may continue after losses. */
static void add_policy(struct words *w, struct random_stream *r)
{
	static const char *const shrinks[] = { "keep", "dp", "any", "any", NULL };
	static const char *const regrows[] = { "no", "yes", "yes", "requeue", NULL };
	static const char *const numbers[] = { "retry", "retry", "skip", "stop", NULL };
	add_word(w, "restart.shrink=%s", pick(r, shrinks));
	add_word(w, "restart.regrow=%s", pick(r, regrows));
	const char *bad = pick(r, numbers);
	bool warm = random_chance(r, 0.75);
	int every = random_below(r, 4), skips = 1 + random_below(r, 5);
	add_word(w, "health.bad_numbers=%s", bad);
	if (!strcmp(bad, "skip"))
		add_word(w, "health.max_skips=%d", skips);
	add_word(w, "restart.warm=%s", warm ? "yes" : "no");
	if (warm)
		add_word(w, "checkpoint.memory_every=%d", every);
	add_word(w, "restart.exclude_after=%d", random_below(r, 4));
	add_word(w, "restart.patience=%d", 20 + random_below(r, 400));
	add_word(w, "restart.backoff=%d", random_below(r, 4));
	add_word(w, "restart.max_restarts=%d", random_chance(r, 0.8) ? 1000 : 10);
	add_word(w, "restart.max_futile=%d", random_chance(r, 0.8) ? 20 : 3);
	add_word(w, "restart.hang_timeout=%d", 40 + random_below(r, 60));
	add_word(w, "restart.hang_floor=%d", 10 + random_below(r, 60));
	add_word(w, "health.slow_policy=%s", random_chance(r, 0.6) ? "exclude" : "warn");
	add_word(w, "health.slow_window=%d", 5 + random_below(r, 6));
	add_word(w, "slurm.requeue=%s", random_chance(r, 0.7) ? "yes" : "no");
}

/* devices: of each node; nodes: that the plan uses. */
static void add_shape(struct words *w, struct random_stream *r, int devices, int nodes)
{
	int world = devices * nodes;
	int tp = devices >= 2 && random_chance(r, 0.4) ? 2 : 1;
	int pp = world / tp >= 2 && random_chance(r, 0.4) ? 2 : 1;
	add_word(w, "model.layers=8");
	add_word(w, "model.hidden=1024");
	add_word(w, "model.heads=8");
	add_word(w, "model.vocab=256");
	add_word(w, "model.seq=1024");
	add_word(w, "batch.global=64");
	add_word(w, "batch.micro=1");
	add_word(w, "job.device=cuda");
	add_word(w, "parallel.tp=%d", tp);
	add_word(w, "parallel.pp=%d", pp);
	add_word(w, "parallel.dp=%d", world / tp / pp);
	if (devices > 1 && random_chance(r, 0.95)) { /* ranks in order are planned in no time */
		add_word(w, "parallel.zero=1");
		add_word(w, "parallel.zero_shard=node");
	}
	add_word(w, "job.steps=%d", 100 + random_below(r, 500));
	add_word(w, "checkpoint.every=%d", 3 + random_below(r, 40));
	add_word(w, "checkpoint.resume=%s", random_chance(r, 0.9) ? "auto" : "none");
}

/* Nodes of a preset, with fewer devices. */
static int make_machines(int nodes, int devices, struct cluster *out, struct err *e)
{
	struct cluster whole;
	struct cluster_slot gone[NODES * DEVICES];
	char spec[32];
	int n = 0;
	snprintf(spec, sizeof spec, "dgx-h100:%d", nodes);
	if (topo_cluster_open(spec, 0, &whole, e))
		return -1;
	for (int i = 0; i < nodes; i++)
		for (int d = devices; d < DEVICES; d++)
			gone[n++] = (struct cluster_slot){ i, d };
	int rc = topo_cluster_without(&whole, gone, n, out, e);
	topo_cluster_free(&whole);
	return rc;
}

/* Each seed has its own mixture of faults: half of the kinds do not occur at all, so that the others meet
 * each other more often. */
static void choose_rates(struct simulate_setup *s, struct random_stream *r)
{
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->rates[f] = random_chance(r, 0.5) ? simulate_fault_row(f)->rate : 0;
	s->rates[SIMULATE_KILLED] = simulate_fault_row(SIMULATE_KILLED)->rate;
}

/* Makes the run so long that it meets about so many faults: it gets more steps, of which it does more or fewer before the
 * last fault, more restarts, and somebody who starts it again. */
static void lengthen(struct simulate_setup *s, struct words *w, int faults)
{
	enum { STEPS_LEAST = 100, STEPS_MOST = 60000, SHORT_RUN = 32 };
	struct random_stream r;
	double gap = s->burst * SIMULATE_BURST / 2 + (1 - s->burst) * s->fault_s,
	       span = faults * gap;
	random_init(&r, s->seed, STREAM_LENGTH);
	double steps = span / s->step_s * random_between(&r, 0.1, 0.6);
	steps = steps < STEPS_LEAST ? STEPS_LEAST : steps > STEPS_MOST ? STEPS_MOST : steps;
	add_word(w, "job.steps=%d", (int)steps);
	if (random_chance(&r, 0.8))
		add_word(w, "restart.max_restarts=%d", 100 * faults);
	else
		add_word(w, "restart.max_restarts=%d", 10 + 10 * faults / SHORT_RUN);
	s->most_faults = faults + faults / 2;
	s->seconds = s->seconds > 2 * span ? s->seconds : 2 * span;
	s->again = 0.98;
	s->insists = true;
}

static int make_first(struct simulate_setup *s, struct err *e)
{
	struct cluster used;
	return topo_cluster_without(&s->machines, NULL, 0, &used, e)
		       ? -1
		       : launcher_deployment_build(&s->job, s->job.parallel.dp, 0, &used, &s->first,
						   e);
}

int simulate_chaos(uint64_t seed, int faults, struct simulate_setup *out, struct err *e)
{
	struct random_stream r;
	struct words w = { 0 };
	struct simulate_setup *s = out;
	memset(s, 0, sizeof *s);
	s->seed = seed;
	random_init(&r, seed, STREAM_SHAPE);
	s->slurm = random_chance(&r, 0.75);
	int nodes = s->slurm ? 1 << random_below(&r, 4) : 1;
	int devices = 1 << random_below(&r, nodes == 8 ? 3 : 4);
	devices = nodes * devices < 2 ? 2 : devices;
	int spares = s->slurm ? random_below(&r, 3) : 0;
	add_shape(&w, &r, devices, nodes);
	add_policy(&w, &r);
	add_word(&w, "log.local=%s", seed % 2 ? "/local" : "auto");
	s->sees_exits = random_chance(&r, 0.8);
	s->step_s = random_between(&r, 0.3, 3);
	s->heartbeat_s = random_between(&r, 0.5, 3);
	s->fault_s = random_between(&r, 5, 60);
	s->burst = random_between(&r, 0, 0.6);
	s->seconds = 4000;
	s->most_faults = 150;
	s->again = 0.7;
	choose_rates(s, &r);
	if (faults)
		lengthen(s, &w, faults);
	if (job_words(w.list, w.n, &s->job, e) ||
	    make_machines(nodes + spares, devices, &s->machines, e))
		return -1;
	if (!make_first(s, e))
		return 0;
	topo_cluster_free(&s->machines);
	return -1;
}
