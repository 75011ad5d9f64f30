/*
 * The second part of --calibrate. It measures all-reduces of all ranks with each algorithm that can
 * do them, and with the one that libcomm's table selects. It prints the sizes at which the fastest
 * algorithm changes. It does not save them: the table is in libcomm/algorithms/algorithms.c.
 */
#include "agent/tools/bench_comm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZES = 7, STEP = 4, LEAST = 1024, ALGORITHMS_MAX = 32 };

#define CLEARLY 0.9 /* a ratio of times; closer ones count as equal */

/* Is in memory that the ranks share; rank 0 writes it. */
struct cross {
	const char *name;      /* the algorithm of this pass; NULL: those of the table */
	double seconds[SIZES]; /* of this pass; 0: it does not fit */
	/* the table's choices, as indices of comm_algorithms; set in the pass without a name */
	int table[SIZES];
};

/* Returns NULL if there are no more algorithms. */
static const char *algorithm(int number)
{
	return number < ALGORITHMS_MAX ? comm_algorithms()[number] : NULL;
}

static int number_of(const char *name)
{
	int i = 0;
	while (strcmp(algorithm(i), name))
		i++;
	return i;
}

static size_t size_of(int i)
{
	size_t bytes = LEAST;
	while (i-- > 0)
		bytes *= STEP;
	return bytes;
}

static void note(void *arg, const struct bench_row *row)
{
	*(double *)arg = row->in_place.median;
}

static int one_pass(struct comm *world, void *arg, struct err *e)
{
	struct cross *x = arg;
	struct bench_comm loop = { .ops = 1,
				   .factor = STEP,
				   .type = COMM_F32,
				   .redop = COMM_SUM,
				   .seconds = 0.03,
				   .in_place = true };
	for (int i = 0; i < SIZES; i++) {
		const char *taken = comm_all_reduce_algorithm(world, size_of(i));
		double seconds = 0;
		loop.least = loop.most = size_of(i);
		if (x->name && strcmp(taken, x->name))
			continue;
		if (x->name && bench_comm_loop(world, &loop, note, &seconds, e))
			return -1;
		if (comm_rank(world) != 0)
			continue;
		x->seconds[i] = seconds;
		if (!x->name)
			x->table[i] = number_of(taken);
	}
	return comm_barrier(world, e);
}

/* seconds[algorithm][size] */
struct times {
	double seconds[ALGORITHMS_MAX][SIZES];
	int table[SIZES];
};

static int measure(struct rank_job job, struct cross *x, struct times *t, struct err *e)
{
	job.work = one_pass;
	job.arg = x;
	*x = (struct cross){ 0 };
	if (tool_rank_job_fork(&job, e))
		return -1;
	memcpy(t->table, x->table, sizeof t->table);
	for (int a = 0; algorithm(a); a++) {
		*x = (struct cross){ .name = algorithm(a) };
		job.comm.algorithm = x->name;
		if (tool_rank_job_fork(&job, e))
			return -1;
		memcpy(t->seconds[a], x->seconds, sizeof x->seconds);
	}
	return 0;
}

static bool fits_any(const struct times *t, int a)
{
	for (int i = 0; i < SIZES; i++)
		if (t->seconds[a][i] > 0)
			return true;
	return false;
}

/* Returns the fastest algorithm. `now` is kept until another one is clearly faster. */
static int fastest(const struct times *t, int size, int now)
{
	int best = t->table[size];
	for (int a = 0; algorithm(a); a++)
		if (t->seconds[a][size] > 0 && t->seconds[a][size] < t->seconds[best][size])
			best = a;
	double limit = t->seconds[now][size] * CLEARLY;
	return limit > 0 && t->seconds[best][size] > limit ? now : best;
}

static void print_table(const struct times *t)
{
	printf("# %10s", "bytes");
	for (int a = 0; algorithm(a); a++)
		if (fits_any(t, a))
			printf(" %11s", algorithm(a));
	printf("   (us; * the table's choice)\n");
	for (int i = 0; i < SIZES; i++) {
		printf("  %10zu", size_of(i));
		for (int a = 0; algorithm(a); a++) {
			double s = t->seconds[a][i];
			if (s > 0)
				printf(" %10.2f%c", s * 1e6, a == t->table[i] ? '*' : ' ');
			else if (fits_any(t, a))
				printf(" %10s ", "-");
		}
		printf("\n");
	}
}

/* Returns the size between sizes i and i + 1 at which two algorithms take the same time. The
 * logarithms of the times are interpolated linearly. */
static double meeting(const struct times *t, int before, int after, int i)
{
	double here = log(t->seconds[after][i] / t->seconds[before][i]),
	       there = log(t->seconds[before][i + 1] / t->seconds[after][i + 1]);
	/* one of the two algorithms cannot run at both sizes */
	if (!isfinite(here) || !isfinite(there) || here + there <= 0)
		return (double)size_of(i + 1);
	return (double)size_of(i) * pow(STEP, here / (here + there));
}

static void print_crossovers(const struct times *t)
{
	int now = fastest(t, 0, t->table[0]);
	printf("# fastest: %s", algorithm(now));
	for (int i = 0; i + 1 < SIZES; i++) {
		int next = fastest(t, i + 1, now);
		if (next != now)
			printf(", from %.0f B on %s", meeting(t, now, next, i), algorithm(next));
		now = next;
	}
	printf("\n");
	fflush(stdout);
}

int bench_crossovers(const struct rank_job *job, struct err *e)
{
	struct times t = { 0 };
	struct cross *x = mmap(NULL, sizeof *x, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			       -1, 0);
	if (x == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "no memory for the calibration");
	int rc = measure(*job, x, &t, e);
	munmap(x, sizeof *x);
	if (rc)
		return -1;
	printf("# all_reduce of %d ranks over %s by each algorithm\n", job->ranks,
	       job->comm.backend);
	print_table(&t);
	print_crossovers(&t);
	return 0;
}
