/*
 * program — what the supervisor does only for a program of the user (job.program).
 *
 * The agents of such a run train nothing. Each starts one task, a process of the program with all its
 * descendants, and reports about it. Here are
 *   - the place of each task: its number on its node, and the number of its node (struct msg_program);
 *   - the address at which the tasks meet: rank 0's agent publishes it, and every agent gets it once
 *     all have connected, so that no task starts before the others can;
 *   - the output of tasks, for the terminal, and the last lines of a task that has failed;
 *   - tasks that exit with status 0 while others go on, and programs that print nothing for too long;
 *   - what the program reports through the client (agent/client/): its first step and its checkpoints.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_PROGRAM_H
#define MUSTER_LAUNCHER_SUPERVISE_PROGRAM_H

#include "base/err.h"
#include "base/messages.h"
#include "base/process_id.h"
#include "launcher/supervise/step_rate.h"

#include <stdbool.h>
#include <stdint.h>

struct supervisor;

struct program_rank {
	int local_rank, group_rank;
	int first,
		next; /* rank of the node's first task; rank of the next one, -1: it is the last */
	struct process_id task; /* its main process; pid 0: it has not started */
	int status;             /* of a task that has failed, as waitpid() sets it; -1: none has */
	json_t *last_lines;     /* of its output; NULL: none */
	bool gap;               /* the terminal lacks lines of it */
	int64_t left_out;       /* how many, since the terminal last said so */
	int failing;            /* its number among the tasks that have failed; 0: it has not */
};

struct program_state {
	struct program_rank *ranks; /* [most]; NULL: the run has no program */
	int groups;                 /* nodes that have tasks */
	int *last_of;          /* [nodes]: the last rank of each so far, while they are numbered */
	json_t *meeting;       /* what rank 0 has published; NULL: nothing yet */
	int *failed;           /* [most]: the ranks of tasks that have failed, in that order */
	int failing;           /* how many */
	int ended;             /* so many of them from the first one on have sent how they ended */
	bool began;            /* a rank of this generation has reported its first step */
	double start_s;        /* the longest time from a task's start to its first step */
	struct step_rate rate; /* of the reported steps */
	json_t *printed_lines; /* of the last loss; NULL: none. It outlives generations */
	/* All tasks have exited with 0. Only the program knows when it is done: if it was asked to stop
	 * before, it counts as stopped. */
	bool done;
	int exited_rank; /* the first task that has exited with 0; -1: none */
	double exited_at, printed_at, ready_at; /* times */
	bool idle_said;                         /* a person was told of an idle rank */
};

int supervise_program_open(struct supervisor *s, struct err *e);
void supervise_program_close(struct supervisor *s);
/* A generation begins. */
void supervise_program_reset(struct supervisor *s);
/* The member `program` of the rank's welcome, a new reference; NULL: no memory. */
json_t *supervise_program_place(const struct supervisor *s, int rank);

/* Rank 0's agent publishes where the tasks meet. */
int supervise_program_publish(struct supervisor *s, int rank, json_t *values, struct err *e);
/* Sends it to all agents if it is known and all have connected. */
void supervise_program_meet(struct supervisor *s);
void supervise_program_note_task(struct supervisor *s, int rank, const struct msg_task *m);
void supervise_program_note_began(struct supervisor *s, int rank, const struct msg_began *m);
void supervise_program_note_ckpt(struct supervisor *s, const struct msg_client_ckpt *m);
/* The rank's task has failed. Its last lines come with the message failed, once its descendants have
 * ended, and tasks that failed because of it may be faster with theirs. */
void supervise_program_note_failing(struct supervisor *s, int rank);
/* Whether the task of another rank, of which the message failed has not come yet, failed earlier. */
bool supervise_program_failed_later(struct supervisor *s, int rank);
/* Of the message failed. */
void supervise_program_note_end(struct supervisor *s, int rank, const struct msg_failed *m);
/* The rank's task has exited with 0. */
void supervise_program_note_exit(struct supervisor *s, int rank);

/* Every tick. */
void supervise_program_watch(struct supervisor *s);
/* The step after which every rank stops; 0: at once. Steps that ranks may finish before the request has
 * come are left to them. */
int64_t supervise_program_stop_step(const struct supervisor *s);
/* Seconds until all ranks have probably reported that step; 0 without steps. */
double supervise_program_reach_seconds(const struct supervisor *s);
/* Every tick while it trains: counts steps for these two. */
void supervise_program_note_steps(struct supervisor *s);
/* Whether [restart] retry_on permits a restart after the loss. If not, `e` says why. */
bool supervise_program_may_retry(const struct supervisor *s, struct err *e);
/* A generation that ran for a minute has made progress, if the program reports no steps. */
void supervise_program_judge_progress(struct supervisor *s);

/* program_output.c */
/* Whether [program] show has the terminal show the output of this rank. */
bool supervise_program_is_shown(const struct supervisor *s, int rank);
void supervise_program_note_output(struct supervisor *s, int rank, const struct msg_output *m);
/* Prints how many lines of each rank are left out, if there is room for it again. */
void supervise_program_say_gaps(struct supervisor *s);
/* The generation or the run ends: what supervise_program_say_gaps() had no room for is said in one line. */
void supervise_program_end_output(struct supervisor *s);
/* Prints the last lines of the task that was lost first. */
void supervise_program_print_lines(struct supervisor *s);

#endif
