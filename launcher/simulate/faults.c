/* faults: when a fault comes, and which. */
#include "launcher/simulate/faults.h"

#include "launcher/simulate/world.h"

enum { TRIES = 8 };

static double draw(struct simulation *sim, double a, double b)
{
	return random_between(&sim->dice, a, b);
}

static bool chance(struct simulation *sim, double p)
{
	return random_chance(&sim->dice, p);
}

/* --- The table ------------------------------------------------------------------------------- */

static const struct simulate_fault_row rows[] = {
#define FAULT_ROW(id, function, name, rate, slurm, doc) { name, rate, slurm, doc },
	SIMULATE_FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

static bool (*const injections[SIMULATE_FAULT_COUNT])(struct simulation *sim) = {
#define FAULT_INJECTION(id, function, ...) simulate_inject_##function,
	SIMULATE_FAULTS(FAULT_INJECTION)
#undef FAULT_INJECTION
};

const struct simulate_fault_row *simulate_fault_row(enum simulate_fault f)
{
	return &rows[f];
}

/* --- When and which ------------------------------------------------------------------------- */

static enum simulate_fault choose(struct simulation *sim)
{
	const struct simulate_setup *s = sim->setup;
	double sum = 0;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		sum += rows[f].slurm && !s->slurm ? 0 : s->rates[f];
	double at = draw(sim, 0, sum);
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++) {
		at -= rows[f].slurm && !s->slurm ? 0 : s->rates[f];
		if (at < 0)
			return (enum simulate_fault)f;
	}
	return SIMULATE_KILLED;
}

static void inject(struct simulation *sim)
{
	for (int i = 0; i < TRIES; i++) {
		enum simulate_fault f = choose(sim);
		int before = sim->result->all_faults + 1;
		/* before it happens, so that its consequences come after it */
		simulate_note(sim, "FAULT %d: %s", before, rows[f].name);
		if (!injections[f](sim))
			continue;
		buf_printf(&sim->faults, "%4d  %10.3f  %s\n", before, sim->queue.now, rows[f].name);
		sim->result->faults[f]++;
		sim->result->all_faults++;
		sim->fault_at = sim->queue.now;
		return;
	}
}

static void inject_next(void *arg)
{
	struct simulation *sim = arg;
	const struct simulate_setup *s = sim->setup;
	if (sim->over || sim->queue.now > SIMULATE_BEGIN + s->seconds ||
	    sim->result->all_faults >= s->most_faults)
		return;
	inject(sim);
	simulate_faults_begin(sim);
}

void simulate_faults_begin(struct simulation *sim)
{
	const struct simulate_setup *s = sim->setup;
	double wait = chance(sim, s->burst) ? draw(sim, 0, SIMULATE_BURST)
					    : random_wait(&sim->dice, s->fault_s);
	simulate_later(sim, wait, inject_next, sim);
}
