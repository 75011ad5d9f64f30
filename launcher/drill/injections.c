#include "launcher/drill/injections.h"

#include "launcher/status.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* clang-format off */

const struct injection drill_injections[] = {
	{ .name = "agent-killed", .inject = drill_kill_agent,
	  .faults = "agent-killed", .status = STATUS_DONE, .result = true,
	  .how = "SIGKILL to the agent of the last rank" },
	{ .name = "agent-crashed", .inject = drill_signal_last_agent, .signal = SIGSEGV,
	  .faults = "agent-crashed", .status = STATUS_DONE, .result = true,
	  .how = "SIGSEGV to the agent of the last rank" },
	{ .name = "bus-error", .inject = drill_signal_last_agent, .signal = SIGBUS,
	  .faults = "bus-error", .status = STATUS_DONE, .result = true,
	  .how = "SIGBUS to the agent of the last rank" },
	{ .name = "cpu-limit", .inject = drill_signal_last_agent, .signal = SIGXCPU,
	  .faults = "cpu-limit", .status = STATUS_FAILED, .one_launch = true,
	  .how = "SIGXCPU to the agent of the last rank" },
	{ .name = "agent-exited", .agent_fault = "exit",
	  .faults = "agent-exited", .status = STATUS_DONE, .result = true,
	  .how = "the agent of the last rank ends with exit status 7" },
	{ .name = "agent-stopped", .inject = drill_stop_agent, .undo = drill_continue_agent, .hang = "stopped",
	  .faults = "agent-stopped", .status = STATUS_DONE, .result = true,
	  .how = "SIGSTOP to the agent of the last rank, with a short restart.hang_timeout" },
	{ .name = "thread-stuck", .agent_fault = "stuck", .hang = "call",
	  .faults = "hang", .status = STATUS_DONE, .result = true,
	  .how = "the training thread of the last rank reads from a pipe into which nobody writes" },
	{ .name = "rank-computes", .agent_fault = "spin", .hang = "computing",
	  .faults = "hang", .status = STATUS_DONE, .result = true,
	  .how = "the training thread of the last rank computes for ever" },
	{ .name = "collective-mismatch", .needs = NEEDS_RANKS, .agent_fault = "collectives", .hang = "collectives",
	  .faults = "deadlock", .status = STATUS_DONE, .result = true,
	  .how = "the last rank calls a collective that the others do not call" },
	{ .name = "out-of-memory", .needs = NEEDS_LOCAL, .prepare = drill_limit_memory, .undo = drill_remove_cgroup,
	  .agent_fault = "memory", .faults = "out-of-memory", .status = STATUS_DONE, .result = true,
	  .how = "an agent takes memory until the OOM killer ends it, in a cgroup of the run's own" },
	{ .name = "device-lost", .agent_fault = "device",
	  .faults = "device-lost", .status = STATUS_DONE, .result = true,
	  .how = "the agent of the last rank reports that its device is lost" },
	{ .name = "numeric", .needs = NEEDS_SYNC | NEEDS_SCALE, .agent_fault = "nan",
	  .faults = "numeric,wrong-results", .status = STATUS_DONE, .result = true,
	  .how = "the last rank's gradients become NaN" },
	{ .name = "nan-activation", .needs = NEEDS_SYNC | NEEDS_SCALE, .agent_fault = "nan-input",
	  .faults = "numeric", .status = STATUS_DONE, .result = true,
	  .how = "an activation of the last rank becomes NaN, each time the step is computed" },
	{ .name = "nan-activation-once", .needs = NEEDS_SYNC | NEEDS_SCALE, .agent_fault = "nan-once",
	  .faults = "numeric,wrong-results", .status = STATUS_DONE, .result = true,
	  .how = "an activation of the last rank becomes NaN, only the first time the step is computed" },
	{ .name = "nan-gradient", .needs = NEEDS_SYNC | NEEDS_SCALE, .agent_fault = "nan-gradient",
	  .faults = "numeric", .status = STATUS_DONE, .result = true,
	  .how = "numbers of the last rank's gradients become NaN before they are reduced" },
	{ .name = "nan-weight", .needs = NEEDS_SYNC | NEEDS_SCALE, .agent_fault = "nan-weight",
	  .faults = "numeric,wrong-results", .status = STATUS_DONE, .result = true,
	  .how = "a weight of the last rank becomes NaN" },
	{ .name = "bit-flip", .needs = NEEDS_SYNC | NEEDS_REPLICAS, .agent_fault = "flip",
	  .faults = "replicas-differ", .status = STATUS_DONE, .result = true,
	  .how = "a bit of a weight of the last rank flips" },
	{ .name = "srun-killed", .needs = NEEDS_SLURM, .inject = drill_kill_srun,
	  .faults = "step-ended,connection-lost,agent-exited,agent-killed", .status = STATUS_DONE, .result = true,
	  .how = "SIGKILL to srun" },
	{ .name = "pmix-server-killed", .needs = NEEDS_LOCAL, .inject = drill_kill_pmix_server,
	  .faults = "", .status = STATUS_DONE, .result = true,
	  .how = "SIGKILL to the PMIx server, which a run needs only at its start" },
	{ .name = "slurmstepd-killed", .needs = NEEDS_SLURM | NEEDS_ROOT, .inject = drill_kill_stepd,
	  .faults = "", .status = STATUS_DONE, .result = true, .keeps_step = true,
	  .how = "SIGKILL to the slurmstepd of the last rank" },
	{ .name = "controller-away", .needs = NEEDS_SLURM, .prepare = drill_prepare_controller,
	  .inject = drill_outlast_service, .undo = drill_return_service,
	  .faults = "agent-killed,connection-lost", .later = "controller-away", .status = STATUS_DONE, .result = true,
	  .how = "an agent is killed, and Slurm's programs fail as if slurmctld were away" },
	{ .name = "munge-away", .needs = NEEDS_SLURM, .prepare = drill_prepare_munge,
	  .inject = drill_outlast_service, .undo = drill_return_service,
	  .faults = "agent-killed,connection-lost", .later = "munge-away", .status = STATUS_DONE, .result = true,
	  .how = "an agent is killed, and Slurm's programs fail as if munged were away" },
	{ .name = "pmix-missing", .needs = NEEDS_SLURM, .prepare = drill_hide_pmix,
	  .faults = "pmix-missing", .status = STATUS_FAILED, .one_launch = true,
	  .how = "srun fails as if Slurm had no plugin for PMIx" },
	{ .name = "checkpoint-deleted", .inject = drill_delete_checkpoints, .check = drill_check_begins_again,
	  .faults = "agent-killed", .status = STATUS_DONE, .result = true,
	  .how = "ckpt/ is deleted, and an agent is killed" },
	{ .name = "checkpoint-corrupted", .inject = drill_corrupt_checkpoint, .check = drill_check_skips_corrupted,
	  .faults = "agent-killed", .status = STATUS_DONE, .result = true,
	  .how = "one byte of the last checkpoint is changed, and an agent is killed" },
	{ .name = "checkpoint-denied", .needs = NEEDS_USER, .inject = drill_deny_checkpoints, .undo = drill_permit_checkpoints,
	  .faults = "not-permitted", .status = STATUS_FAILED, .one_launch = true,
	  .how = "ckpt/ loses its write permission" },
	{ .name = "disk-full", .inject = drill_fill_disk, .check = drill_check_warned,
	  .faults = "", .status = STATUS_DONE, .result = true,
	  .how = "the agents on this host cannot write large files until they warn (RLIMIT_FSIZE)" },
	{ .name = "supervisor-killed", .inject = drill_kill_supervisor,
	  .faults = "", .status = 128 + SIGKILL, .again = true, .result = true,
	  .how = "SIGKILL to muster; the same command is started again" },
	{ .name = "supervisor-stopped", .inject = drill_stop_supervisor, .undo = drill_continue_supervisor,
	  .faults = "", .status = STATUS_DONE, .result = true,
	  .how = "SIGSTOP to muster, and SIGCONT after 3 s" },
	{ .name = "supervisor-ended", .inject = drill_terminate_supervisor,
	  .faults = "", .status = STATUS_STOPPED, .again = true, .result = true,
	  .how = "SIGTERM to muster; the same command is started again" },
	{ .name = "job-wrong", .prepare = drill_remove_data,
	  .faults = "file-missing", .status = STATUS_FAILED, .one_launch = true,
	  .how = "data.path names a file that does not exist" },
	{ .name = "node-agents-killed", .needs = NEEDS_SLURM | NEEDS_NODES, .inject = drill_kill_node_agents,
	  .faults = "agent-killed", .status = STATUS_DONE, .result = true,
	  .how = "SIGKILL to all agents on the node of the last rank" },
	/* The last ones: a node that was down has left the allocation. */
	{ .name = "node-drained", .needs = NEEDS_SLURM | NEEDS_NODES | NEEDS_ALLOW | NEEDS_SPARE,
	  .inject = drill_drain_node, .undo = drill_resume_node,
	  .faults = "agent-killed,node-drain", .status = STATUS_DONE, .result = true,
	  .how = "scontrol sets the node of the last rank to DRAIN; its agent is killed" },
	{ .name = "node-fail", .needs = NEEDS_SLURM | NEEDS_NODES | NEEDS_ALLOW | NEEDS_SPARE,
	  .inject = drill_set_node_fail, .undo = drill_resume_node,
	  .faults = "agent-killed,node-fail", .status = STATUS_DONE, .result = true,
	  .how = "scontrol sets the node of the last rank to FAIL; its agent is killed" },
	{ .name = "node-down", .needs = NEEDS_SLURM | NEEDS_NODES | NEEDS_ALLOW | NEEDS_SPARE,
	  .inject = drill_set_node_down, .undo = drill_resume_node,
	  .faults = "node-down,node-left", .status = STATUS_DONE, .result = true,
	  .how = "scontrol sets the node of the last rank to DOWN, for an allocation with --no-kill" },
	{ .name = NULL },
};

