#include "agent/engine/model/model.h"

#include "base/philox.h"

#include <math.h>
#include <pthread.h>

/* Fills elements [first, first + count) of the box row by row: each row of the box is contiguous
 * in the whole tensor. */
static void fill_normal(const struct param *p, double std, uint64_t seed, int64_t first,
			int64_t count, float *out)
{
	struct philox_key key = philox_key(seed, PHILOX_INIT, philox_item(p->name));
	int64_t width = p->hi[1] - p->lo[1];

	for (int64_t done = 0; done < count;) {
		int64_t row = (first + done) / width, column = (first + done) % width;
		int64_t n = width - column < count - done ? width - column : count - done;
		philox_normal(key, (uint64_t)((p->lo[0] + row) * p->shape[1] + p->lo[1] + column),
			      (size_t)n, out + done);
		done += n;
	}
	for (int64_t i = 0; i < count; i++)
		out[i] *= (float)std;
}

/* Sets one contiguous range of the box. */
static void init_run(const struct param *p, const struct model_shape *shape, uint64_t seed,
		     int64_t first, int64_t count, float *out)
{
	const double std[] = { [INIT_NORMAL] = shape->init_std,
			       [INIT_NORMAL_SCALED] = shape->init_std /
						      sqrt(2.0 * (double)shape->layers) };
	if (p->init == INIT_NORMAL || p->init == INIT_NORMAL_SCALED) {
		fill_normal(p, std[p->init], seed, first, count, out);
		return;
	}
	for (int64_t i = 0; i < count; i++)
		out[i] = p->init == INIT_ONE;
}

/* --- Threads --- */

/* THREAD_MIN: a thread with fewer elements costs more to start than it saves. TEAM_MAX: the
 * most threads. */
enum { THREAD_MIN = 1 << 15, TEAM_MAX = 256 };

/* The range of one thread. */
struct lane {
	pthread_t thread;
	const struct param *param;
	const struct model_shape *shape;
	uint64_t seed;
	int64_t first, count;
	float *out;
};

static void *run_lane(void *arg)
{
	const struct lane *l = arg;
	init_run(l->param, l->shape, l->seed, l->first, l->count, l->out);
	return NULL;
}

static int team_of(const struct param *p, int64_t count, int threads)
{
	bool drawn = p->init == INIT_NORMAL || p->init == INIT_NORMAL_SCALED;
	int64_t most = drawn ? count / THREAD_MIN : 1;
	if (most > threads)
		most = threads;
	return most < 1 ? 1 : most > TEAM_MAX ? TEAM_MAX : (int)most;
}

void model_init(const struct param *p, const struct model_shape *shape, uint64_t seed,
		int64_t first, int64_t count, int threads, float *out)
{
	struct lane lanes[TEAM_MAX];
	int team = team_of(p, count, threads), started = 1;
	for (int i = 0; i < team; i++) {
		int64_t lo = count * i / team, hi = count * (i + 1) / team;
		lanes[i] = (struct lane){ .param = p,
					  .shape = shape,
					  .seed = seed,
					  .first = first + lo,
					  .count = hi - lo,
					  .out = out + lo };
	}
	while (started < team &&
	       !pthread_create(&lanes[started].thread, NULL, run_lane, &lanes[started]))
		started++;
	/* The caller computes the first range, and those whose threads could not be started. */
	run_lane(&lanes[0]);
	for (int i = started; i < team; i++)
		run_lane(&lanes[i]);
	for (int i = 1; i < started; i++)
		pthread_join(lanes[i].thread, NULL);
}
