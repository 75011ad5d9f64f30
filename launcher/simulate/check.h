/*
 * check — what must hold in every simulation, after every event:
 *
 *   1. One generation lives: once all ranks of a generation were ready, no rank of an earlier one finishes
 *      a step or commits a checkpoint. An agent joins only a generation that it was started for, or that
 *      follows the one that it has left, and none that has failed by an error of its own.
 *   2. No step counts twice, and none is lost: a generation continues from the last committed checkpoint, or
 *      from a later step that the agents have in memory; its metrics follow that step without a gap; and the
 *      run folder has the metrics of all steps up to there, except for those that were lost with the
 *      connection of the rank that sent them before the agents went on from memory.
 *   3. A run never continues from a checkpoint that was not committed, and after wrong numbers never from
 *      what the agents have in memory.
 *   4. When the run is over, no process that can be reached is left, and later none at all.
 *   5. The run ends, or goes on: a while after the last fault it trains or has ended. A lost generation is
 *      followed by another one, by a wait for nodes, or by the end; and a stop by the end.
 *   6. Each lost generation has one event rank-lost and one event fault, and each run one last event.
 *   7. The exit status agrees with what happened.
 *   8. The account of the time of all ranks adds up.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SIMULATE_CHECK_H
#define MUSTER_LAUNCHER_SIMULATE_CHECK_H

#include "launcher/rundir/rundir.h"

#include <stdbool.h>
#include <stdint.h>

enum { CHECK_STEPS = 1 << 16 };

struct simulation;
struct process;
struct crew;

struct check {
	uint32_t trained; /* the last generation of which all ranks were ready */
	double moved;     /* time of the last progress: a step, or the start of a supervisor */
	bool distrust;    /* a generation was lost by wrong numbers, and none has trained since */
	/* the series of metrics that the run folder has */
	uint32_t series; /* the generation of its last line */
	int64_t last;    /* its step */
	bool *seen;      /* [CHECK_STEPS] */
	/* times of a loss that nothing has followed, and of an event stop; 0: there is none */
	double lost_at, stopped_at;
	/* since the last supervisor started: */
	uint32_t generation;       /* that runs */
	int losses, faults;        /* events of that generation */
	bool finished, changes;    /* its event finished; a decision to grow or to leave a node */
	bool told, ended, stopped; /* ckpt: a checkpoint; the last event; an event stop */
	char last_event[32];
};

void simulate_check_supervisor(struct simulation *sim);
void simulate_check_welcome(struct simulation *sim, const struct process *p, uint32_t generation,
			    const char *resume);
/* Whether a message failed is about an error of the agent's own, and not of another rank. */
bool simulate_check_is_own(const json_t *failed);
/* The supervisor sends the agent a message. */
void simulate_check_sent(const struct process *p, enum msg_type type);
void simulate_check_start(struct simulation *sim, const struct crew *c);
void simulate_check_step(struct simulation *sim, const struct crew *c);
void simulate_check_commit(struct simulation *sim, const struct crew *c);
/* A line of a file of the run folder. */
void simulate_check_line(struct simulation *sim, enum rundir_file file, const char *event,
			 const json_t *line);
void simulate_check_time(struct simulation *sim);
void simulate_check_end(struct simulation *sim, int status);
void simulate_check_over(struct simulation *sim);

#endif
