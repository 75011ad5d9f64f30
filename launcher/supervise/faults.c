#include "launcher/supervise/faults.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

/* clang-format off */

/* id, name, owner, retry, counts, of what the node is suspected, text, remedy */
#define FAULTS(X) \
	X(AGENT_KILLED,     "agent-killed",     UNKNOWN, NOW,   true,  NONE,    "a signal from outside ended the agent", "Find what sent the signal: a person, a script, or a limit of the site.") \
	X(AGENT_CRASHED,    "agent-crashed",    UNKNOWN, NOW,   true,  CRASH,   "the agent crashed", "If it returns on one node, test that node's memory and devices; if it returns on all of them, report it with the log of the rank.") \
	X(BUS_ERROR,        "bus-error",        NODE,    NOW,   true,  CRASH,   "the agent got a bus error", "Check on that node that /dev/shm has room (df /dev/shm), and that no file of the data was truncated while it was in use.") \
	X(OUT_OF_MEMORY,    "out-of-memory",    JOB,     NOW,   true,  NONE,    "the kernel's OOM killer ended the agent: its node or its cgroup has no memory left", "Compare the memory of `muster plan` with the node's; lower batch.micro, or request more memory for the job.") \
	X(CPU_LIMIT,        "cpu-limit",        JOB,     NEVER, true,  NONE,    "the agent used all CPU time that its limit permits", "Raise the limit of CPU time (ulimit -t).") \
	X(TASK_FAILED,      "task-failed",      JOB,     NOW,   true,  NONE,    "the task of the program failed", "Read its last lines above, and all of its output with muster logs.") \
	X(TASK_CRASHED,     "task-crashed",     UNKNOWN, NOW,   true,  NONE,    "the task of the program crashed", "Read its output with muster logs; if it returns on one node only, test that node's memory and devices.") \
	X(TASK_KILLED,      "task-killed",      UNKNOWN, NOW,   true,  NONE,    "a signal from outside ended the task of the program", "Find what sent the signal: a person, a script, or a limit of the site.") \
	X(TASK_NO_MEMORY,   "task-out-of-memory", JOB,   NOW,   true,  NONE,    "the kernel's OOM killer ended the task: its node or its cgroup has no memory left", "Use less memory in each task, or request more for the job.") \
	X(TASK_EARLY,       "task-ended-early", JOB,     NOW,   true,  NONE,    "a task of the program ended long before the others", "See with muster logs why the others go on; if tasks may end at different times, raise program.exit_timeout.") \
	X(TASK_NUMERIC,     "task-numeric",     JOB,     NOW,   true,  NONE,    "the program reported a loss that is NaN or infinite", "If it returns at the same step, lower the learning rate, or look at the samples of that step; if it does not, test that node's device.") \
	X(TASK_CONNECTION,  "task-connection",  UNKNOWN, NOW,   true,  NONE,    "the task blames the other end of a connection, but no rank had ended", "Find the other end in its last lines above: if it is a rank, check the network between their nodes; if it is a server, such as one for data, check whether it runs.") \
	X(AGENT_EXITED,     "agent-exited",     UNKNOWN, NOW,   true,  NONE,    "the agent ended without reporting an error", "Read the log of the rank.") \
	X(PROGRAM_MISSING,  "program-missing",  JOB,     ONCE,  true,  NONE,    "the agent, or a library that it needs, cannot be executed", "Install muster in the same place on all nodes; ldd on muster-agent shows which library is missing.") \
	X(FILE_MISSING,     "file-missing",     JOB,     ONCE,  true,  NONE,    "a file or a folder is missing", "Create it, or name another one in the job; every node must see it.") \
	X(NOT_PERMITTED,    "not-permitted",    JOB,     NEVER, true,  NONE,    "the system refuses access", "Correct the permissions of the path, or name another one in the job.") \
	X(DISK_FULL,        "disk-full",        JOB,     NOW,   true,  NONE,    "the disk or the quota is full", "Free space, raise the quota, or lower checkpoint.keep.") \
	X(DISK_ERROR,       "disk-error",       SERVICE, NOW,   true,  NONE,    "a file system failed", "Check the file system of that path, and the kernel's log on the node.") \
	X(DATA_CORRUPT,     "data-corrupt",     JOB,     ONCE,  true,  NONE,    "stored data is damaged", "Use `muster ckpt verify` for checkpoints, and pack damaged data again.") \
	X(JOB_WRONG,        "job-wrong",        JOB,     ONCE,  true,  NONE,    "the job cannot run as it is", "Correct the job as the message says.") \
	X(NUMERIC,          "numeric",          JOB,     NOW,   true,  NONE,    "the loss or the gradients are NaN, infinite, or a spike", "If it returns at the same step, lower optimizer.lr, use bf16, or skip the samples with health.bad_numbers = skip; if it does not, test that node's device.") \
	X(WRONG_RESULTS,    "wrong-results",    NODE,    NOW,   true,  NUMBERS, "a node computed wrong numbers", "Test the memory and the devices of that node.") \
	X(REPLICAS_DIFFER,  "replicas-differ",  NODE,    NOW,   true,  NUMBERS, "ranks that must hold the same numbers hold different ones", "Test the memory and the devices of the nodes that the message names.") \
	X(NO_MEMORY,        "no-memory",        JOB,     NOW,   true,  NONE,    "memory, descriptors or processes are exhausted", "Raise the limit that the message names, or lower batch.micro.") \
	X(DEVICE_LOST,      "device-lost",      NODE,    NOW,   true,  DEVICE,  "a device is lost or broken", "Look at the device with nvidia-smi -q and at the kernel's log (Xid); drain the node.") \
	X(AGENT_STUCK,      "agent-stuck",      NODE,    NOW,   true,  DEVICE,  "an agent of an earlier generation cannot be ended, and may still hold its device", "End it there; if it is stuck in the kernel, reboot the node or reset its driver.") \
	X(PMIX_MISSING,     "pmix-missing",     SERVICE, NEVER, true,  NONE,    "Slurm has no plugin for PMIx", "Install Slurm's mpi/pmix plugin on this host (srun --mpi=list shows what there is), or set launch.pmix = auto.") \
	X(PMIX_REFUSED,     "pmix-refused",     SERVICE, NOW,   true,  NONE,    "the agents cannot use the PMIx server of Slurm's plugin; the next generation gets muster's own", "Install muster with the PMIx that Slurm's plugin uses, or set launch.pmix = muster.") \
	X(HELPER_LOST,      "helper-lost",      NODE,    NOW,   true,  CRASH,   "the helper of the node, which starts its agents, has ended or cannot start them", "Find what ended it: a person, a script, or a limit of the site; the launch log has its words.") \
	X(STEP_ENDED,       "step-ended",       UNKNOWN, NOW,   true,  NONE,    "the job step ended before its agents had finished", "Find what ended it: scancel, or a limit of the site; the launch log has Slurm's words.") \
	X(STEP_REFUSED,     "step-refused",     SERVICE, WAIT,  false, NONE,    "Slurm's controller has no memory for the job step, as in the seconds after its start", "If the controller did not start again, request more memory for the job.") \
	X(CONTROLLER_AWAY,  "controller-away",  SERVICE, WAIT,  false, NONE,    "Slurm's controller (slurmctld) does not answer", "Tell the site's administrators if it does not return.") \
	X(MUNGE_AWAY,       "munge-away",       SERVICE, WAIT,  false, NONE,    "munged does not answer", "Start munged on the node of the supervisor again (systemctl status munge).") \
	X(ALLOCATION_OVER,  "allocation-over",  SERVICE, NEVER, true,  NONE,    "Slurm has ended the job's allocation", "See why: sacct or the log of slurmctld; submit the job again, and it continues from its last checkpoint.") \
	X(NODE_IS_DOWN,     "node-down",        NODE,    NOW,   true,  DOWN,    "Slurm counts the node as down", "See why: scontrol show node.") \
	X(NODE_IS_DRAINED,  "node-drain",       NODE,    NOW,   true,  DOWN,    "the node is being drained", "See why: scontrol show node.") \
	X(NODE_FAILS,       "node-fail",        NODE,    NOW,   true,  DOWN,    "Slurm expects the node to fail", "See why: scontrol show node.") \
	X(NODE_HAS_LEFT,    "node-left",        NODE,    NOW,   true,  DOWN,    "the node no longer belongs to the job", "") \
	X(NODE_UNREACHABLE, "node-unreachable", NODE,    NOW,   true,  SILENT,  "the node cannot be reached", "Check its power and its network.") \
	X(HANG,             "hang",             UNKNOWN, NOW,   true,  HANG,    "the rank made no progress", "Use `muster trace` on the run to see what it waited for and what its threads did.") \
	X(TASK_HANG,        "task-hang",        JOB,     NOW,   true,  NONE,    "the tasks of the program made no progress", "See in the stacks (trace/ of the run folder) and with `muster trace` what they waited for.") \
	X(DEADLOCK,         "deadlock",         JOB,     NOW,   true,  NONE,    "ranks wait for each other in different collectives", "Report it with the flight recorders and stacks in trace/ of the run folder; muster trace shows them.") \
	X(AGENT_STOPPED,    "agent-stopped",    UNKNOWN, NOW,   true,  NONE,    "a signal, a debugger or its cgroup has stopped the agent", "Find what stops processes there: a person, a debugger, or a scheduler that suspends jobs.") \
	X(KERNEL_STUCK,     "kernel-stuck",     NODE,    NOW,   true,  HANG,    "a thread of the agent is stuck in the kernel: a file system or a driver does not answer", "See the file in the stacks (trace/ of the run folder); check that file system, and the kernel's log on the node.") \
	X(SILENCE,          "silence",          NODE,    NOW,   true,  SILENT,  "the agent sent no messages", "Check whether its node is up and not overloaded.") \
	X(CONNECTION_LOST,  "connection-lost",  UNKNOWN, NOW,   true,  NONE,    "the connection to the agent was lost", "If the agent did not end, check the network between its node and the supervisor's.") \
	X(PROTOCOL,         "protocol",         NETWORK, NOW,   true,  NONE,    "a message was damaged or did not follow the protocol", "Set network.integrity = checksum to find the connection that changes data; install the same muster on all nodes.") \
	X(PEER,             "peer",             NETWORK, NOW,   true,  NONE,    "the rank lost its connection to another rank, but no rank had ended", "Check the network between the nodes of these ranks.") \
	X(TIMEOUT,          "timeout",          NETWORK, NOW,   true,  NONE,    "an operation took longer than its limit", "Check the network and the file system of that node; network.timeout sets the limit.") \
	X(START_FAILED,     "start-failed",     UNKNOWN, NOW,   true,  NONE,    "the agents could not be started", "Read the launch log of the generation.") \
	X(BUG,              "bug",              UNKNOWN, NOW,   true,  NONE,    "muster met a state that should not occur", "Report it with the log of the rank.") \
	X(UNKNOWN,          "unknown",          UNKNOWN, NOW,   true,  NONE,    "the cause is not known", "Read the logs of the ranks and the launch log.")

