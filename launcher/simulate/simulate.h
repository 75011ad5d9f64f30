/*
 * simulate — a whole run in virtual time, in one process and on one thread.
 *
 * The supervisor is the real one (launcher/supervise). What surrounds it is simulated: agents, the links to
 * them, nodes, Slurm, the checkpoints, and the clock. A seed decides everything that is left to chance:
 * two simulations of the same setup are equal to the last event.
 *
 * After every event the simulation checks what must always hold (check.h). A setup that breaks it names a
 * bug of the supervisor, or of the simulation.
 *
 *     random.c   random numbers by seed
 *     queue.c    virtual time and its events
 *     process.c  the processes of the agents: their starts and ends
 *     agents.c   what an agent does with each message
 *     crew.c     the ranks of one generation, which train together: steps and checkpoints
 *     links.c    the connections between agents and the supervisor
 *     backend.c  the launch backend: starts and ends processes
 *     nodes.c    the nodes, and what Slurm knows of them
 *     faults.c   the table of faults (faults_agents.c, faults_nodes.c: what each of them does)
 *     check.c    what must always hold
 *     chaos.c    a setup by its seed alone, for tests
 *     simulate.c the loop
 *
 * An agent is a light state machine that speaks the messages of base/messages.h. It computes nothing: a
 * step is an event, and all ranks finish it together.
 */
#ifndef MUSTER_LAUNCHER_SIMULATE_SIMULATE_H
#define MUSTER_LAUNCHER_SIMULATE_SIMULATE_H

#include "base/buf.h"
#include "launcher/deployment.h"
#include "launcher/simulate/faults.h"

#include <stdbool.h>
#include <stdint.h>

/* What a stream of random numbers is for (base/random.h). */
enum simulate_stream { STREAM_SHAPE, STREAM_DELAYS, STREAM_FAULTS, STREAM_LENGTH };

/* Planted on purpose, to see that it is found. */
enum simulate_bug {
	BUG_NONE,
	BUG_COMMITS_UNRECORDED, /* a checkpoint, although the run folder may lack metrics up to there */
	BUG_COMMITS_UNHEARD /* a checkpoint, although the supervisor may have given the agent up */
};

struct simulate_setup {
	uint64_t seed;
	struct job job;          /* as it was asked for */
	struct cluster machines; /* all nodes that the run may use */
	struct deployment *first;
	bool slurm; /* the backend is like Slurm's: it does not see the ends of agents, and surveys nodes */
	bool sees_exits; /* under Slurm: the log of a launch tells how its tasks ended */
	/* seconds: of a step; between two heartbeats; between two faults, and the share of the faults
	 * that come within 3 s of the one before */
	double step_s, heartbeat_s, fault_s, burst;
	/* No fault comes after so many seconds, and so many faults. The run is asked to stop if it has not
	 * ended after twice the time. */
	double seconds;
	int most_faults;
	double again; /* how likely a person starts the run again after it was stopped */
	bool insists; /* the person does so also after it has failed or given up, while faults are left */
	double rates[SIMULATE_FAULT_COUNT]; /* relative */
	enum simulate_bug bug;              /* of the agents */
	bool relays; /* the first rank of a node reports the progress of its ranks. A seed is another run then */
};

/* How the ends are counted. */
enum simulate_end {
	END_DONE,
	END_FAILED,
	END_CANNOT_START,
	END_GAVE_UP,
	END_STOPPED,
	SIMULATE_ENDS
};

struct simulate_result {
	bool broken;     /* something does not hold: */
	char why[1000];  /* what */
	struct buf text; /* if it is broken: the faults and the last events */
	uint64_t hash;   /* of everything that happened, in order */
	int faults[SIMULATE_FAULT_COUNT];
	int all_faults;
	int generations, regrouped; /* regrouped: in which agents of the last one lived on */
	int decisions
		[16]; /* by enum recovery of launcher/supervise/policy.h, if it is not `same` */
	int requeues, supervisors;
	int ends[SIMULATE_ENDS];
	int64_t steps,
		repeated; /* that were finished; of these, those that had been finished before */
	int late;         /* steps of agents that were cut off, while the next generation trained */
	uint64_t events;
	double seconds; /* of virtual time */
};

/* Makes the setup of this seed: a small cluster, a small job, and any of the faults. faults: the run is so long
 * that it meets about so many; 0: a short run, of some 30. */
int simulate_chaos(uint64_t seed, int faults, struct simulate_setup *out, struct err *e);
void simulate_setup_free(struct simulate_setup *s);

/* Runs it. The run folder is made in `folder`, and stays. -1: the simulation itself failed. The caller
 * frees result->text. */
int simulate_run(const struct simulate_setup *setup, const char *folder,
		 struct simulate_result *result, struct err *e);

#endif
