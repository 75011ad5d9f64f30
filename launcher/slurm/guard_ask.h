/*
 * guard_ask — what a guard asks: Slurm's controller about the job, and the batch host whether its
 * slurmd accepts connections. Everything here blocks, at most for 25 s.
 */
#ifndef MUSTER_LAUNCHER_SLURM_GUARD_ASK_H
#define MUSTER_LAUNCHER_SLURM_GUARD_ASK_H

#include "base/err.h"
#include "launcher/slurm/guard_state.h"

enum { GUARD_NAME = 256, GUARD_DETAIL = 256 };

/* One line of `scontrol --oneliner show job`. */
struct guard_job {
	bool running, batch, may_requeue;
	bool gpus;                        /* it has requested GPUs, or another gres */
	char state[32], host[GUARD_NAME]; /* host: of the batch script */
};

/* False: the text describes no job. */
bool slurm_guard_job_parse(const char *text, struct guard_job *out);
/* Whether `scontrol --oneliner show node` counts the node as down. */
bool slurm_guard_node_down(const char *text);
/* The address and port of the node's slurmd, "host:port", from `scontrol --oneliner show node`.
 * port: of slurmd where the line has none. False: the line has no address. */
bool slurm_guard_node_parse(const char *text, int port, char *out, int size);

/* detail: what was found, for people. */
void slurm_guard_ask(const char *job, struct guard_answer *out, char detail[GUARD_DETAIL]);
/* Requeues or cancels the job. */
int slurm_guard_requeue(const char *job, struct err *e);
int slurm_guard_cancel(const char *job, struct err *e);

#endif