/* clang-format on */

enum fault_id {
#define FAULT_ENUM(id, ...) FAULT_##id,
	FAULTS(FAULT_ENUM)
#undef FAULT_ENUM
		FAULT_COUNT
};

static const struct fault faults[] = {
#define FAULT_ROW(id, name, owner, retry, counts, suspect, text, remedy) \
	{ name, OWNER_##owner, RETRY_##retry, counts, SUSPECT_##suspect, text, remedy },
	FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

/* Symptoms that lead to a fault. A member that is 0 fits every symptom. */
struct sign {
	enum fault_id fault;
	unsigned how; /* bits 1 << lost_how */
	enum err_code code;
	int signal, status;
	bool not_started, oom, silent, helper, refused, wrong, program;
	enum hang_cause hang;
	enum slurm_word said;
	enum node_state node;
};

enum {
	CLOSED = 1 << LOST_CLOSED,
	EXITED = 1 << LOST_EXITED,
	FAILED = 1 << LOST_FAILED,
	SPOKE_BADLY = 1 << LOST_PROTOCOL,
	SILENT = 1 << LOST_SILENT,
	HUNG = 1 << LOST_HUNG,
	START = 1 << LOST_START,
	ENDED = CLOSED | EXITED, /* the process may have ended */
	NO_ERROR = ENDED | SPOKE_BADLY | SILENT | HUNG | START
};

/* clang-format off */

/* The first one that fits counts. */
static const struct sign signs[] = {
	/* the agent's own report is the most precise */
	{ .fault = FAULT_JOB_WRONG,        .how = FAILED, .code = ERR_USAGE },
	{ .fault = FAULT_JOB_WRONG,        .how = FAILED, .code = ERR_UNSUPPORTED },
	{ .fault = FAULT_JOB_WRONG,        .how = FAILED, .code = ERR_NOFIT },
	{ .fault = FAULT_FILE_MISSING,     .how = FAILED, .code = ERR_NOTFOUND },
	{ .fault = FAULT_NOT_PERMITTED,    .how = FAILED, .code = ERR_DENIED },
	{ .fault = FAULT_DATA_CORRUPT,     .how = FAILED, .code = ERR_CORRUPT },
	{ .fault = FAULT_DISK_FULL,        .how = FAILED, .code = ERR_FULL },
	{ .fault = FAULT_DISK_ERROR,       .how = FAILED, .code = ERR_IO },
	{ .fault = FAULT_REPLICAS_DIFFER,  .how = FAILED, .code = ERR_REPLICAS },
	{ .fault = FAULT_WRONG_RESULTS,    .how = FAILED, .wrong = true },
	{ .fault = FAULT_TASK_NUMERIC,     .how = FAILED, .code = ERR_NUMERIC, .program = true },
	{ .fault = FAULT_NUMERIC,          .how = FAILED, .code = ERR_NUMERIC },
	{ .fault = FAULT_NO_MEMORY,        .how = FAILED, .code = ERR_NOMEM },
	{ .fault = FAULT_DEVICE_LOST,      .how = FAILED, .code = ERR_DEVICE },
	{ .fault = FAULT_AGENT_STUCK,      .how = FAILED, .code = ERR_STUCK },
	{ .fault = FAULT_TASK_NO_MEMORY,   .how = FAILED, .code = ERR_TASK, .oom = true },
	{ .fault = FAULT_TASK_CRASHED,     .how = FAILED, .code = ERR_TASK, .signal = SIGSEGV },
	{ .fault = FAULT_TASK_CRASHED,     .how = FAILED, .code = ERR_TASK, .signal = SIGABRT },
	{ .fault = FAULT_TASK_CRASHED,     .how = FAILED, .code = ERR_TASK, .signal = SIGILL },
	{ .fault = FAULT_TASK_CRASHED,     .how = FAILED, .code = ERR_TASK, .signal = SIGFPE },
	{ .fault = FAULT_TASK_CRASHED,     .how = FAILED, .code = ERR_TASK, .signal = SIGBUS },
	{ .fault = FAULT_CPU_LIMIT,        .how = FAILED, .code = ERR_TASK, .signal = SIGXCPU },
	{ .fault = FAULT_TASK_KILLED,      .how = FAILED, .code = ERR_TASK, .signal = -1 },
	{ .fault = FAULT_TASK_FAILED,      .how = FAILED, .code = ERR_TASK, .status = -1 },
	{ .fault = FAULT_TASK_EARLY,       .how = FAILED, .code = ERR_TASK },
	{ .fault = FAULT_BUG,              .how = FAILED, .code = ERR_INTERNAL },
	/* a node that is gone takes its agents with it */
	{ .fault = FAULT_NODE_IS_DOWN,     .node = NODE_DOWN },
	{ .fault = FAULT_NODE_FAILS,       .node = NODE_FAIL },
	{ .fault = FAULT_NODE_HAS_LEFT,    .node = NODE_LEFT },
	{ .fault = FAULT_NODE_UNREACHABLE, .node = NODE_UNREACHABLE },
	{ .fault = FAULT_NODE_IS_DOWN,     .how = NO_ERROR, .said = SLURM_SAID_NODE_FAILED },
	/* agents that are killed with their helper */
	{ .fault = FAULT_PMIX_REFUSED,     .refused = true },
	{ .fault = FAULT_HELPER_LOST,      .how = ENDED, .helper = true },
	{ .fault = FAULT_STEP_ENDED,       .how = ENDED, .said = SLURM_SAID_CANCELLED },
	/* how the process ended */
	{ .fault = FAULT_OUT_OF_MEMORY,    .how = ENDED, .oom = true },
	{ .fault = FAULT_AGENT_CRASHED,    .how = ENDED, .signal = SIGSEGV },
	{ .fault = FAULT_AGENT_CRASHED,    .how = ENDED, .signal = SIGABRT },
	{ .fault = FAULT_AGENT_CRASHED,    .how = ENDED, .signal = SIGILL },
	{ .fault = FAULT_AGENT_CRASHED,    .how = ENDED, .signal = SIGFPE },
	{ .fault = FAULT_AGENT_CRASHED,    .how = ENDED, .signal = SIGTRAP },
	{ .fault = FAULT_AGENT_CRASHED,    .how = ENDED, .signal = SIGSYS },
	{ .fault = FAULT_BUS_ERROR,        .how = ENDED, .signal = SIGBUS },
	{ .fault = FAULT_CPU_LIMIT,        .how = ENDED, .signal = SIGXCPU },
	{ .fault = FAULT_AGENT_KILLED,     .how = ENDED, .signal = -1 },
	{ .fault = FAULT_PROGRAM_MISSING,  .how = NO_ERROR, .said = SLURM_SAID_NO_PROGRAM, .not_started = true },
	{ .fault = FAULT_PROGRAM_MISSING,  .how = NO_ERROR, .status = 126, .not_started = true },
	{ .fault = FAULT_PROGRAM_MISSING,  .how = NO_ERROR, .status = 127, .not_started = true },
	/* why Slurm did not start them; it says little about agents that ran */
	{ .fault = FAULT_PMIX_MISSING,     .how = NO_ERROR, .said = SLURM_SAID_NO_PMIX, .not_started = true },
	{ .fault = FAULT_MUNGE_AWAY,       .how = NO_ERROR, .said = SLURM_SAID_NO_MUNGE, .not_started = true },
	{ .fault = FAULT_CONTROLLER_AWAY,  .how = NO_ERROR, .said = SLURM_SAID_NO_CONTROLLER, .not_started = true },
	{ .fault = FAULT_STEP_REFUSED,     .how = NO_ERROR, .said = SLURM_SAID_NO_MEMORY, .not_started = true },
	{ .fault = FAULT_ALLOCATION_OVER,  .how = NO_ERROR, .said = SLURM_SAID_EXPIRED, .not_started = true },
	{ .fault = FAULT_NODE_IS_DRAINED,  .node = NODE_DRAIN },
	/* what the supervisor saw */
	{ .fault = FAULT_DEADLOCK,         .how = HUNG, .hang = HANG_COLLECTIVES },
	{ .fault = FAULT_AGENT_STOPPED,    .how = HUNG | SILENT, .hang = HANG_STOPPED },
	{ .fault = FAULT_KERNEL_STUCK,     .how = HUNG | SILENT, .hang = HANG_KERNEL },
	{ .fault = FAULT_TASK_HANG,        .how = HUNG, .program = true },
	{ .fault = FAULT_HANG,             .how = HUNG },
	{ .fault = FAULT_CONTROLLER_AWAY,  .how = START | SILENT, .silent = true, .not_started = true },
	{ .fault = FAULT_SILENCE,          .how = SILENT },
	{ .fault = FAULT_PROTOCOL,         .how = SPOKE_BADLY },
	{ .fault = FAULT_TASK_CONNECTION,  .how = FAILED, .code = ERR_PEER, .status = -1, .program = true },
	{ .fault = FAULT_TASK_CONNECTION,  .how = FAILED, .code = ERR_PEER, .signal = -1, .program = true },
	{ .fault = FAULT_PEER,             .how = FAILED, .code = ERR_PEER },
	{ .fault = FAULT_PEER,             .how = FAILED, .code = ERR_ABORTED },
	{ .fault = FAULT_PEER,             .how = FAILED, .code = ERR_NET },
	{ .fault = FAULT_TIMEOUT,          .how = FAILED, .code = ERR_TIMEOUT },
	{ .fault = FAULT_PROTOCOL,         .how = FAILED, .code = ERR_PROTO },
	{ .fault = FAULT_PROTOCOL,         .how = FAILED, .code = ERR_AUTH },
	{ .fault = FAULT_PROTOCOL,         .how = FAILED, .code = ERR_STALE },
	{ .fault = FAULT_JOB_WRONG,        .how = START, .code = ERR_USAGE },
	{ .fault = FAULT_JOB_WRONG,        .how = START, .code = ERR_UNSUPPORTED },
	{ .fault = FAULT_JOB_WRONG,        .how = START, .code = ERR_NOFIT },
	{ .fault = FAULT_FILE_MISSING,     .how = START, .code = ERR_NOTFOUND },
	{ .fault = FAULT_NOT_PERMITTED,    .how = START, .code = ERR_DENIED },
	{ .fault = FAULT_DATA_CORRUPT,     .how = START, .code = ERR_CORRUPT },
	{ .fault = FAULT_DISK_FULL,        .how = START, .code = ERR_FULL },
	{ .fault = FAULT_NO_MEMORY,        .how = START, .code = ERR_NOMEM },
	{ .fault = FAULT_START_FAILED,     .how = START },
	{ .fault = FAULT_AGENT_EXITED,     .how = ENDED, .status = -1 },
	{ .fault = FAULT_CONNECTION_LOST,  .how = CLOSED },
	{ .fault = FAULT_STEP_ENDED,       .how = EXITED },
	{ .fault = FAULT_UNKNOWN },
};

/* clang-format on */

/* -1 in a sign: any signal or status that is known. */
static bool number_fits(int want, int have)
{
	return !want || want == have || (want < 0 && have);
}

static bool sign_fits(const struct sign *g, const struct symptom *s)
{
	return (!g->how || g->how & 1u << s->how) && (!g->code || g->code == s->code) &&
	       number_fits(g->signal, s->signal) && number_fits(g->status, s->status) &&
	       (!g->not_started || !s->started) && (!g->oom || s->out_of_memory) &&
	       (!g->silent || s->manager_silent) && (!g->helper || s->helper_lost) &&
	       (!g->refused || s->pmix_refused) && (!g->hang || g->hang == s->hang) &&
	       (!g->wrong || s->wrong_results) && (!g->program || s->program) &&
	       (!g->said || g->said == s->said) && (!g->node || g->node == s->node);
}

const struct fault *supervise_fault_of(const struct symptom *s)
{
	const struct sign *g = signs;
	while (g->fault != FAULT_UNKNOWN && !sign_fits(g, s))
		g++;
	return &faults[g->fault];
}

const struct fault *supervise_fault_named(const char *name)
{
	for (int i = 0; i < FAULT_COUNT; i++)
		if (!strcmp(faults[i].name, name))
			return &faults[i];
	return NULL;
}

const struct fault *supervise_faults(int *n)
{
	*n = FAULT_COUNT;
	return faults;
}

const char *supervise_owner_word(enum fault_owner o)
{
	static const char *const words[FAULT_OWNERS] = {
		[OWNER_JOB] = "job",         [OWNER_NODE] = "node",
		[OWNER_NETWORK] = "network", [OWNER_SERVICE] = "service",
		[OWNER_UNKNOWN] = "unknown",
	};
	return words[o];
}
