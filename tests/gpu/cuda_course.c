#include "tests/gpu/cuda_course.h"

#include "agent/engine/parallel/device.h"
#include "agent/engine/train/agree_choices.h"
#include "plan/plan.h"
#include "plan/spec/speeds.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include "kernels/cuda/dnn.h"
#include "tests/gpu/doubles/blaslt.h"
#include "tests/gpu/doubles/runtime.h"

#ifdef HAVE_CUDNN
#include "tests/gpu/doubles/cudnn.h"
#endif

enum { STAGES_MAX = 8 };

/* The memory that the plan predicts for the first rank. Without a run folder, nothing is measured to
 * choose algorithms. */
static double predict(struct course *c)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	struct model_shape shape;
	struct stage stages[STAGES_MAX];
	struct err e = ERR_INIT;
	struct plan_rank r = { .threads = 1, .node_replicas = layout_world(&l) };
	shape_of_job(&c->job, &shape);
	if (speeds_stages(&c->job, &shape, &l, stages, &e))
		return 0;
	int micros = (int)(c->job.batch.global / c->job.batch.micro / l.dp);
	enum job_deterministic given = c->job.job.deterministic;
	if (!c->run_dir)
		c->job.job.deterministic = DETERMINISTIC_YES;
	plan_memory_rank(&c->job, &shape, &l, micros, stages, false, &r);
	c->job.job.deterministic = given;
	return r.total;
}

static int attend_late(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	double loss = 0, norm = 0;
	trainee_reading = TRAIN_READS_LATE;
	int rc = trainee_open(c->model, &c->job, world, c->backend_name, 1, &t, e);
	for (int step = 0; !rc && step <= c->to; step++) {
		rc = step < c->to ? trainee_step(&t, step, &loss, &norm, e)
				  : trainee_settle(&t, &loss, &norm, e);
		if (!rc && step && comm_rank(world) == 0) {
			c->loss[step - 1] = loss;
			c->norm[step - 1] = norm;
		}
	}
	if (!rc)
		rc = trainee_eval(&t, c->to, &loss, e);
	if (!rc && comm_rank(world) == 0)
		c->eval = loss;
	trainee_close(&t);
	return rc;
}

/* Makes one algorithm of the double's the fastest on this rank. */
static void set_speeds(const struct course *c, struct comm *world)
{
	if (!c->run_dir)
		return;
	double_virtual_clock = true;
	double_kernel_seconds = 1e-6; /* so that cuDNN is faster, and fastest in any order */
#ifdef HAVE_CUDNN
	double_cudnn_seconds = 1e-8;
#endif
	double_blas.algorithms = BLAS_ALGORITHMS;
	for (int i = 0; i < BLAS_ALGORITHMS; i++)
		double_blas.seconds[i] = i == c->fastest[comm_rank(world) != 0] ? 5e-6 : 10e-6;
}

static int64_t waits_now(void)
{
	struct double_calls calls = double_calls();
	return calls.stream_waits + calls.event_waits;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	struct train_choices *choices = NULL;
	double loss, norm, eval;
	set_speeds(c, world);
	int rc = trainee_resume(c->model, &c->job, world, c->backend_name, 1,
				c->from ? c->dir : NULL, &t, e);
	if (!rc && c->run_dir)
		rc = train_choices_begin(world, &t.view, pipeline_backend(t.engine), c->run_dir,
					 c->from, &choices, e);
	for (int step = c->from; !rc && step < c->to; step++) {
		int64_t before = double_bytes_zeroed(), waits = waits_now();
		rc = trainee_step(&t, step, &loss, &norm, e) || train_choices_agree(&choices, e)
			     ? -1
			     : 0;
		if (!rc && comm_rank(world) == 0) {
			c->loss[step] = loss;
			c->norm[step] = norm;
			c->zeroed = double_bytes_zeroed() - before;
			c->waits = waits_now() - waits;
			c->gradients = param_store_owned(pipeline_store(t.engine)) *
				       (int64_t)sizeof(float);
		}
	}
	if (!rc && !c->from && c->dir)
		rc = trainee_save(&t, c->dir, c->to, e);
	if (!rc)
		rc = trainee_eval(&t, c->to, &eval, e);
	if (!rc && comm_rank(world) == 0) {
		c->eval = eval;
		c->predicted = predict(c);
		c->taken = (double)pipeline_peak_bytes(t.engine);
		c->products = double_blas.runs;
#ifdef HAVE_CUDNN
		c->by_cudnn = double_cudnn.backward;
		c->in_any_order = double_cudnn.any_order;
#endif
	}
	train_choices_close(choices);
	trainee_close(&t);
	return rc;
}

struct course *course_of(const struct cell *cell, const char *backend_name, const char *more)
{
	const char *words[3 * COURSE_WORDS] = { NULL };
	struct err e = ERR_INIT;
	struct course *c = world_shared(sizeof *c);
	bool device = !strcmp(backend_name, "cuda");
	int n = 0;
	for (int i = 0; cell->math[i]; i++)
		words[n++] = cell->math[i];
	for (int i = 0; device && cell->how[i]; i++)
		words[n++] = cell->how[i];
	if (device)
		words[n++] = "job.device=cuda";
	words[n] = more;
	*c = (struct course){ .model = cell->model,
			      .backend_name = backend_name,
			      .to = cell->steps };
	if (trainee_job(cell->model, words, &c->job, &e))
		fail_msg("%s: %s", cell->name, e.text);
	return c;
}

void course_drop(struct course *c)
{
	world_unshared(c, sizeof *c);
}

void course_go(struct course *c)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	assert_int_equal(world_run(layout_world(&l), c->late ? attend_late : attend, c), 0);
}

bool course_same_bits(const struct course *a, const struct course *b, int from)
{
	size_t n = (size_t)(a->to - from) * sizeof a->loss[0];
	return !memcmp(a->loss + from, b->loss + from, n) &&
	       !memcmp(a->norm + from, b->norm + from, n) && a->eval == b->eval;
}

#endif
