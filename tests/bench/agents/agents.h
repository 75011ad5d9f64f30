/*
 * agents — measures what the supervisor costs by the number of its agents, up to 10,000 on one machine.
 *
 * usage: agents [--each] [NUMBER …]      (multiples of 40; default: 1000 2000 5000 10000)
 *
 * Each number is one run of the real supervisor (supervise_run) in a process of its own, with its
 * listener on loopback, a run folder, and a plan of that many ranks on DGX H100 nodes. Another process,
 * the stand-in, holds the connections of all agents. It computes nothing, but its channels and messages
 * are those of real agents, at the intervals that real agents have: handshake with the secret of the
 * launch, hello, ready, progress, times, health and links of each node by its first rank, metrics,
 * checkpoints, failed, idle, finished. With --each, every agent reports these itself, as those do whose relay
 * is gone. The run
 *   1. starts, until every rank is ready;
 *   2. trains with one step per second;
 *   3. loses a rank whose connection closes, as that of a killed agent, and the ranks of its groups
 *      report that; the others regroup, one agent is started, and all are ready again;
 *   4. loses a rank that falls silent, as that of a process that is stopped;
 *   5. loses a node, which Slurm counts as down, so that the others continue with a smaller plan;
 *   6. stops, until the supervisor has exited.
 *
 * Left out: MUNGE credentials, PMIx, the exchange of endpoints after a loss, and the time that real
 * agents need to start. Two processes on one machine share its cores, so seconds are those of both, and
 * CPU seconds those of one.
 *
 *     main.c       the cases and the table
 *     run.c        one run, and what is measured in it
 *     watch.c      the supervisor's process and its events, seen from outside
 *     supervise.c  the process of the supervisor, and the launch backend that starts stand-ins
 *     stand_in.c   the process of a stand-in: its connections, clock and commands
 *     agent.c      what one agent of it says
 */
#ifndef MUSTER_TESTS_BENCH_AGENTS_H
#define MUSTER_TESTS_BENCH_AGENTS_H

#include <stdbool.h>
#include <sys/types.h>

/* Files in the folder of a run, besides its run folder "run". */
#define AGENTS_COMMANDS \
	"commands" /* FIFO: what a stand-in does to a rank: "close", "mute" or "down" and the rank */
#define AGENTS_STAND_IN "stand-in" /* process id of the first stand-in */
#define AGENTS_SENT     "sent" /* how many messages the first stand-in has sent, and clock_s() then */
#define AGENTS_CLOSED   "closed" /* clock_s() when the last command was obeyed */
#define AGENTS_DOWN     "down"   /* the number of the node that is down; absent: none */

/* A variable of the environment: it is set if each agent reports its progress itself. */
#define AGENTS_EACH "AGENTS_EACH"

enum { AGENTS_TP = 8, AGENTS_PP = 5, AGENTS_NODE = 8, AGENTS_PATH = 512 };

#define AGENTS_STEP_S 1.0 /* seconds of a step */

/* The processes; each returns its exit status. */
int agents_supervise(int n, const char *dir);
int agents_stand_in(const char *dir);

/* What a run measures. Seconds, unless the name says otherwise. */
struct agents_figures {
	double plan; /* from the start of the process to that of the run */
	double start, start_cpu, start_cpu_stand_in; /* to ready */
	double steady_cpu;                           /* CPU seconds per second */
	double steady_messages;                      /* of all agents, per second */
	struct agents_loss {
		double seen;     /* to the loss */
		double back;     /* from there to ready */
		double cpu;      /* meanwhile */
		double replaced; /* agents */
	} kill, silent, node;
	double stop, stop_cpu; /* from the signal to the exit */
	double start_bytes;    /* of memory, from the start to ready */
	double peak_bytes;     /* of memory, in the whole run */
	double descriptors;
	double events_bytes; /* of events.jsonl */
};

/* False: the run failed, and standard error has the reason. */
bool agents_run(int n, struct agents_figures *out);

#endif
