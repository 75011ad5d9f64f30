/* submit_checks — what `muster submit` checks on this host before a job is queued. */
#ifndef MUSTER_LAUNCHER_CLI_SUBMIT_CHECKS_H
#define MUSTER_LAUNCHER_CLI_SUBMIT_CHECKS_H

#include "launcher/slurm/controller.h"
#include "launcher/slurm/script.h"

/* Checks the data, the checkpoint to resume from and the CUDA library as a run would, and warns
 * about a run folder that other nodes do not see. A script of the site's own (MUSTER_TEMPLATES) may
 * bring files to the nodes, so missing files are warnings then. Appends lines to `warnings`. */
int command_submit_files(const struct job *job, const struct script_size *size,
			 struct buf *warnings, struct err *e);

#endif
