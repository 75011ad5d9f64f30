/*
 * suspect_nodes — what `muster run` and `muster submit` do about nodes that are in the list of suspects
 * (launcher/suspects), as [health] suspects says. A list that cannot be read is a warning.
 */
#ifndef MUSTER_LAUNCHER_CLI_SUSPECT_NODES_H
#define MUSTER_LAUNCHER_CLI_SUSPECT_NODES_H

#include "launcher/slurm/site.h"
#include "launcher/suspects/suspects.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

#include <stdbool.h>

/* What a run needs to know of the list. */
struct suspect_nodes {
	bool kept;
	struct suspects_place place;
	const char *cluster;
	bool *suspected; /* [n_nodes of the machines]; NULL: no node is */
};

/* slurm: the machines are nodes of Slurm. Prints the suspects among them. Free it with
 * command_suspects_close(). */
void command_suspects_open(const struct job *job, bool slurm, const struct cluster *machines,
			   struct suspect_nodes *out);
void command_suspects_close(struct suspect_nodes *s);
/* Moves the suspects behind the other nodes, where the spares are taken from. `used` is a copy of the
 * machines. */
void command_suspects_last(const struct suspect_nodes *s, struct cluster *used);

/* For `muster submit`: appends a line to `warnings` for each suspect that the job could get, and with
 * [health] suspects = exclude adds these nodes to [slurm] exclude. site: NULL: unknown. ERR_USAGE: the
 * list is too long for the key. */
int command_suspects_exclude(struct job *job, const struct site *site, struct buf *warnings,
			     struct err *e);

#endif
