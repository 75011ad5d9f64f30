/*
 * faults — the table of faults that a simulated run can meet.
 *
 * To add a fault: add its row here, and its function simulate_inject_… to faults_agents.c or faults_nodes.c. A
 * function that cannot do its fault now, because there is no agent in that state, does nothing and returns
 * false.
 */
#ifndef MUSTER_LAUNCHER_SIMULATE_FAULTS_H
#define MUSTER_LAUNCHER_SIMULATE_FAULTS_H

#include <stdbool.h>

/* clang-format off */

/* id, function, name, rate in the chaos of the tests (relative), only under Slurm, doc */
#define SIMULATE_FAULTS(X) \
	X(KILLED, kill_agent,        "agent-killed",       10, false, "a signal ends an agent") \
	X(EXITS, exit_agent,         "agent-exits",         3, false, "an agent exits without a word") \
	X(FAILS, fail_agent,         "agent-fails",         6, false, "an agent fails with an error of its own") \
	X(BLAMES, blame_peer,        "agent-blames",        3, false, "an agent blames another rank, which is well") \
	X(LATE_BLAME, blame_late,    "agent-blames-late",   2, false, "an agent dies, and the others blame it before its end is seen") \
	X(HANGS, hang_agent,         "agent-hangs",         4, false, "the training thread of an agent stands still, for a while or for ever") \
	X(FREEZES, freeze_agent,       "agent-freezes",       4, false, "a whole agent stands still, for a while or for ever") \
	X(STUCK, stick_agent,         "agent-stuck",         1, false, "an agent stands still in the kernel, and no signal ends it for a while") \
	X(NODE_LOST, lose_node,     "node-lost",           5, true,  "a node loses its power, and returns later") \
	X(TWO_NODES, lose_two_nodes,     "two-nodes-lost",      2, true,  "two nodes lose their power at once") \
	X(NODE_CUT, cut_node,      "node-cut",            4, true,  "a node is cut off from the network for a while") \
	X(LINK_RESET, reset_link,    "link-reset",          4, false, "the connection of an agent is lost, and the agent lives") \
	X(LINKS_RESET, reset_links,   "links-reset",         2, true,  "the connections of all agents of a node are lost") \
	X(LINK_SLOW, slow_link,     "link-slow",           3, false, "the messages of an agent take seconds for a while") \
	X(NODE_LEFT, leave_job,     "node-left",           1, true,  "a node dies, and leaves the job for good; another one is free later") \
	X(NODE_DRAINED, drain_node,  "node-drained",        2, true,  "Slurm drains a node for a while; its processes live on") \
	X(HELPER_LOST, end_helper,   "helper-lost",         2, true,  "the helper of a node ends, and its agents with it") \
	X(PMIX_REFUSED, refuse_pmix,  "pmix-refused",      0.5, true,  "the agents of the next start cannot use PMIx") \
	X(SLOW_RANK, slow_agent,     "rank-slow",           2, false, "an agent computes several times slower from now on") \
	X(START_FAILS, fail_starts,   "start-fails",         2, false, "the next start of agents fails, or the next few ones") \
	X(DIES_STARTING, die_starting, "dies-starting",       4, false, "an agent of the next start dies before or soon after its hello") \
	X(LATE_STARTING, start_late, "late-starting",       1, false, "an agent of the next start takes minutes to start") \
	X(DIES_LEAVING, die_leaving,  "dies-leaving",        4, false, "an agent dies while it leaves a lost generation, or soon after") \
	X(STUBBORN, be_stubborn,      "stubborn",            2, false, "an agent does not leave the next lost generation") \
	X(BAD_STEP, meet_bad_step,      "bad-step",            2, false, "the numbers of the next step are bad") \
	X(WRONG_NUMBERS, trace_numbers, "wrong-numbers",       1, false, "an agent finds wrong numbers and traces them to a rank") \
	X(CKPT_FAILS, fail_ckpt,    "ckpt-fails",          2, false, "the next checkpoint is not committed, and the rank that writes it fails") \
	X(CKPT_SLOW, slow_ckpt,     "ckpt-slow",           2, false, "the next checkpoint takes half a minute") \
	X(CKPT_UNSEEN, hide_ckpt,   "ckpt-unseen",         2, false, "world rank 0 dies between the commit and its message") \
	X(SLURM_SILENT, silence_slurm,  "slurm-silent",        3, true,  "the controller does not answer for a while") \
	X(REQUEUE_FAILS, refuse_requeue, "requeue-refused",     1, true,  "the next requeues are refused") \
	X(PROTOCOL, send_wrongly,      "protocol",            2, false, "an agent sends a message at the wrong time") \
	X(SIGNAL, ask_to_stop,        "signal",            0.3, false, "the run is asked to stop") \
	X(SIGNALLED, signal_agent,     "agent-signalled",   0.2, false, "an agent gets SIGTERM, which asks the run to stop") \
	X(STOP_NOW, stop_now,      "stop-now",          0.2, false, "the run is asked to stop at once") \
	X(TIME_LIMIT, reach_time_limit,    "time-limit",        0.3, true,  "the time limit of the job comes") \
	X(PREEMPTED, preempt,     "preempted",         0.2, true,  "the job is preempted with a short time of grace") \
	X(SUSPENDED, suspend,     "suspended",           3, false, "the supervisor does not run for a while") \
	X(SUP_KILLED, kill_supervisor,    "supervisor-killed",   2, false, "the supervisor is killed, and another one continues the run")

/* clang-format on */

/* Seconds within which a fault of a burst follows the one before. */
enum { SIMULATE_BURST = 3 };

enum simulate_fault {
#define SIMULATE_FAULT_ENUM(id, ...) SIMULATE_##id,
	SIMULATE_FAULTS(SIMULATE_FAULT_ENUM)
#undef SIMULATE_FAULT_ENUM
		SIMULATE_FAULT_COUNT
};

struct simulate_fault_row {
	const char *name;
	double rate;
	bool slurm;
	const char *doc;
};

struct simulation;

#define SIMULATE_FAULT_FUNCTION(id, function, ...) \
	bool simulate_inject_##function(struct simulation *sim);
SIMULATE_FAULTS(SIMULATE_FAULT_FUNCTION)
#undef SIMULATE_FAULT_FUNCTION

const struct simulate_fault_row *simulate_fault_row(enum simulate_fault f);

#endif
