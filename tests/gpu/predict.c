#include "tests/gpu/predict.h"

#include "agent/tools/bench_chip.h"
#include "kernels/chip.h"
#include "plan/cost/devices.h"
#include "plan/cost/engine.h"
#include "plan/cost/step.h"
#include "plan/spec/speeds.h"
#include "topo/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int predict_open(const char *backend_name, struct node_kind *k, struct err *e)
{
	struct backend_chip chip;
	memset(k, 0, sizeof *k);
	if (strncmp(backend_name, "cuda", 4))
		return err_set(e, ERR_UNSUPPORTED,
			       "the planner's constants are those of GPUs, not of %s",
			       backend_name);
	if (backend_cuda_chip(0, &chip, e))
		return -1;
	const struct gpu_model *m = topo_gpu_of_driver_name(chip.name);
	if (m)
		topo_gpu_fill(m, k);
	else
		snprintf(k->device, sizeof k->device, "%s", chip.name);
	k->devices = 1;
	k->device_memory = chip.memory;
	return 0;
}

int predict_calibrate(struct node_kind *k, double seconds, int64_t elements, struct err *e)
{
	const struct bench_chip b = { .seconds = seconds, .elements = elements };
	struct measured_chip *chip = calloc(1, sizeof *chip);
	struct backend_chip is;
	if (!chip)
		return err_set(e, ERR_NOMEM, "no memory for a calibration");
	if (backend_cuda_chip(0, &is, e) || bench_chip_ops(&b, 0, MEASURED_BF16, chip, e)) {
		free(chip);
		return -1;
	}
	snprintf(chip->name, sizeof chip->name, "%s", is.name);
	chip->units = is.units;
	free(k->chip);
	k->chip = chip;
	return 0;
}

/* --- A step ------------------------------------------------------------------------------- */

int predict_step(const struct node_kind *k, const struct job *job, double *seconds, struct err *e)
{
	struct model_shape shape;
	struct layout alone = layout_of(job, 1);
	struct stage stage;
	struct cost_units units;
	struct group_links links[GROUP_KINDS];
	struct cost_machine machine;
	struct plan_time time;
	shape_of_job(job, &shape);
	if (speeds_stages(job, &shape, &alone, &stage, e))
		return -1;
	for (int i = 0; i < GROUP_KINDS; i++)
		links[i] = (struct group_links){ .ranks = 1, .nodes = 1, .per_node = 1 };
	cost_machine_of(k, job->precision.dtype != DTYPE_FP32, 1, &machine);
	cost_machine_links(&machine, links);
	cost_units_of(&shape, &alone, 0, &units);
	const struct cost_case c = { .job = job,
				     .shape = &shape,
				     .layout = &alone,
				     .stages = &stage,
				     .units = &units,
				     .group_links = links,
				     .machine = &machine,
				     .engine = cost_engines[job->plan.engine],
				     .micros = (int)(job->batch.global / job->batch.micro),
				     .node_replicas = 1 };
	cost_step(&c, &time);
	*seconds = time.total;
	return 0;
}

/* --- An op -------------------------------------------------------------------------------- */

/* By the beginning of an op's name; the first row that matches counts. Others move memory. */
static const struct {
	const char *name;
	enum rate_class class;
} ops[] = {
	{ "linear_fwd", RATE_PRODUCT_FWD },
	{ "fp8_product", RATE_PRODUCT_FWD },
	{ "linear_gelu_fwd", RATE_PRODUCT_FWD },
	{ "linear_bwd_input", RATE_PRODUCT_INPUT },
	{ "linear_gelu_bwd", RATE_PRODUCT_INPUT },
	{ "linear_bwd_weight", RATE_PRODUCT_WEIGHT },
	{ "attention_fwd", RATE_ATTENTION_FWD },
	{ "attention_bwd", RATE_ATTENTION_BWD },
	{ "layernorm_fwd", RATE_NORM_FWD },
	{ "layernorm_bwd", RATE_NORM_BWD },
	{ "rmsnorm_fwd", RATE_NORM_FWD },
	{ "rmsnorm_bwd", RATE_NORM_BWD },
	{ "gelu_fwd", RATE_GELU_FWD },
	{ "gelu_bwd", RATE_GELU_BWD },
	{ "swiglu_fwd", RATE_SWIGLU_FWD },
	{ "swiglu_bwd", RATE_SWIGLU_BWD },
	{ "rope", RATE_ROPE },
	{ "xent", RATE_XENT },
	{ "sum_rows", RATE_SUM_ROWS },
	{ "adamw", RATE_OPTIMIZER },
};
enum { OPS = sizeof ops / sizeof *ops, WIDTH = 2 };

static enum rate_class class_of(const char *op)
{
	int i = 0;
	while (i < OPS && strncmp(op, ops[i].name, strlen(ops[i].name)))
		i++;
	return i < OPS ? ops[i].class : RATE_MOVED;
}

double predict_row(const struct node_kind *k, const struct kernel_row *r, const char *op,
		   double bytes)
{
	const bool eight = !strncmp(op, "fp8_product", 11);
	enum rate_class class = class_of(op);
	struct cost_machine m;
	if (eight && r->d.with) /* with fp32 output */
		class = RATE_PRODUCT_WEIGHT;
	cost_machine_of(k, true, 1, &m);
	if (class <= RATE_PRODUCT_WEIGHT)
		return cost_machine_product(&m, class, (double)r->d.n, (double)r->d.c,
					    (double)r->d.d, eight ? 1 : WIDTH);
	if (class <= RATE_ATTENTION_BWD)
		return cost_machine_attention(&m, ATTENTION_MUSTER, class, r->flops,
					      (double)r->d.s.q_len, (double)r->d.s.dim);
	return cost_machine_seconds(&m, class, bytes);
}
