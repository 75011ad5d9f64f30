/*
 * --calibrate: measures all-reduces in groups of 2, 4, … ranks over shared memory and over TCP, and
 * fits the planner's model of them to the times. All groups of a size run at the same time, as in a
 * training step.
 */
#include "agent/tools/bench_comm.h"
#include "agent/tools/tools.h"
#include "plan/cost/calibration.h"

#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>

enum { SAMPLES_MAX = 128 };

static const char *const backends[CALIBRATION_TRANSPORTS] = { "shm", "tcp" };

/* Is in memory that the ranks share; rank 0 writes it. */
struct notes {
	struct calibration_sample samples[SAMPLES_MAX];
	int n;
};

struct pass {
	struct bench_comm loop;
	struct notes *notes;
	int group;
};

static void note(void *arg, const struct bench_row *row)
{
	struct pass *p = arg;
	if (!p->notes || p->notes->n == SAMPLES_MAX)
		return;
	p->notes->samples[p->notes->n++] = (struct calibration_sample){
		.ranks = p->group, .bytes = (double)row->bytes, .seconds = row->in_place.median
	};
}

/* Measures groups of `size` ranks. The remaining ranks wait. */
static int one_size(struct comm *world, struct pass *p, int size, struct err *e)
{
	struct comm *group;
	int rank = comm_rank(world), whole = comm_size(world) / size * size;
	struct pass mine = { .loop = p->loop, .notes = rank == 0 ? p->notes : NULL, .group = size };
	if (comm_split(world, rank < whole ? rank / size : -1, rank, "calibration", &group, e))
		return -1;
	int rc = group ? bench_comm_loop(group, &mine.loop, note, &mine, e) : 0;
	if (!rc)
		rc = comm_barrier(world, e);
	comm_close(group);
	return rc;
}

static int measure(struct comm *world, void *arg, struct err *e)
{
	for (int size = 2; size <= comm_size(world); size *= 2)
		if (one_size(world, arg, size, e))
			return -1;
	return 0;
}

static void print_fit(const char *backend, const struct notes *notes,
		      const struct calibration_link *link)
{
	printf("# %s: alpha %.2f us, beta %.4f ns/B (%.2f GB/s), off by %.0f %% in the mean\n",
	       backend, link->alpha * 1e6, link->beta * 1e9, link->beta > 0 ? 1e-9 / link->beta : 0,
	       100 * link->error);
	printf("# %6s %10s %12s %12s\n", "ranks", "bytes", "measured us", "fitted us");
	for (int i = 0; i < notes->n; i++) {
		const struct calibration_sample *s = &notes->samples[i];
		printf("  %6d %10.0f %12.2f %12.2f\n", s->ranks, s->bytes, s->seconds * 1e6,
		       calibration_predict(link, s->ranks, s->bytes) * 1e6);
	}
	fflush(stdout);
}

static int one_transport(struct rank_job job, struct pass *p, int transport, struct calibration *c,
			 struct err *e)
{
	p->notes->n = 0;
	job.comm.backend = backends[transport];
	job.work = measure;
	job.arg = p;
	if (tool_rank_job_fork(&job, e))
		return -1;
	if (!calibration_fit(p->notes->samples, p->notes->n, &c->links[transport]))
		return err_set(e, ERR_NUMERIC,
			       "no latency and bandwidth fit the times over %s; run it again on a "
			       "quiet machine",
			       backends[transport]);
	print_fit(backends[transport], p->notes, &c->links[transport]);
	return bench_crossovers(&job, e);
}

int bench_calibrate(const struct rank_job *job, const char *file, struct err *e)
{
	char path[PATH_MAX];
	static struct calibration c; /* too large for the stack */
	if (job->ranks < 2)
		return err_set(e, ERR_USAGE, "--calibrate needs 2 ranks");
	if (calibration_begin(file, path, sizeof path, &c, e))
		return -1;
	c.ranks = job->ranks;
	struct pass p = { .loop = { .ops = 1,
				    .least = 1024,
				    .most = 4 << 20,
				    .factor = 8,
				    .type = COMM_F32,
				    .redop = COMM_SUM,
				    .seconds = 0.1,
				    .in_place = true } };
	p.notes = mmap(NULL, sizeof *p.notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (p.notes == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "no memory for the calibration");
	int rc = 0;
	for (int t = 0; t < CALIBRATION_TRANSPORTS && !rc; t++)
		rc = one_transport(*job, &p, t, &c, e);
	munmap(p.notes, sizeof *p.notes);
	if (!rc)
		rc = calibration_save(&c, path, e);
	if (!rc)
		printf("# written to %s\n", path);
	return rc;
}
