/*
 * script — the batch script, templates/sbatch.in (launcher/template.h) with the job's values.
 *
 * Values become part of a script, so a value that contains a line break or a quote that would end
 * its text is refused; words of the command are quoted.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SCRIPT_H
#define MUSTER_LAUNCHER_SLURM_SCRIPT_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>

/* The GPUs per node that the job requests, in gpus_per_node or in gres; 0: none. */
int64_t slurm_script_gpus(const struct job *job);

/* Seconds of [slurm] time; 0: no limit, or none is given. */
int64_t slurm_script_time(const struct job *job);
/* MB of [slurm] mem; 0: all of a node's, or none is given. */
int64_t slurm_script_memory(const struct job *job);

/* The resources to request from Slurm, computed from [slurm] and the degrees. */
struct script_size {
	int min_nodes, max_nodes; /* with the spare nodes */
	int agents;               /* per node */
	int cpus;                 /* per agent */
	int gpus;                 /* per node */
};

/*
 * [slurm] nodes × gpus_per_node. Without GPUs: enough agents for the degrees, with whole
 * tensor-parallel groups on each node if they fit.
 *
 * Spare nodes come in addition to the most nodes that work. A fixed number of nodes must come with
 * all spares; of a range the run may start without any. The degrees must fit on the most nodes. On
 * the fewest there must be room for them with restart.shrink = keep, and for one replica with dp;
 * with any the run plans again.
 */
int slurm_script_size(const struct job *job, struct script_size *out, struct err *e);

/* Whether a run on `nodes` nodes, spares included, continues if Slurm counts one of them as down:
 * it has a spare or may shrink. Then the job and its steps need --no-kill, and Slurm does not
 * requeue the job by itself. Otherwise Slurm ends and requeues the job. */
bool slurm_script_outlives_nodes(const struct job *job, int nodes);

/* The #SBATCH lines, without the last newline; the log goes to run_dir. */
int slurm_script_options(const struct job *job, const struct script_size *size, const char *run_dir,
			 struct buf *out, struct err *e);

/* Appends the word, quoted for the shell. */
void slurm_script_quote(const char *word, struct buf *out);

#endif
