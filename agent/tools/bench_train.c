#include "agent/tools/bench_train.h"

#include "agent/engine/optim/optim.h"
#include "agent/engine/parallel/device.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/server/server.h"
#include "agent/engine/train/state.h"
#include "agent/tools/rank_job.h"
#include "base/clock.h"
#include "base/philox.h"
#include "plan/spec/rank_view.h"
#include "plan/spec/speeds.h"

#include <stdlib.h>
#include <sys/mman.h>

/* The state of one rank. */
struct trainee {
	const struct job *job;
	struct comm *world;
	struct rank_view view;
	struct engine *engine;
	struct optim *optim;
	struct param_server *server; /* with parallel.sync = server, instead of optim */
	int32_t *inputs, *targets;
};

struct bench_train *bench_train_shared(int n)
{
	void *p = mmap(NULL, (size_t)n * sizeof(struct bench_train), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void bench_train_unshared(struct bench_train *b, int n)
{
	if (b)
		munmap(b, (size_t)n * sizeof *b);
}

/* Sets token i of the global batch. */
static void tokens(struct trainee *t, int64_t n, int64_t seq, uint32_t vocab)
{
	struct philox_key key = philox_key(t->job->job.seed, PHILOX_TEST, 0);
	for (int64_t i = 0; i < n * seq; i++) {
		uint32_t r[4];
		philox4(key, (uint64_t)(t->view.batch.first * seq + i), r);
		t->inputs[i] = (int32_t)(r[0] % vocab);
		t->targets[i] = (int32_t)(r[1] % vocab);
	}
}

static int open_batch(struct trainee *t, struct err *e)
{
	const struct model_shape *s = &t->view.shape;
	int64_t n = t->view.sequences;
	t->inputs = calloc((size_t)(n * s->seq), sizeof *t->inputs);
	t->targets = calloc((size_t)(n * s->seq), sizeof *t->targets);
	if (!t->inputs || !t->targets)
		return err_set(e, ERR_NOMEM,
			       "no memory for %lld sequences; use a smaller batch.global",
			       (long long)n);
	tokens(t, n, s->seq, (uint32_t)s->vocab);
	return 0;
}

static int open_optim(struct trainee *t, struct err *e)
{
	struct param_store *store = pipeline_store(t->engine);
	const struct optim_options o = { .backend = pipeline_backend(t->engine),
					 .store = store,
					 .job = t->job,
					 .spill_dir = ".",
					 .device_world = pipeline_device_world(t->engine),
					 .numbers = pipeline_numbers(t->engine) };
	if (optim_open(&o, &t->optim, e))
		return -1;
	const struct train_state state = { .store = store, .optim = t->optim };
	return train_state_init(&state, pipeline_shape(t->engine), t->job->job.seed, e);
}

static int open_server(struct trainee *t, const char *backend_name, struct err *e)
{
	const struct server_options o = {
		.view = &t->view,
		.catalogue = pipeline_catalogue(t->engine),
		.world = t->world,
		.backend_name = backend_name,
		.worker = pipeline_store(t->engine),
		.backend = pipeline_backend(t->engine),
	};
	if (param_server_open(&o, &t->server, e))
		return -1;
	const struct train_state state = { .store = param_server_store(t->server),
					   .optim = param_server_optim(t->server) };
	return train_state_init(&state, pipeline_shape(t->engine), t->job->job.seed, e) ||
			       param_server_start(t->server, 0, e)
		       ? -1
		       : 0;
}

static int open_rank(struct trainee *t, struct err *e)
{
	struct layout l = layout_of(t->job, (int)t->job->parallel.dp);
	int threads = speeds_threads(t->job, comm_rank(t->world));
	bool cuda = t->job->job.device == DEVICE_CUDA;
	const struct engine_options opt = {
		.view = &t->view,
		.world = t->world,
		.threads = threads ? threads : 1,
		.backend_name = cuda ? "cuda" : "cpu",
		.device = cuda ? parallel_device_of_slot(comm_rank(t->world)) : 0,
		.spill_dir = ".",
	};
	if (rank_view_init(t->job, &l, comm_rank(t->world), &t->view, e) ||
	    pipeline_open(&opt, &t->engine, e) || open_batch(t, e))
		return -1;
	return t->job->parallel.sync == SYNC_SERVER ? open_server(t, opt.backend_name, e)
						    : open_optim(t, e);
}

static void close_rank(struct trainee *t)
{
	param_server_close(t->server);
	optim_close(t->optim);
	pipeline_close(t->engine);
	rank_view_fini(&t->view);
	free(t->inputs);
	free(t->targets);
}

static int update(struct trainee *t, int64_t step, double *loss, struct err *e)
{
	double norm;
	struct server_step io = { .step = step, .loss = *loss };
	if (t->server) {
		int rc = param_server_step(t->server, &io, e);
		*loss = io.loss;
		return rc;
	}
	if (optim_grad_norm(t->optim, t->world, 1, &norm, e))
		return -1;
	return optim_step(t->optim, norm, 1, step, e) ||
			       param_store_sync_params(pipeline_store(t->engine), step + 1, e) ||
			       backend_sync(pipeline_backend(t->engine), e)
		       ? -1
		       : 0;
}

static int one_step(struct trainee *t, int64_t step, double *loss, struct plan_time *sum,
		    struct err *e)
{
	const struct engine_batch b = { .inputs = t->inputs,
					.targets = t->targets,
					.sample = t->view.batch.first,
					.loss_scale = 1 };
	struct engine_times parts;
	if (pipeline_step(t->engine, &b, loss, e))
		return -1;
	double since = clock_s(), waited = param_store_wait_seconds(pipeline_store(t->engine));
	if (update(t, step, loss, e))
		return -1;
	pipeline_times(t->engine, &parts);
	waited = param_store_wait_seconds(pipeline_store(t->engine)) - waited;
	sum->compute += parts.compute;
	sum->recompute += parts.recompute;
	sum->tp += parts.tp;
	sum->cp += parts.cp;
	sum->ep += parts.ep;
	sum->pp += parts.pp;
	sum->dp += parts.dp + waited;
	sum->optimizer += clock_s() - since - waited;
	return 0;
}

static int mean_parts(struct trainee *t, struct plan_time *sum, int64_t steps,
		      struct plan_time *out, struct err *e)
{
	if (comm_all_reduce(t->world, sum->parts, sum->parts, STEP_PART_COUNT, COMM_F64, COMM_SUM,
			    e))
		return -1;
	for (int i = 0; i < STEP_PART_COUNT; i++)
		sum->parts[i] /= (double)steps * comm_size(t->world);
	if (comm_rank(t->world) == 0)
		*out = *sum;
	return 0;
}

/* A step begins when all ranks have arrived and ends when all have finished. */
static int timed_steps(struct trainee *t, struct bench_train *b, struct err *e)
{
	struct plan_time sum = { 0 };
	for (int64_t i = 0; i < b->warmup + b->steps; i++) {
		double loss, begun;
		if (i == b->warmup)
			sum = (struct plan_time){ 0 };
		if (comm_barrier(t->world, e))
			return -1;
		begun = clock_s();
		if (one_step(t, i, &loss, &sum, e) || comm_barrier(t->world, e))
			return -1;
		if (comm_rank(t->world) == 0 && i >= b->warmup) {
			b->seconds[i - b->warmup] = clock_s() - begun;
			b->loss = loss;
		}
	}
	return mean_parts(t, &sum, b->steps, &b->parts, e);
}

static int work(struct comm *world, void *arg, struct err *e)
{
	struct bench_train *b = arg;
	struct trainee t = { .job = &b->job, .world = world };
	int rc = open_rank(&t, e) || timed_steps(&t, b, e) ? -1 : 0;
	int64_t peak = rc ? 0
			  : pipeline_peak_bytes(t.engine) +
				       (t.server ? param_server_peak_bytes(t.server) : 0);
	if (!rc && t.server)
		rc = param_server_leave(t.server, e);
	if (!rc)
		rc = comm_all_reduce(world, &peak, &peak, 1, COMM_I64, COMM_MAX, e);
	if (!rc && comm_rank(world) == 0)
		b->peak_bytes = peak;
	close_rank(&t);
	return rc;
}

int bench_train_run(struct bench_train *b, struct err *e)
{
	const struct rank_job job = {
		.ranks = b->ranks, .comm = { .timeout_s = 600 }, .work = work, .arg = b
	};
	return tool_rank_job_fork(&job, e);
}

/* The arguments of bench_train_gemm's process. */
struct gemm {
	struct bench_train *b;
	int threads;
	int64_t size;
	double seconds;
};

static int multiply(struct comm *world, void *arg, struct err *e)
{
	const struct gemm *g = arg;
	struct backend *k;
	(void)world;
	if (backend_open("cpu", g->threads, &k, e))
		return -1;
	g->b->gemm = backend_gemm_flops(k, g->size, g->seconds);
	backend_close(k);
	return g->b->gemm > 0 ? 0
			      : err_set(e, ERR_NOMEM, "no memory for matrices of %lld × %lld",
					(long long)g->size, (long long)g->size);
}

int bench_train_gemm(struct bench_train *b, int threads, int64_t size, double seconds,
		     struct err *e)
{
	struct gemm g = { b, threads, size, seconds };
	const struct rank_job job = { .ranks = 1, .work = multiply, .arg = &g };
	/* the process is forked, because ranks may be forked only before any thread starts */
	return tool_rank_job_fork(&job, e);
}
