/*
 * simulate: runs many simulated runs (launcher/simulate) on all cores, and prints what they met.
 *
 *     simulate [--first SEED] [--count N] [--cores N] [--faults N] [--relays] [--text]
 *
 * Prints each seed that breaks what must hold, after it was run again to see that it does so in the same
 * way. --faults: each run is so long that it meets about so many; without it some 30. --text: also its faults
 * and its last events. --relays: the first rank of a node reports for its ranks.
 * Exit status 1: there was one.
 */
#include "base/clock.h"
#include "launcher/supervise/policy.h"
#include "tests/unit/launcher/simulate_seed.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct options {
	uint64_t first, count;
	int cores, faults;
	bool text;
	void (*change)(struct simulate_setup *s); /* NULL: nothing */
};

struct sums {
	uint64_t seeds, broken, unequal, failed, events;
	int64_t faults[SIMULATE_FAULT_COUNT], all_faults, generations, regrouped, decisions[16];
	int64_t requeues, supervisors, ends[SIMULATE_ENDS], steps, repeated, late;
	double seconds;
};

static void use_relays(struct simulate_setup *s)
{
	s->relays = true;
}

static void add_result(struct sums *s, const struct simulate_result *r)
{
	s->seeds++;
	s->broken += r->broken;
	s->events += r->events;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		s->faults[f] += r->faults[f];
	s->all_faults += r->all_faults;
	s->generations += r->generations;
	s->regrouped += r->regrouped;
	for (int d = 0; d < 16; d++)
		s->decisions[d] += r->decisions[d];
	s->requeues += r->requeues;
	s->supervisors += r->supervisors;
	for (int i = 0; i < SIMULATE_ENDS; i++)
		s->ends[i] += r->ends[i];
	s->steps += r->steps;
	s->repeated += r->repeated;
	s->late += r->late;
	s->seconds += r->seconds;
}

static void add_sums(struct sums *to, const struct sums *s)
{
	to->seeds += s->seeds;
	to->broken += s->broken;
	to->unequal += s->unequal;
	to->failed += s->failed;
	to->events += s->events;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		to->faults[f] += s->faults[f];
	to->all_faults += s->all_faults;
	to->generations += s->generations;
	to->regrouped += s->regrouped;
	for (int d = 0; d < 16; d++)
		to->decisions[d] += s->decisions[d];
	to->requeues += s->requeues;
	to->supervisors += s->supervisors;
	for (int i = 0; i < SIMULATE_ENDS; i++)
		to->ends[i] += s->ends[i];
	to->steps += s->steps;
	to->repeated += s->repeated;
	to->late += s->late;
	to->seconds += s->seconds;
}

/* A seed that breaks something is run again: it must do the same. */
static void run_seed(uint64_t seed, const struct options *o, struct sums *sums)
{
	struct simulate_result r, again;
	struct err e = ERR_INIT;
	if (simulate_long_seed(seed, o->faults, o->change, &r, &e)) {
		printf("seed %llu: cannot be simulated: %s\n", (unsigned long long)seed, e.text);
		sums->failed++;
		return;
	}
	add_result(sums, &r);
	if (r.broken) {
		if (o->text)
			fputs(buf_str(&r.text), stdout);
		else
			printf("seed %llu: %s\n", (unsigned long long)seed, r.why);
		if (simulate_long_seed(seed, o->faults, o->change, &again, &e) ||
		    again.hash != r.hash) {
			printf("seed %llu: it does not replay\n", (unsigned long long)seed);
			sums->unequal++;
		}
		buf_fini(&again.text);
	}
	fflush(stdout);
	buf_fini(&r.text);
}

/* at: the seed that runs, in memory that the parent shares. */
static void run_share(const struct options *o, int share, int out, uint64_t *at)
{
	struct sums sums = { 0 };
	for (uint64_t i = (uint64_t)share; i < o->count; i += (uint64_t)o->cores) {
		*at = o->first + i;
		run_seed(*at, o, &sums);
	}
	if (write(out, &sums, sizeof sums) != (ssize_t)sizeof sums)
		_exit(3);
	exit(0);
}

