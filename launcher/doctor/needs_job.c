/* needs_job: computes what a job needs, from its plan on the machine where it would run. */
#include "launcher/doctor/doctor.h"

#include "launcher/fit.h"
#include "launcher/job_cluster.h"
#include "plan/plan.h"
#include "plan/spec/optimizers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limits of planning. In an allocation planning may first query the nodes in a Slurm job
 * step. */
#define SECONDS          20.0
#define SECONDS_OF_NODES 60.0

/* Sets the values of the node that needs most. */
static int sum_needs(const struct plan *p, int nodes, const struct job *job, struct needs *out,
		     struct err *e)
{
	double *memory = calloc((size_t)nodes + 1, sizeof *memory);
	if (!memory)
		return err_set(e, ERR_NOMEM, "no memory for the needs of %d nodes", nodes);
	for (int i = 0; i < p->world; i++) {
		const struct plan_rank *r = &p->ranks[i];
		out->ranks = r->node_ranks > out->ranks ? r->node_ranks : out->ranks;
		if (out->cuda)
			out->memory = r->total > out->memory ? r->total : out->memory;
		else
			memory[r->node] += r->total;
		out->host_memory = memory[r->node] > out->host_memory ? memory[r->node]
								      : out->host_memory;
	}
	free(memory);
	/* one more than are kept, because the next one is written before the oldest is removed */
	out->checkpoint = optimizer_checkpoint_bytes(job->optimizer.kind, &p->shape) *
			  (double)(job->checkpoint.keep + 1);
	if (job_path_is_address(job->checkpoint.dir) || out->program)
		out->checkpoint = 0; /* no disk of a node holds them, or nobody knows */
	return 0;
}

static void copy_folders(const struct job *job, struct needs *out)
{
	out->job = true;
	out->cuda = job->job.device == DEVICE_CUDA;
	out->program = job_has_program(job);
	out->fp32 = job->precision.dtype == DTYPE_FP32;
	snprintf(out->run_dir, sizeof out->run_dir, "%s", job->job.run_dir);
	if (!job_path_is_address(job->checkpoint.dir))
		snprintf(out->ckpt_dir, sizeof out->ckpt_dir, "%s", job->checkpoint.dir);
	snprintf(out->data, sizeof out->data, "%s", job->data.path);
	snprintf(out->interface, sizeof out->interface, "%s", job->network.interface);
}

char *doctor_needs_of_plan(const struct job *job, const struct plan *p, int n_nodes)
{
	struct needs n = { .slurm = true };
	copy_folders(job, &n);
	json_t *doc = sum_needs(p, n_nodes, job, &n, NULL) ? NULL : doctor_needs_json(&n);
	char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	json_decref(doc);
	return text;
}

static bool has_gpus(const struct cluster *c)
{
	for (int i = 0; i < c->n_kinds; i++)
		if (c->kinds[i].devices && strcmp(c->kinds[i].device, "cpu"))
			return true;
	return false;
}

/* Plans the job. It is an error if the job uses GPUs and this machine has none. */
static int plan_job(const struct job *job, struct needs *out, struct err *e)
{
	struct cluster c;
	struct deployment *d;
	json_t *spares;
	struct buf said = BUF_INIT;
	if (launcher_deployment_check(job, e) ||
	    launcher_job_cluster_open(job, out->slurm ? "slurm" : "local", &c, e))
		return -1;
	int rc = out->cuda && !has_gpus(&c)
			 ? err_set(e, ERR_NOTFOUND,
				   "[job] device = cuda: there is no GPU here; check the nodes "
				   "that the job will run on: salloc … muster doctor JOB.ini")
			 : launcher_spares_keep(job, &c, &spares, e);
	if (rc) {
		topo_cluster_free(&c);
		return -1;
	}
	json_decref(spares);
	rc = launcher_fit_build(job, &c, false, &d, &said, e);
	buf_fini(&said);
	if (!rc) {
		rc = sum_needs(&d->plan, d->cluster.n_nodes, &d->job, out, e);
		launcher_deployment_free(d);
	}
	return rc;
}

/* Runs like a check, in its own process, so a driver that hangs or crashes does not stop the
 * doctor. */
static void check_plan(const struct needs *n, struct findings *f)
{
	struct needs out = *n;
	struct err e = ERR_INIT;
	if (plan_job(n->given, &out, &e) || job_check_run(n->given, n->file, &e))
		snprintf(out.trouble, sizeof out.trouble, "%.*s", (int)sizeof out.trouble - 1,
			 e.text);
	doctor_found_facts(f, doctor_needs_json(&out));
}

void doctor_needs_of_job(const struct job *job, const char *file, struct needs *out)
{
	const struct check plan[] = { { "plan", out->slurm ? SECONDS_OF_NODES : SECONDS, false,
					NULL, check_plan },
				      { NULL, 0, false, NULL, NULL } };
	struct findings f = { .rows = NULL };
	copy_folders(job, out);
	out->given = job;
	out->file = file;
	doctor_run(plan, out, DOCTOR_ALL, &f);
	if (doctor_needs_from_json(json_object_get(f.facts, plan->name), out))
		snprintf(out->trouble, sizeof out->trouble,
			 "the job cannot be planned: %s; look at the lines about the driver or "
			 "Slurm",
			 f.n ? f.rows[0].found : "there was no answer");
	doctor_findings_fini(&f);
}
