#include "agent/engine/pipeline/rank.h"

#include "agent/engine/parallel/device.h"
#include "base/clock.h"
#include "base/log.h"
#include "plan/spec/model/zero.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_schedule(struct engine *g, struct err *e)
{
	const struct rank_view *v = g->view;
	enum job_schedule kind = v->job->parallel.schedule;
	if (schedule_build(kind, &v->layout, v->batch.micros, &g->schedule, e) ||
	    schedule_check(&g->schedule, e) ||
	    schedule_build_forwards(&v->layout, v->batch.micros, &g->forwards, e) ||
	    schedule_check(&g->forwards, e) ||
	    schedule_order_messages(&g->schedule, &g->schedule, v->at.pp, &g->messages, e) ||
	    schedule_order_messages(&g->forwards, &g->schedule, v->at.pp, &g->forwards_messages, e))
		return -1;
	g->timeline = (struct timeline){ .ranks = v->layout.pp, .chunks = v->layout.chunks };
	return pipeline_slots_open(g, e);
}

/* The backend's name is opt->backend_name with a suffix for the storage type. */
static int open_backend(struct engine *g, const struct engine_options *opt, struct err *e)
{
	static const char *const suffix[] = {
		[DTYPE_FP32] = "", [DTYPE_BF16] = ":bf16", [DTYPE_FP16] = ":fp16"
	};
	char name[32];
	snprintf(name, sizeof name, "%s%s", opt->backend_name,
		 suffix[g->view->job->precision.dtype]);
	if (backend_open_device(name, opt->threads, opt->device, &g->backend, e))
		return -1;
	backend_allow_any_order(g->backend,
				g->view->job->job.deterministic == DETERMINISTIC_ANY_ORDER);
	if (g->view->job->precision.fp8 != FP8_OFF && !backend_on_host(g->backend) &&
	    !backend_fp8(g->backend) && comm_rank(opt->world) == 0)
		log_warn("precision.fp8 = %s: this GPU has no 8-bit matrix products (compute "
			 "capability 8.9 and later have them) and computes them slowly; use off",
			 job_word(g->view->job, offsetof(struct job, precision.fp8)));
	return 0;
}

static int open_groups(struct engine *g, const struct engine_options *opt, struct err *e)
{
	static const enum comm_type types[] = {
		[DTYPE_FP32] = COMM_F32, [DTYPE_BF16] = COMM_BF16, [DTYPE_FP16] = COMM_F16
	};
	struct comm_device_options device = { .index = opt->device, .backend = opt->transport };
	bool on_device = !backend_on_host(g->backend) && comm_size(opt->world) > 1;
	const struct groups_options o = {
		.view = g->view,
		.node = opt->node,
		.device = on_device ? &device : NULL,
		.stream = backend_stream(g->backend),
	};
	enum comm_type type = types[g->view->job->precision.dtype];
	if ((on_device && parallel_device_table(&device.device, e)) ||
	    parallel_groups_open(opt->world, &o, &g->groups, e) ||
	    (pipeline_device_world(g) && parallel_memory_open(&device, &g->memory, e)))
		return -1;
	tp_init(&g->tp, g->groups.tp, g->view->job->parallel.sp, g->view->job->parallel.overlap,
		type);
	cp_init(&g->cp, g->groups.cp, g->groups.cp_values, type);
	ep_init(&g->ep, g->groups.ep, g->groups.ep_values, g->view->shape.experts, type);
	g->pipe = (struct pp){ .groups = &g->groups, .type = type };
	return 0;
}

/* Memory that the groups' library reaches; NULL: there is none. */
static const struct backend_source *memory_of(const struct engine *g)
{
	return g->memory.of ? &g->memory : NULL;
}

static bool has_replicas(const struct param_store_groups *s)
{
	return s->shard || s->copies || s->expert_shard || s->expert_copies;
}

static int open_store(struct engine *g, const struct engine_options *opt, struct err *e)
{
	const struct job *job = g->view->job;
	if (catalogue_build(&g->view->shape, &g->view->share, &g->catalogue, e))
		return -1;
	const struct param_store_options o = {
		.catalogue = &g->catalogue,
		.backend = g->backend,
		.groups = g->groups.store,
		.memory = has_replicas(&g->groups.store) || g->tp.comm ? memory_of(g) : NULL,
		.zero = (int)job->parallel.zero,
		.overlap = job->parallel.overlap,
		.stochastic = job->precision.stochastic_rounding,
		.seed = job->job.seed,
		.spill_dir = job->offload.optimizer ? opt->spill_dir : NULL,
	};
	return param_store_open(&o, &g->store, e) || param_store_register(g->store, e) ? -1 : 0;
}

_Static_assert(sizeof(struct step_numbers) == ZERO_STEP_NUMBERS, "as the plan says");

