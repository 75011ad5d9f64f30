#include "agent/preflight.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/human.h"
#include "base/log.h"
#include "base/meminfo.h"
#include "base/numbers.h"
#include "base/process.h"
#include "topo/discover/gpu_state.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds: the driver needs some time to release the memory of a killed process. */
#define PATIENCE 5.0

enum { HOLDERS_SHOWN = 4 }; /* processes in a message */

/* The first finding that forbids training; the others are logged. */
struct device_finding {
	const char *object;
	char found[300], remedy[300];
};

static void note_finding(void *arg, enum gpu_level level, const char *found, const char *remedy)
{
	struct device_finding *v = arg;
	if (level == GPU_NOTE) {
		log_info("%s: %s", v->object, found);
	} else if (level == GPU_WARN) {
		log_warn("%s: %s; %s", v->object, found, remedy);
	} else if (!*v->found) {
		snprintf(v->found, sizeof v->found, "%s", found);
		snprintf(v->remedy, sizeof v->remedy, "%s", remedy);
	}
}

/* A GPU that is lost may not report its address. */
static const struct gpu_state *lost(const struct gpu_states *s)
{
	for (int i = 0; i < s->n; i++)
		if (*s->gpus[i].trouble && !*s->gpus[i].bus)
			return &s->gpus[i];
	return NULL;
}

/* Finds the GPU by its address, because Slurm may show an agent only its own GPU; otherwise by its
 * number, so that agents share GPUs if they outnumber them. */
static const struct gpu_state *find_gpu(const struct preflight *p, const struct gpu_states *s)
{
	const struct gpu_state *g = *p->bus ? topo_gpu_state_at(s, p->bus) : NULL;
	if (*p->bus)
		return g ? g : lost(s);
	return p->device >= 0 && s->n ? &s->gpus[p->device % s->n] : NULL;
}

/* The remedy, with the first processes that hold memory of the GPU. The caller frees `out`. */
static const char *holders(const struct gpu_state *g, struct buf *out)
{
	char bytes[HUMAN];
	int shown = min_int(g->n_processes, HOLDERS_SHOWN);
	if (shown <= 0)
		return "end what holds it (nvidia-smi)";
	for (int i = 0; i < shown; i++) {
		const struct gpu_process *p = &g->processes[i];
		buf_printf(out, "%spid %d%s%.40s%s%s", i ? "; " : "end what holds it (", p->pid,
			   *p->name ? ", " : "", p->name, p->bytes >= 0 ? ", " : "",
			   p->bytes >= 0 ? human_bytes(p->bytes, bytes) : "");
	}
	if (g->n_processes > shown)
		buf_printf(out, "; and more");
	buf_printf(out, ")");
	return buf_failed(out) ? "end what holds it (nvidia-smi)" : buf_str(out);
}

static int report_full(const struct preflight *p, const struct gpu_state *g, const char *object,
		       struct err *e)
{
	char free_text[HUMAN], all[HUMAN], need[HUMAN];
	struct buf who = BUF_INIT;
	err_set(e, ERR_NOFIT,
		"%s: %s of its %s are free, but this rank needs %s by the plan; %s, lower "
		"batch.micro, or raise parallel.tp or parallel.pp",
		object, human_bytes(g->memory_free, free_text), human_bytes(g->memory, all),
		human_bytes(p->memory, need), holders(g, &who));
	buf_fini(&who);
	return -1;
}

static int judge(const struct preflight *p, const struct gpu_state *g, bool last, struct err *e)
{
	char object[160], free_text[HUMAN];
	struct device_finding v = { .object = object };
	snprintf(object, sizeof object, "%.80s: device %d, GPU%d%s%s%s", p->node, p->device,
		 g->index, *g->bus ? " (" : "", g->bus, *g->bus ? ")" : "");
	if (g->memory_free >= 0 && p->memory > g->memory_free && !*g->trouble)
		return last ? report_full(p, g, object, e) : 1;
	topo_gpu_judge(g, note_finding, &v);
	if (*v.found)
		return err_set(e, ERR_DEVICE, "%s: %s; %s", object, v.found, v.remedy);
	if (g->memory_free >= 0)
		log_info("%s: %s, %s free", object, g->name,
			 human_bytes(g->memory_free, free_text));
	return 0;
}

/* 1: too little memory is free now, but more may become free. */
static int check_gpu_once(struct preflight *p, bool last, struct err *e)
{
	struct gpu_states s;
	struct err why = ERR_INIT;
	if (topo_gpu_states_read(NVML_LIBRARY, getenv("CUDA_VISIBLE_DEVICES"), &s, &why)) {
		log_warn("%s: device %d is not checked before use: %s", p->node, p->device,
			 why.text);
		return 0;
	}
	const struct gpu_state *g = find_gpu(p, &s);
	if (g)
		p->ordinal = (int)(g - s.gpus);
	int rc = g ? judge(p, g, last, e)
		   : err_set(e, ERR_NOTFOUND,
			     "%s: device %d%s%s is none of the %d GPUs that this agent may use; "
			     "check CUDA_VISIBLE_DEVICES there, or which GPUs Slurm "
			     "gives the step (--gpus-per-task, --gpu-bind)",
			     p->node, p->device, *p->bus ? ", at " : "", p->bus, s.n);
	topo_gpu_states_free(&s);
	return rc;
}

static int check_gpu(struct preflight *p, struct err *e)
{
	/* The plan orders GPUs by PCI address, as the driver's tools do. By default CUDA orders
	 * them by speed. */
	setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
	/* Kernels of all communicators come to the device in the order of their launches, which is
	 * one order on all ranks (libcomm/comm.h). It is off by default. */
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
	int rc;
	for (double until = clock_s() + PATIENCE;
	     (rc = check_gpu_once(p, clock_s() >= until, e)) > 0;)
		poll(NULL, 0, 250);
	return rc;
}

static int check_memory(const struct preflight *p, struct err *e)
{
	double there = meminfo_read("MemAvailable"),
	       all = p->memory * (p->node_ranks > 1 ? p->node_ranks : 1);
	char free_text[HUMAN], need[HUMAN];
	if (process_check_memory("this rank's memory by the plan", p->memory, e))
		return err_prefix(e, "%s", p->node);
	if (there <= 0 || all <= there)
		return 0;
	human_bytes(there, free_text);
	if (p->memory > there)
		return err_set(e, ERR_NOFIT,
			       "%s: %s of memory are available, but this rank alone needs %s by "
			       "the plan; end other programs there, lower batch.micro, or raise "
			       "parallel.tp, parallel.pp or parallel.zero",
			       p->node, free_text, human_bytes(p->memory, need));
	/* One warning per node is enough. */
	log_line(p->device == 0 ? LOG_WARN : LOG_INFO,
		 "%s: %s of memory are available, but its %d ranks need about %s by the "
		 "plan: the kernel may kill one of them",
		 p->node, free_text, p->node_ranks, human_bytes(all, need));
	return 0;
}

int agent_preflight(struct preflight *p, struct err *e)
{
	p->ordinal = p->device;
	return p->cuda ? check_gpu(p, e) : check_memory(p, e);
}
