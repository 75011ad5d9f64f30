/*
 * script — the batch script: templates/sbatch.in with the job's values put in.
 *
 * A template holds @name@ where a value goes; any other @ stands for itself. A name
 * that has no value is an error, as a silent hole would be a wrong job.
 * Values become part of a script, so they are refused when they hold what
 * could end their line or their quotes; words of the command are quoted.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SCRIPT_H
#define MUSTER_LAUNCHER_SLURM_SCRIPT_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

struct script_value {
	const char *name, *text;
};

/* The whole template, from $MUSTER_TEMPLATES, PREFIX/share/muster/templates, or the source tree
 * that this program was built in. */
int slurm_script_template(const char *name, struct buf *out, struct err *e);

/* `values` ends with a NULL name. */
int slurm_script_render(const char *text, const struct script_value *values, struct buf *out,
			struct err *e);

/* What is asked of Slurm; decided from [slurm] and the degrees. */
struct script_size {
	int nodes, agents; /* a node */
	int cpus;          /* an agent */
	int gpus;          /* a node */
};

/* [slurm] nodes × gpus_per_node, or, without GPUs, agents enough for the degrees, whole
 * tensor-parallel groups on each node where they fit. */
int slurm_script_size(const struct job *job, struct script_size *out, struct err *e);

/* The #SBATCH lines, without the last newline; run_dir is where the log goes. */
int slurm_script_options(const struct job *job, const struct script_size *size, const char *run_dir,
			 struct buf *out, struct err *e);

/* Appends the word in single quotes, so that the shell reads it back as it is. */
void slurm_script_quote(const char *word, struct buf *out);

#endif
