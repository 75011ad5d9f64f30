/*
 * admit — whether Slurm can ever start a job, before it is queued.
 *
 * Slurm accepts many jobs that it can never start, and they pend for ever. These checks compare what
 * the batch script requests with the cluster's partitions and nodes (site.h). To add a check: write
 * a function and add it to the table `checks` of admit.c; to add a property of nodes, add a row to
 * `properties` of admit_nodes.c.
 *
 * A job is refused only for what does not change by itself. Nodes that are down and a partition that
 * is closed at the moment make a warning, because the job starts when they are back.
 */
#ifndef MUSTER_LAUNCHER_SLURM_ADMIT_H
#define MUSTER_LAUNCHER_SLURM_ADMIT_H

#include "launcher/slurm/script.h"
#include "launcher/slurm/site.h"

/* Refuses a job that none of its partitions can run, with the reason of the last one. Appends lines
 * to `warnings`, each with its newline. */
int slurm_admit(const struct job *job, const struct script_size *size, const struct site *site,
		struct buf *warnings, struct err *e);

/* Writes when Slurm expects to start the job, as a sentence with a newline. test: what
 * `sbatch --test-only` printed. now: seconds since 1970. */
void slurm_admit_wait(const char *test, time_t now, struct buf *out);

#endif
