/*
 * times — accounts for the time of all ranks (account.h) as the run goes on, and writes time.jsonl
 * (launcher/rundir/time.h): when a generation starts, when it is ready if steps were lost, when a
 * checkpoint is committed, when the ranks stop training, at the end, and otherwise every TIMES_S
 * seconds.
 *
 * The devices of the run are those of its GPU nodes in the allocation, because these are paid for whether
 * a rank uses them or not. A node without GPUs, and this host, have as many as the first generation has
 * ranks there; a spare node without GPUs, as many as the fullest one.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_TIMES_H
#define MUSTER_LAUNCHER_SUPERVISE_TIMES_H

#include "base/err.h"
#include "launcher/supervise/account.h"

enum {
	TIMES_S = 60,
	TIMES_READ = 1 << 20 /* bytes of the lines of earlier runs that a restart may go back to */
};

struct times_state {
	struct account account; /* its time begins at s->opened */
	double due;             /* time of the next line */
};

struct supervisor;
struct msg_times;

/* Continues the sums of earlier runs in this folder. */
int supervise_times_open(struct supervisor *s, struct err *e);
void supervise_times_close(struct supervisor *s);

/* s->state is new, or what follows it. */
void supervise_times_enter(struct supervisor *s);
/* A generation starts. */
void supervise_times_generation(struct supervisor *s);
/* A rank of a program has finished its first step, `seconds` after its task started without that step;
 * it continues from `step`. */
void supervise_times_began(struct supervisor *s, int rank, int64_t step, double seconds);
void supervise_times_ready(struct supervisor *s, int rank, int64_t step);
/* ERR_PROTO: the message is invalid. */
int supervise_times_note(struct supervisor *s, int rank, const struct msg_times *m, struct err *e);
void supervise_times_finished(struct supervisor *s, int rank);
void supervise_times_tick(struct supervisor *s);
/* Writes a line. */
void supervise_times_write(struct supervisor *s);
/* The line of this moment, for state.json. A new reference; NULL: no memory. */
json_t *supervise_times_json(struct supervisor *s);
/* The run has ended: settles what is open, and writes the last line. */
void supervise_times_end(struct supervisor *s);
/* Whether the goodput is known: a program need not report its steps. */
bool supervise_times_tell(const struct supervisor *s);
/* Prints the share of the time that counts, and the largest losses. */
void supervise_times_print(struct supervisor *s);

/* What the rank has reported in this generation; all zero: nothing. */
const struct account_report *supervise_times_of(const struct supervisor *s, int rank);
/* The parts of all ranks up to now, in microseconds. */
const int64_t *supervise_times_parts(struct supervisor *s);

#endif
