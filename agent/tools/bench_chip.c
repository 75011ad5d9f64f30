#include "agent/tools/bench_chip.h"

#include "agent/tools/rank_job.h"
#include "base/clock.h"
#include "kernels/chip.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- One device --------------------------------------------------------------------------- */

static void set_identity(const struct backend_chip *c, int devices, struct measured_chip *out)
{
	time_t now = time(NULL);
	struct tm utc;
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "%s", c->name);
	strftime(out->date, sizeof out->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	out->units = c->units;
	out->capability = c->capability;
	out->memory = c->memory;
	out->devices = devices;
	out->driver = c->driver;
	out->cuda = c->cuda;
	out->cublaslt = c->cublaslt;
	out->nccl = c->nccl;
}

static double best(const struct measured_chip *c, enum measured_storage storage,
		   enum rate_class class)
{
	double most = 0;
	for (int i = 0; i < c->n_ops; i++)
		if (c->ops[i].storage == storage && c->ops[i].class == class)
			most = fmax(most, topo_measured_chip_work(&c->ops[i]) / c->ops[i].seconds);
	return most;
}

static void print_storage(const struct measured_chip *c, enum measured_storage storage)
{
	printf("%-24.24s %7s %16.1f %16.1f %12.1f\n", c->name, topo_measured_storage_word(storage),
	       best(c, storage, RATE_PRODUCT_FWD) / 1e12,
	       best(c, storage, RATE_ATTENTION_FWD) / 1e12, best(c, storage, RATE_MOVED) / 1e9);
	fflush(stdout);
}

static int each_storage(const struct bench_chip *b, int device, struct measured_chip *out,
			struct err *e)
{
	for (int storage = 0; storage < MEASURED_STORAGES; storage++) {
		int before = out->n_ops;
		if (bench_chip_ops(b, device, (enum measured_storage)storage, out, e))
			return -1;
		if (out->n_ops > before)
			print_storage(out, (enum measured_storage)storage);
	}
	return 0;
}

/* Bytes/s of side copies in one direction: the best of some. */
static int copy_rate(struct backend *k, void *to, const void *from, size_t bytes, double *rate,
		     struct err *e)
{
	enum { ROUNDS = 5 };
	*rate = 0;
	for (int i = 0; i < ROUNDS; i++) {
		double since = clock_s();
		backend_side_wait(k, backend_side_copy(k, to, from, bytes));
		if (backend_sync(k, e))
			return -1;
		*rate = fmax(*rate, (double)bytes / (clock_s() - since));
	}
	return 0;
}

static int host_copies(const struct bench_chip *b, int device, struct measured_chip *out,
		       struct err *e)
{
	struct backend *k;
	size_t bytes = (size_t)b->elements * sizeof(float);
	if (backend_open_device("cuda", 1, device, &k, e))
		return -1;
	void *there = backend_alloc(k, bytes), *here = backend_host_alloc(k, bytes);
	int rc = there && here ? 0
			       : err_set(e, ERR_NOMEM,
					 "no memory for copies of %zu bytes; close other programs",
					 bytes);
	rc = rc || copy_rate(k, here, there, bytes, &out->to_host, e) ||
			     copy_rate(k, there, here, bytes, &out->from_host, e)
		     ? -1
		     : 0;
	if (here)
		backend_host_free(k, here);
	if (there)
		backend_free(k, there);
	backend_close(k);
	if (!rc)
		printf("%-24.24s copies to the host %.1f GB/s, from it %.1f GB/s\n", out->name,
		       out->to_host / 1e9, out->from_host / 1e9);
	return rc;
}

/* --- All devices -------------------------------------------------------------------------- */

static int index_of(const struct bench_chip *b, const char *name)
{
	int i = 0;
	while (i < b->n && strcmp(b->chips[i].name, name))
		i++;
	return i;
}

/* Measures the first device of each model. */
static int each_model(struct comm *world, void *arg, struct err *e)
{
	struct bench_chip *b = arg;
	struct backend_chip chip;
	(void)world;
	if (backend_cuda_count(&b->devices, e))
		return -1;
	printf("chip                     storage  products TF/s  attention TF/s  memory GB/s\n");
	for (int device = 0; device < b->devices; device++) {
		if (backend_cuda_chip(device, &chip, e))
			return -1;
		if (index_of(b, chip.name) < b->n || b->n == BENCH_CHIPS_MAX)
			continue;
		struct measured_chip *out = &b->chips[b->n];
		set_identity(&chip, b->devices, out);
		if (each_storage(b, device, out, e) || host_copies(b, device, out, e))
			return -1;
		b->n++;
	}
	return 0;
}

static int exchanges(struct comm *world, void *arg, struct err *e)
{
	struct bench_chip *b = arg;
	return bench_chip_exchanges(world, b, &b->chips[0], e);
}

int bench_chip_run(struct bench_chip *b, struct err *e)
{
	struct rank_job job = { .ranks = 1,
				.comm = { .interface = "", .backend = "auto", .timeout_s = 120 },
				.work = each_model,
				.arg = b };
	b->n = b->devices = 0;
	if (tool_rank_job_fork(&job, e))
		return -1;
	/* Exchanges between different models are those of neither. */
	if (b->n != 1 || b->devices < 2)
		return 0;
	job.ranks = b->devices < BENCH_DEVICES_MAX ? b->devices : BENCH_DEVICES_MAX;
	job.work = exchanges;
	return tool_rank_job_fork(&job, e);
}

static int count_devices(struct comm *world, void *arg, struct err *e)
{
	int count;
	(void)world;
	(void)arg;
	return backend_cuda_count(&count, e);
}

int bench_chip_look(struct err *e)
{
	const struct rank_job job = {
		.ranks = 1,
		.comm = { .interface = "", .backend = "auto", .timeout_s = 120 },
		.work = count_devices,
	};
	return tool_rank_job_fork(&job, e);
}
