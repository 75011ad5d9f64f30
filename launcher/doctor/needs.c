#include "launcher/doctor/doctor.h"

#include "base/human.h"
#include "launcher/machine.h"
#include "plan/plan.h"
#include "plan/search/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a checkpoint holds of each parameter: it, its two moments, in fp32 (agent/ckpt). */
#define SAVED_BYTES 12.0

/* The fullest node's figures. */
static int of_plan(const struct plan *p, int nodes, const struct job *job, struct needs *out, struct err *e)
{
	double *memory = calloc((size_t)nodes + 1, sizeof *memory);
	if (!memory)
		return err_set(e, ERR_NOMEM, "no memory for the needs of %d nodes", nodes);
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		out->ranks = r->crew > out->ranks ? r->crew : out->ranks;
		if (out->cuda)
			out->memory = r->total > out->memory ? r->total : out->memory;
		else
			memory[r->node] += r->total;
		out->host_memory = memory[r->node] > out->host_memory ? memory[r->node] : out->host_memory;
	}
	free(memory);
	out->checkpoint = SAVED_BYTES * (double)model_params(&p->shape) * (double)(job->checkpoint.keep + 1);
	return 0;
}

/* The plan needs devices, which a job's own machine may lack: that is what is told then. */
static int plan_of(const struct job *given, struct needs *out, struct err *e)
{
	struct job job = *given;
	struct cluster c;
	struct plan p;
	if (machine_open(&job, out->slurm ? "slurm" : "local", &c, e))
		return -1;
	int rc = job.open ? search_resolve(&job, &c, e) : 0;
	if (!rc)
		rc = plan_build(&job, &c, &p, e);
	if (!rc) {
		rc = of_plan(&p, c.n_nodes, &job, out, e);
		plan_free(&p);
	}
	cluster_free(&c);
	return rc;
}

void needs_of_job(const struct job *job, const char *file, struct needs *out)
{
	struct err e = ERR_INIT;
	out->job = true;
	out->cuda = job->job.device == DEVICE_CUDA;
	snprintf(out->run_dir, sizeof out->run_dir, "%s", job->job.run_dir);
	snprintf(out->ckpt_dir, sizeof out->ckpt_dir, "%s", job->checkpoint.dir);
	snprintf(out->data, sizeof out->data, "%s", job->data.path);
	snprintf(out->interface, sizeof out->interface, "%s", job->network.interface);
	if (plan_of(job, out, &e) || job_check_run(job, file, &e))
		snprintf(out->trouble, sizeof out->trouble, "%.*s", (int)sizeof out->trouble - 1, e.text);
}

/* --- As a word on a node's command line. --- */

json_t *needs_json(const struct needs *n)
{
	return json_pack("{s:b, s:b, s:b, s:i, s:f, s:f, s:f, s:s, s:s, s:s, s:s}", "job", n->job, "cuda", n->cuda, "slurm", n->slurm, "ranks", n->ranks, "memory", n->memory,
			 "host_memory", n->host_memory, "checkpoint", n->checkpoint, "run_dir", n->run_dir, "ckpt_dir", n->ckpt_dir, "data", n->data, "interface", n->interface);
}

int needs_read(const char *text, struct needs *out, struct err *e)
{
	struct needs n = { .job = false };
	const char *run_dir, *ckpt_dir, *data, *interface;
	int job, cuda, slurm;
	json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	int rc = doc ? json_unpack(doc, "{s:b, s:b, s:b, s:i, s:F, s:F, s:F, s:s, s:s, s:s, s:s}", "job", &job, "cuda", &cuda, "slurm", &slurm, "ranks", &n.ranks, "memory", &n.memory,
				   "host_memory", &n.host_memory, "checkpoint", &n.checkpoint, "run_dir", &run_dir, "ckpt_dir", &ckpt_dir, "data", &data, "interface", &interface)
		     : -1;
	if (!rc && (strlen(run_dir) >= sizeof n.run_dir || strlen(ckpt_dir) >= sizeof n.ckpt_dir || strlen(data) >= sizeof n.data || strlen(interface) >= sizeof n.interface))
		rc = -1;
	if (!rc) {
		strcpy(n.run_dir, run_dir);
		strcpy(n.ckpt_dir, ckpt_dir);
		strcpy(n.data, data);
		strcpy(n.interface, interface);
		n.job = job;
		n.cuda = cuda;
		n.slurm = slurm;
		*out = n;
	}
	json_decref(doc);
	return rc ? err_set(e, ERR_USAGE, "--report: what follows it is no needs of a job; muster doctor itself gives it to the nodes") : 0;
}