static void print_sums(const struct sums *s, double took)
{
	static const char *const ends[SIMULATE_ENDS] = { "done", "failed", "cannot start",
							 "gave up", "stopped" };
	printf("%llu seeds: %lld faults, %lld generations, %lld of them with agents that lived "
	       "on\n",
	       (unsigned long long)s->seeds, (long long)s->all_faults, (long long)s->generations,
	       (long long)s->regrouped);
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		printf("  %-20s %9lld  %s\n", simulate_fault_row(f)->name, (long long)s->faults[f],
		       simulate_fault_row(f)->doc);
	printf("decisions:");
	for (int d = 0; d < RECOVERIES; d++)
		printf(" %s %lld", supervise_recovery_word((enum recovery)d),
		       (long long)s->decisions[d]);
	printf("\nsupervisors: %lld, requeues: %lld\nends:", (long long)s->supervisors,
	       (long long)s->requeues);
	for (int i = 0; i < SIMULATE_ENDS; i++)
		printf(" %s %lld", ends[i], (long long)s->ends[i]);
	printf("\n%lld steps, %lld of them again; %.1f days of virtual time, "
	       "%llu events\n",
	       (long long)s->steps, (long long)s->repeated, s->seconds / 86400,
	       (unsigned long long)s->events);
	printf("%lld steps of agents that were cut off, too late\n", (long long)s->late);
	printf("%.1f s: %.0f faults/s; %llu seeds broken, %llu do not replay, %llu failed\n", took,
	       (double)s->all_faults / took, (unsigned long long)s->broken,
	       (unsigned long long)s->unequal, (unsigned long long)s->failed);
}

static bool read_options(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--text")) {
			o->text = true;
			continue;
		}
		if (!strcmp(argv[i], "--relays")) {
			o->change = use_relays;
			continue;
		}
		unsigned long long value = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;
		if (!strcmp(argv[i], "--first"))
			o->first = value;
		else if (!strcmp(argv[i], "--count"))
			o->count = value;
		else if (!strcmp(argv[i], "--cores"))
			o->cores = (int)value;
		else if (!strcmp(argv[i], "--faults"))
			o->faults = (int)value;
		else
			return false;
		i++;
	}
	return o->cores > 0;
}

int main(int argc, char **argv)
{
	struct options o = { .first = 1,
			     .count = 1000,
			     .cores = (int)sysconf(_SC_NPROCESSORS_ONLN) };
	struct sums all = { 0 };
	int pipes[2];
	if (!read_options(argc, argv, &o) || pipe(pipes)) {
		fprintf(stderr,
			"usage: simulate [--first SEED] [--count N] [--cores N] [--faults N] "
			"[--relays] [--text]\n");
		return 2;
	}
	double began = clock_s();
	pid_t *workers = calloc((size_t)o.cores, sizeof *workers);
	uint64_t *at = mmap(NULL, (size_t)o.cores * sizeof *at, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!workers || at == MAP_FAILED) {
		fprintf(stderr, "simulate: no memory\n");
		return 3;
	}
	for (int i = 0; i < o.cores; i++)
		if (!(workers[i] = fork()))
			run_share(&o, i, pipes[1], &at[i]);
	close(pipes[1]);
	for (struct sums s; read(pipes[0], &s, sizeof s) == (ssize_t)sizeof s;)
		add_sums(&all, &s);
	int died = 0;
	for (int i = 0, status; i < o.cores; i++) {
		if (workers[i] > 0 && waitpid(workers[i], &status, 0) > 0 && !status)
			continue;
		printf("seed %llu: the process died\n", (unsigned long long)at[i]);
		died++;
	}
	free(workers);
	print_sums(&all, clock_s() - began);
	return all.broken || all.unequal || all.failed || died;
}
