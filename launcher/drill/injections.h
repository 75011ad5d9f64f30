/*
 * injections — the faults that a drill can cause.
 *
 * To add one: add its row to the table in injections.c, with a function that causes the fault and,
 * if needed, one that puts everything back. The names in `faults` are rows of the table in
 * launcher/supervise/faults.c; a unit test checks them.
 */
#ifndef MUSTER_LAUNCHER_DRILL_INJECTIONS_H
#define MUSTER_LAUNCHER_DRILL_INJECTIONS_H

#include "launcher/drill/run.h"

/* An injection is skipped where something that it needs is missing. */
enum drill_needs {
	NEEDS_SLURM = 1 << 0,
	NEEDS_LOCAL = 1 << 1,
	NEEDS_ROOT = 1 << 2,
	NEEDS_USER = 1 << 3,      /* not root, whom permissions do not bind */
	NEEDS_NODES = 1 << 4,     /* more than one */
	NEEDS_ALLOW = 1 << 5,     /* --allow-node-faults */
	NEEDS_SPARE = 1 << 6,     /* the job can go on with fewer nodes */
	NEEDS_SYNC = 1 << 7,      /* parallel.sync is not server */
	NEEDS_SCALE = 1 << 8,     /* an infinite gradient is not a reason to skip a step */
	NEEDS_RANKS = 1 << 9,     /* at least 3 */
	NEEDS_REPLICAS = 1 << 10, /* replicas of all weights, which are compared */
};

struct injection {
	const char *name;
	unsigned needs;
	/* Before the run starts; may be NULL. ERR_UNSUPPORTED: this run does not allow the
	 * fault. */
	int (*prepare)(struct drill_run *r, struct err *e);
	/* When the run trains: causes the fault, and sets r->injected. NULL: the fault comes
	 * without it. ERR_UNSUPPORTED: this run does not allow it. */
	int (*inject)(struct drill_run *r, struct err *e);
	/* The agent of the last rank causes the fault: a kind of agent/drill.h. NULL: it does
	 * not. */
	const char *agent_fault;
	int signal; /* for drill_signal_last_agent */
	/* The last rank hangs. The event hang must name it with this kind, and the run has a short
	 * restart.hang_timeout. NULL: no rank hangs. */
	const char *hang;
	/* Undoes prepare() and inject(), also if they failed. It may be called twice. May be
	 * NULL. */
	void (*undo)(struct drill_run *r);
	const char *faults; /* the names that the supervisor may give it; "": it names none */
	const char
		*later;  /* a fault that it must name after that, with another start; may be NULL */
	int status;      /* of the run */
	bool again;      /* the same command is then started again, and must exit 0 */
	bool result;     /* the result must be that of the undisturbed run */
	bool one_launch; /* nothing may be started again */
	bool keeps_step; /* Slurm keeps the job step, because the process that ends it is dead */
	/* Checks what else must hold at the end. May be NULL. */
	int (*check)(const struct drill_run *r, struct err *e);
	const char *how; /* for people */
};

/* The rows; the last one has no name. */
extern const struct injection drill_injections[];

/* Returns true if the injection is possible here; otherwise `why` says what it lacks. */
bool drill_injection_possible(const struct injection *i, const struct drill *d, char *why,
			      size_t size);

/* The functions of the table, by what they disturb: inject_agents.c, inject_files.c,
 * inject_supervisor.c, inject_nodes.c, inject_services.c, inject_memory.c. */
int drill_signal_last_agent(struct drill_run *r, struct err *e);
int drill_kill_agent(struct drill_run *r, struct err *e);
int drill_kill_node_agents(struct drill_run *r, struct err *e);
int drill_stop_agent(struct drill_run *r, struct err *e);
void drill_continue_agent(struct drill_run *r);
int drill_kill_srun(struct drill_run *r, struct err *e);
int drill_kill_pmix_server(struct drill_run *r, struct err *e);
int drill_kill_stepd(struct drill_run *r, struct err *e);
int drill_delete_checkpoints(struct drill_run *r, struct err *e);
int drill_check_begins_again(const struct drill_run *r, struct err *e);
int drill_corrupt_checkpoint(struct drill_run *r, struct err *e);
int drill_check_skips_corrupted(const struct drill_run *r, struct err *e);
int drill_deny_checkpoints(struct drill_run *r, struct err *e);
void drill_permit_checkpoints(struct drill_run *r);
int drill_fill_disk(struct drill_run *r, struct err *e);
int drill_check_warned(const struct drill_run *r, struct err *e);
int drill_remove_data(struct drill_run *r, struct err *e);
int drill_kill_supervisor(struct drill_run *r, struct err *e);
int drill_stop_supervisor(struct drill_run *r, struct err *e);
void drill_continue_supervisor(struct drill_run *r);
int drill_terminate_supervisor(struct drill_run *r, struct err *e);
int drill_drain_node(struct drill_run *r, struct err *e);
int drill_set_node_down(struct drill_run *r, struct err *e);
int drill_set_node_fail(struct drill_run *r, struct err *e);
void drill_resume_node(struct drill_run *r);
int drill_prepare_controller(struct drill_run *r, struct err *e);
int drill_prepare_munge(struct drill_run *r, struct err *e);
int drill_outlast_service(struct drill_run *r, struct err *e);
int drill_hide_pmix(struct drill_run *r, struct err *e);
void drill_return_service(struct drill_run *r);
int drill_limit_memory(struct drill_run *r, struct err *e);
void drill_remove_cgroup(struct drill_run *r);

/* Sends a signal to the agent of a rank, also on another node, and sets r->injected. */
int drill_signal_agent(struct drill_run *r, int rank, int signal, struct err *e);
/* Removes the cgroups of drills that were killed. */
void drill_remove_old_cgroups(void);
/* Slurm's name of the rank's node, from the generation's host file. */
int drill_node_of(const struct drill_run *r, int rank, char *out, size_t size, struct err *e);

#endif
