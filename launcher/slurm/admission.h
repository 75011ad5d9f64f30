/*
 * admission — a job and a partition that may run it: what the checks of admit.c and admit_nodes.c
 * share. For these two files only.
 */
#ifndef MUSTER_LAUNCHER_SLURM_ADMISSION_H
#define MUSTER_LAUNCHER_SLURM_ADMISSION_H

#include "launcher/slurm/admit.h"

enum { ADMISSION_LISTED = 12 }; /* names in a message */

struct admission {
	const struct job *job;
	const struct script_size *size;
	const struct site *site;
	const struct site_partition *p;
	struct buf *warnings;
};

#define ADMISSION_REFUSE(e, ...) err_set(e, ERR_NOFIT, __VA_ARGS__)

/* Counts the nodes that have one property after the other. The property with which too few nodes are
 * left is the reason. */
int slurm_admission_nodes(const struct admission *a, struct err *e);
/* [slurm] nodelist names nodes of the partition, and not too many. */
int slurm_admission_nodelist(const struct admission *a, struct err *e);

#endif
