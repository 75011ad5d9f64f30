/*
 * keeper — the small process between the agent and a task.
 *
 *   agent ── keeper ── the program ── its processes
 *
 * Whatever ends first, nothing of the task remains:
 *   - The program ends: what is left of the task has `grace_s` to end by itself, then it is killed.
 *   - The agent ends, also by SIGKILL: its end of the socket closes, and the keeper kills all.
 *   - The keeper is killed: the program dies with it (PR_SET_PDEATHSIG), and the rest falls to the
 *     agent, which kills it (process.c).
 * The keeper and the agent are subreapers (prctl(2)): a process whose parent has ended, such as a
 * daemon that forked twice, becomes a child of the keeper, which waits for it too. The keeper leads
 * a session of its own, so that what kills the group of the agent does not kill both.
 *
 * It is `muster-agent keep`, executed by the agent with these descriptors:
 *   0 /dev/null, 1 and 2 the program's output, KEEPER_SOCKET a SOCK_SEQPACKET to the agent,
 *   KEEPER_TASK a file with a struct keeper_task, and KEEPER_CLIENT the client channel, if the
 *   program gets one.
 * Over the socket the agent sends struct keeper_order, the keeper struct keeper_report.
 */
#ifndef MUSTER_AGENT_TASK_KEEPER_H
#define MUSTER_AGENT_TASK_KEEPER_H

#include "agent/task/tree.h"

#include "base/process_stat.h"

#include <stdint.h>

enum { KEEPER_SOCKET = 3, KEEPER_TASK, KEEPER_CLIENT, KEEPER_OTHERS };
enum { TASK_CLIENT = 3 }; /* the client channel in the program */

/* After it follow the words of the command and the variables, each with its NUL. */
struct keeper_task {
	uint32_t words, variables;
	uint32_t mask;   /* umask */
	uint32_t client; /* whether there is a KEEPER_CLIENT */
	double grace_s;
};

struct keeper_order {
	int32_t signal; /* to the program's process group; 0: kill all that is left */
};

enum keeper_kind {
	KEEPER_STARTED, /* value: pid */
	KEEPER_FAILED,  /* value: errno; the program cannot be executed */
	KEEPER_ENDED,   /* value: the wait status of the program; and what it used */
	KEEPER_GONE,    /* value: how many other processes were killed; name: of the first */
};

struct keeper_report {
	int32_t kind, value;
	double user_s, system_s;
	double rss; /* bytes; the most of one process */
	char name[PROCESS_NAME];
};

/* The main of the tool. Returns its exit status: 0, or 2 if the descriptors are others. */
int task_keeper_main(void);

#endif