static int open_numbers(struct engine *g, struct err *e)
{
	g->numbers = &g->numbers_here;
	if (backend_on_host(g->backend))
		return 0;
	g->numbers = backend_alloc(g->backend, sizeof *g->numbers);
	g->numbers_read = backend_host_alloc(g->backend, sizeof *g->numbers_read);
	return g->numbers && g->numbers_read
		       ? 0
		       : err_set(e, ERR_NOMEM,
				 "no memory for the numbers of a step; lower batch.micro, or raise "
				 "the limit of locked memory");
}

static int open_model(struct engine *g, const struct engine_options *opt, struct err *e)
{
	if (open_store(g, opt, e) || open_numbers(g, e))
		return -1;
	const struct model_options m = {
		.view = g->view,
		.catalogue = &g->catalogue,
		.slots = g->schedule.rows[g->view->at.pp].slots.live,
		.store = g->store,
		.tp = &g->tp,
		.cp = &g->cp,
		.ep = &g->ep,
		.world = g->groups.root,
		.backend = g->backend,
		.numbers = g->numbers,
		.spill_dir = opt->spill_dir,
		.memory = g->tp.comm ? memory_of(g) : NULL,
	};
	if (model_open(&m, &g->model, e))
		return -1;
	g->pipe.count = (size_t)model_boundary(g->model);
	return 0;
}

int pipeline_open(const struct engine_options *opt, struct engine **out, struct err *e)
{
	struct engine *g = calloc(1, sizeof *g);
	if (!g)
		return err_set(e, ERR_NOMEM, "pipeline: no memory; close other programs");
	g->view = opt->view;
	g->phase = opt->phase;
	g->phase_arg = opt->phase_arg;
	if (open_schedule(g, e) || open_backend(g, opt, e) || open_groups(g, opt, e) ||
	    open_model(g, opt, e)) {
		pipeline_close(g);
		return -1;
	}
	*out = g;
	return 0;
}

void pipeline_close(struct engine *g)
{
	if (!g)
		return;
	/* A device may still execute transfers that nobody waits for. Closing the groups ends them;
	 * only then may memory be freed. */
	pipeline_wait_messages(g, NULL);
	if (g->store)
		param_store_drain(g->store);
	model_forget_passes(g->model);
	parallel_groups_close(&g->groups);
	model_close(g->model);
	param_store_close(g->store);
	catalogue_free(&g->catalogue);
	if (g->numbers && g->numbers != &g->numbers_here)
		backend_free(g->backend, g->numbers);
	if (g->numbers_read)
		backend_host_free(g->backend, g->numbers_read);
	backend_close(g->backend);
	parallel_memory_close(&g->memory);
	schedule_messages_free(&g->messages);
	schedule_messages_free(&g->forwards_messages);
	schedule_free(&g->schedule);
	schedule_free(&g->forwards);
	pipeline_slots_close(g);
	timeline_free(&g->timeline);
	free(g);
}

const struct model_shape *pipeline_shape(const struct engine *g)
{
	return &g->view->shape;
}

const struct catalogue *pipeline_catalogue(const struct engine *g)
{
	return &g->catalogue;
}

struct param_store *pipeline_store(struct engine *g)
{
	return g->store;
}

struct backend *pipeline_backend(struct engine *g)
{
	return g->backend;
}

/* Means of n sums over the global batch's tokens. All tp ranks have the same sums, which count
 * once. */
static int reduce_losses(struct engine *g, const double *local, double *means, int n, struct err *e)
{
	double sums[LOSSES] = { 0 };
	for (int i = 0; i < n && pipeline_losses_count(g); i++)
		sums[i] = local[i];
	if (g->phase)
		g->phase("share-loss", g->phase_arg);
	double start = clock_s();
	if (layout_world(&g->view->layout) > 1 &&
	    comm_all_reduce(g->groups.world, sums, sums, (size_t)n, COMM_F64, COMM_SUM, e))
		return -1;
	*(g->view->layout.pp > 1 ? &g->times.pp : &g->times.dp) += clock_s() - start;
	for (int i = 0; i < n; i++)
		means[i] = sums[i] / (double)g->view->global_tokens;
	return 0;
}

/* means: [LOSSES] */
static void set_losses(struct engine *g, double loss, const double *means)
{
	g->losses =
		(struct engine_losses){ .known = true,
					.cross_entropy = loss - means[LOSS_BALANCE] - means[LOSS_Z],
					.balance = means[LOSS_BALANCE],
					.z = means[LOSS_Z] };
}

/* The parts have an all-reduce of their own, so that the bits of the loss do not depend on it. */
static int reduce_loss_parts(struct engine *g, const double *local, double loss, struct err *e)
{
	double parts[LOSSES] = { 0 };
	if (!g->view->shape.experts)
		return 0;
	if (reduce_losses(g, local + LOSS_BALANCE, parts + LOSS_BALANCE, LOSSES - LOSS_BALANCE, e))
		return -1;
	set_losses(g, loss, parts);
	return 0;
}