/* clang-format on */

/* Each cell: whether what the bit stands for is missing, and what to do about it. */
static bool is_missing(unsigned need, const struct drill *d)
{
	const struct job *job = d->o->job;
	const char *nodes = getenv("SLURM_JOB_NUM_NODES");
	switch (need) {
	case NEEDS_SLURM:
		return !d->slurm;
	case NEEDS_LOCAL:
		return d->slurm;
	case NEEDS_ROOT:
		return geteuid() != 0;
	case NEEDS_USER:
		return geteuid() == 0;
	case NEEDS_NODES:
		return !nodes || atoi(nodes) < 2;
	case NEEDS_ALLOW:
		return !d->o->allow_node_faults;
	case NEEDS_SPARE:
		return job->restart.shrink == SHRINK_KEEP && !job->slurm.spares;
	case NEEDS_SYNC:
		return job->parallel.sync == SYNC_SERVER;
	case NEEDS_REPLICAS:
		return job->parallel.dp < 2 || job->parallel.zero || job->health.compare_every < 0;
	case NEEDS_RANKS:
		return d->reference.first.world < 3;
	case NEEDS_SCALE:
		return job->precision.dtype == DTYPE_FP16 && job->precision.loss_scale == 0;
	}
	return false;
}

bool drill_injection_possible(const struct injection *i, const struct drill *d, char *why,
			      size_t size)
{
	static const struct {
		unsigned need;
		const char *missing;
	} needs[] = {
		{ NEEDS_SLURM, "it needs a Slurm allocation" },
		{ NEEDS_LOCAL, "it needs a run without Slurm" },
		{ NEEDS_ROOT, "it needs root" },
		{ NEEDS_USER, "root may write everywhere; run it as another user" },
		{ NEEDS_NODES, "it needs more than one node" },
		{ NEEDS_ALLOW, "it changes the state of a node; --allow-node-faults permits it" },
		{ NEEDS_SYNC, "a parameter server keeps a NaN; it needs another [parallel] sync" },
		{ NEEDS_SCALE, "fp16 with a dynamic loss scale skips a step with a NaN" },
		{ NEEDS_REPLICAS,
		  "it needs replicas of all weights that are compared: [parallel] dp above 1 and "
		  "zero = 0, and [health] compare_every of 0 or more" },
		{ NEEDS_RANKS, "it needs 3 ranks, so that one is alone in its collective" },
		{ NEEDS_SPARE, "it needs [slurm] spares, or [restart] shrink = dp or any" },
	};
	for (size_t k = 0; k < sizeof needs / sizeof *needs; k++)
		if (i->needs & needs[k].need && is_missing(needs[k].need, d)) {
			snprintf(why, size, "%s", needs[k].missing);
			return false;
		}
	return true;
}
