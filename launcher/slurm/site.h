/*
 * site — what Slurm says about its partitions and nodes before a job is queued.
 *
 * The texts are those of `scontrol --oneliner show partition` and of sinfo with SITE_NODES_FORMAT,
 * which has one line for all nodes of a partition that are alike. Where accounting is enforced, sacctmgr
 * has a line for each association of the user (SITE_ASSOCIATIONS_FORMAT). Tested with Slurm 22.05. Any text
 * gives a description: lines that say nothing are skipped, and a value that is missing or too long
 * is unknown. An unknown value never refuses a job.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SITE_H
#define MUSTER_LAUNCHER_SLURM_SITE_H

#include "base/err.h"
#include "topo/hostlist.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* partition, number of nodes, state, CPUs, memory in MB, gres, features, names */
#define SITE_NODES_FORMAT "%R|%D|%T|%c|%m|%G|%f|%N"

#define SITE_ASSOCIATIONS_FORMAT "format=account,partition,qos"

enum { SITE_NAME = 64, SITE_LIST = 1024 };

struct site_partition {
	char name[SITE_NAME];
	char state[16]; /* UP, DOWN, DRAIN, INACTIVE */
	bool is_default;
	int64_t total;                /* nodes; 0: unknown */
	int64_t min_nodes;            /* of a job */
	int64_t max_nodes;            /* of a job; 0: no limit */
	int64_t max_time;             /* seconds; 0: no limit, as in the next two */
	int64_t max_cpus, max_memory; /* of a job on each node; memory in MB */
	/* Lists with commas; "": unknown, or everyone may use the partition. */
	char allow_accounts[SITE_LIST], deny_accounts[SITE_LIST], allow_qos[SITE_LIST],
		deny_qos[SITE_LIST];
};

/* Nodes of one partition that are alike. */
struct site_nodes {
	char partition[SITE_NAME];
	bool down;                  /* down, draining or drained */
	int64_t gpus, cpus, memory; /* of each node; memory in MB, 0: unknown */
	char gres[SITE_LIST], features[SITE_LIST];
	int64_t count;
	struct hostlist names; /* empty: unknown */
};

/* What the user may use. */
struct site_association {
	char account[SITE_NAME];
	char partition[SITE_NAME]; /* "": all */
	char qos[SITE_LIST];       /* with commas; "": unknown, or not enforced */
};

struct site {
	struct site_partition *partitions;
	struct site_nodes *nodes;
	struct site_association *associations; /* none: unknown, or not enforced */
	int n_partitions, n_nodes, n_associations;
	bool default_unknown; /* which partition is the default one */
};

/* Free the site with slurm_site_free(). */
int slurm_site_parse(const char *partitions, const char *nodes, struct site *out, struct err *e);
void slurm_site_free(struct site *s);

/* Whether the text of `scontrol show config` says that jobs need an association. */
bool slurm_site_enforces(const char *config);
/* Adds the user's associations. config: that text, which says whether QOS are enforced. */
int slurm_site_parse_associations(const char *config, const char *text, struct site *s,
				  struct err *e);

/* Asks the cluster. ERR_TIMEOUT or ERR_IO: it does not answer. */
int slurm_site_ask(struct site *out, struct err *e);

/* Whether the word is in a list with commas; case does not count. */
bool slurm_site_lists(const char *list, const char *word, size_t len);

/* The start that `sbatch --test-only` expects, "Job 7 to start at 2026-11-22T18:25:49 …", in this
 * host's time zone. false: the text has none. */
bool slurm_site_start(const char *text, time_t *start);

#endif