/* A rank that fails alone leaves other ranks waiting for messages that it will not send. The abort
 * ends their waits. */
static int run_or_abort(struct engine *g, bool backward, const struct engine_batch *b,
			struct err *e)
{
	if (!pipeline_run_row(g, backward, b, e))
		return 0;
	if (layout_world(&g->view->layout) > 1)
		comm_abort(g->groups.world, e->text);
	return -1;
}

static int begin_step(struct engine *g, struct err *e)
{
	if (!model_step_begin(g->model, e))
		return 0;
	if (layout_world(&g->view->layout) > 1)
		comm_abort(g->groups.world, e->text);
	return -1;
}

/* Waiting for a device counts as compute. */
static int read_loss(struct engine *g, double *local, struct err *e)
{
	double start = clock_s();
	int rc = model_loss(g->model, local, e);
	g->times.compute += clock_s() - start;
	return rc;
}

/* Sets the scales of the step's gradients if they have changed. */
static void set_scale(struct engine *g, double loss_scale)
{
	const float scale = (float)(loss_scale / (double)g->view->global_tokens);
	if (g->scale_there == loss_scale)
		return;
	backend_put(g->backend, &g->numbers->logit_scale, &scale, sizeof scale);
	backend_put(g->backend, &g->numbers->loss_scale, &loss_scale, sizeof loss_scale);
	g->scale_there = loss_scale;
}

struct step_numbers *pipeline_numbers(struct engine *g)
{
	return g->numbers;
}

struct step_numbers *pipeline_numbers_read(struct engine *g)
{
	return g->numbers_read;
}

int pipeline_passes(struct engine *g, const struct engine_batch *b, struct err *e)
{
	if (!b->scaled)
		set_scale(g, b->loss_scale);
	else
		g->scale_there = 0;
	if (begin_step(g, e))
		return -1;
	param_store_begin(g->store);
	return run_or_abort(g, true, b, e);
}

int pipeline_loss(struct engine *g, double *loss, struct err *e)
{
	double local[LOSSES];
	if (read_loss(g, local, e))
		return -1;
	g->local_loss = local[LOSS_ALL];
	if (g->view->job->parallel.sync == SYNC_SERVER) {
		*loss = local[LOSS_ALL] / (double)g->view->global_tokens;
		return 0;
	}
	return reduce_losses(g, local, loss, 1, e) || reduce_loss_parts(g, local, *loss, e) ? -1
											    : 0;
}

const double *pipeline_losses_there(const struct engine *g)
{
	return model_losses(g->model);
}

bool pipeline_losses_count(const struct engine *g)
{
	return g->view->at.tp == 0;
}

void pipeline_loss_added(struct engine *g, const struct step_numbers *n, double *loss)
{
	double means[LOSSES];
	for (int i = 0; i < LOSSES; i++)
		means[i] = n->sums[i] / (double)g->view->global_tokens;
	g->local_loss = n->own_loss;
	*loss = means[LOSS_ALL];
	if (g->view->shape.experts)
		set_losses(g, *loss, means);
}

int pipeline_step(struct engine *g, const struct engine_batch *b, double *loss, struct err *e)
{
	return pipeline_passes(g, b, e) || pipeline_loss(g, loss, e) ? -1 : 0;
}

int pipeline_check(struct engine *g, const struct engine_batch *b, double *loss,
		   struct model_finding *found, struct err *e)
{
	if (model_check_begin(g->model, e))
		return -1;
	for (int c = 0; c < g->view->layout.chunks; c++)
		g->chunk_states[c].next_slot = g->chunk_states[c].began_at;
	int rc = pipeline_step(g, b, loss, e);
	model_check_end(g->model, found);
	return rc;
}

struct comm *pipeline_device_world(const struct engine *g)
{
	struct comm *root = g->groups.root;
	return root && root != g->groups.world && strcmp(comm_backend(root), "staged") ? root
										       : NULL;
}

struct model *pipeline_model(struct engine *g)
{
	return g->model;
}

double pipeline_local_loss(const struct engine *g)
{
	return g->local_loss;
}

int pipeline_eval(struct engine *g, const struct engine_batch *b, double *loss, struct err *e)
{
	double local[LOSSES];
	if (run_or_abort(g, false, b, e) || read_loss(g, local, e))
		return -1;
	return reduce_losses(g, local, loss, 1, e);
}

const struct timeline *pipeline_timeline(const struct engine *g)
{
	return &g->timeline;
}

void pipeline_losses(const struct engine *g, struct engine_losses *out)
{
	*out = g->losses;
}

void pipeline_times(const struct engine *g, struct engine_times *out)
{
	*out = g->times;
}

int64_t pipeline_peak_bytes(const struct engine *g)
{
	return (int64_t)backend_peak(g->backend);
}
