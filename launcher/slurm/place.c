#include "launcher/slurm/slurm.h"

#include "launcher/child.h"
#include "launcher/slurm/job_record.h"

#include <stdio.h>
#include <stdlib.h>

#define ASK_TIMEOUT 30.0

static long read_variable(const char *name)
{
	const char *text = getenv(name);
	return text ? strtol(text, NULL, 10) : 0;
}

/* Sets the variables that say how many tasks the allocation has to what sbatch or salloc had set.
 * The names of its nodes and their CPUs are the allocation's in a step, too. */
static void set_tasks(const struct job_record *r)
{
	char text[64];
	int nodes = r->nodes.n, per_node = r->tasks_per_node;
	if (!per_node && nodes > 0 && r->tasks % nodes == 0)
		per_node = r->tasks / nodes;
	unsetenv("SLURM_NTASKS");
	unsetenv("SLURM_NPROCS");
	unsetenv("SLURM_TASKS_PER_NODE");
	snprintf(text, sizeof text, "%d", nodes);
	setenv("SLURM_NNODES", text, 1);
	if (per_node > 0) {
		snprintf(text, sizeof text, "%d(x%d)", per_node, nodes);
		setenv("SLURM_TASKS_PER_NODE", text, 1);
		snprintf(text, sizeof text, "%d", per_node * nodes);
		setenv("SLURM_NTASKS", text, 1);
	}
}

static int leave_step(struct err *e)
{
	const char *id = getenv("SLURM_JOB_ID");
	char *argv[] = { "scontrol", "--oneliner", "show", "job", (char *)(uintptr_t)id, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	struct buf line = BUF_INIT;
	struct job_record r;
	int rc = launcher_child_run(&c, ASK_TIMEOUT, &line, e) ||
				 slurm_job_record_parse(buf_str(&line), id, &r, e)
			 ? err_prefix(e, "the allocation of this job step is unknown")
			 : 0;
	if (!rc) {
		set_tasks(&r);
		slurm_job_record_free(&r);
	}
	buf_fini(&line);
	return rc;
}

int slurm_enter_allocation(struct err *e)
{
	long tasks = read_variable("SLURM_STEP_NUM_TASKS");
	if (getenv("SLURM_HET_SIZE") || getenv("SLURM_PACK_SIZE"))
		return err_set(
			e, ERR_UNSUPPORTED,
			"this is a heterogeneous Slurm job: muster starts all agents with one "
			"job step, and a step reaches only one component of such a job; request "
			"one kind of node ([slurm] constraint or partition) in a job without "
			"\":\" and hetjob");
	if (tasks > 1)
		return err_set(
			e, ERR_UNSUPPORTED,
			"srun has started muster run %ld times, and each would start all agents; "
			"start it once, without srun: muster itself starts an agent for each "
			"device (in an allocation: muster run JOB.ini)",
			tasks);
	return tasks == 1 && getenv("SLURM_JOB_ID") ? leave_step(e) : 0;
}

bool slurm_speaks(void)
{
	return read_variable("SLURM_PROCID") == 0;
}
