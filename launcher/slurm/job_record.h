/*
 * job_record — parses the lines of `scontrol --oneliner show job` and `show node` that a survey, a
 * requeue and the cause of a stop need.
 *
 * Tested with Slurm 22.05; the words of node states are also those of older and newer versions. Any
 * text gives either a record or an error.
 */
#ifndef MUSTER_LAUNCHER_SLURM_JOB_RECORD_H
#define MUSTER_LAUNCHER_SLURM_JOB_RECORD_H

#include "launcher/survey.h"
#include "topo/hostlist.h"

#include <stdbool.h>
#include <time.h>

enum { SLURM_HOST = 256, SLURMD_PORT = 6818 /* Slurm's default */ };

struct job_record {
	char state[32];           /* JobState, such as "RUNNING" */
	char reason[64];          /* Reason, such as "TimeLimit" */
	time_t ends;              /* EndTime; 0: unknown */
	time_t preempted;         /* PreemptTime; 0: it is not being preempted */
	int restarts;             /* how often it was requeued */
	char partition[64];       /* the first of several */
	bool can_requeue;         /* a batch job with Requeue=1 */
	int tasks;                /* of the whole job; 0: unknown */
	int tasks_per_node;       /* --ntasks-per-node; 0: none was given */
	int cpus_per_task;        /* at least 1 */
	struct hostlist nodes;    /* allocated now; empty if the job is pending */
	struct hostlist excluded; /* ExcNodeList */
};

/* Reads the line of the job with this id. Free the record with slurm_job_record_free(). */
int slurm_job_record_parse(const char *text, const char *job_id, struct job_record *out,
			   struct err *e);
void slurm_job_record_free(struct job_record *r);
/* The local time at a key, such as "2026-11-22T18:27:34"; 0: unknown, as for "None". */
time_t slurm_time_field(const char *line, const char *key);
/* Whether a job in this JobState has its nodes, and nobody has ended it yet. */
bool slurm_job_state_is_running(const char *state);

/* Whether the job of this line has requested GPUs or another gres: TresPerNode and its relatives. */
bool slurm_job_has_gres(const char *line);

struct node_record {
	char name[TOPO_NAME];
	enum node_state state; /* never NODE_LEFT */
	bool idle;             /* it is up and runs no job */
	char host[SLURM_HOST]; /* NodeAddr; the name if it is missing */
	int port;              /* of slurmd */
};

/* The state that a word such as "ALLOCATED+DRAIN", "DOWN*" or "MIXED+NOT_RESPONDING" means for a
 * new launch. Unknown words count as up: Slurm then refuses the launch itself. */
enum node_state slurm_node_state(const char *word);

/* Reads the next line of *text that describes a node, and moves *text behind it. false: there is
 * none. */
bool slurm_node_record_next(const char **text, struct node_record *out);

/* TotalNodes of the line that describes a partition; 0: unknown. */
int slurm_partition_nodes(const char *text);

#endif
