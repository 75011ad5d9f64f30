/*
 * warn — feeds the rules of the warnings, and reports what begins and ends: as an event, on the
 * terminal, and as a notice (notices.h). warnings.h has the rules and the list of what holds.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_WARN_H
#define MUSTER_LAUNCHER_SUPERVISE_WARN_H

#include "launcher/supervise/warnings.h"

enum {
	WARN_SLOW_STEPS = 20, /* for which a rank is slower than its peers */
	WARN_LOOK_S = 5,      /* from one look at what the ranks have reported to the next */
	WARN_STARVED = 3      /* reports in a row in which a rank waits for samples */
};

/* What is above the peers' time is at least this share of the step. */
#define WARN_SLOW_SHARE 0.05

struct warn_state {
	struct warnings rules;
	bool primed;       /* a rank was ready in this `muster run` */
	bool shares_cores; /* agents of the generation share cores */
	/* the share of the time in which the rank that lacked a core most had none; NaN: unknown */
	double coreless;
	/* the share of a step in which the rank that waits for samples most does so; 0: none waits
	 * for long */
	double data;
	int data_rank;
	double looked; /* time of the last look at the ranks; 0: none in this generation */
	int quiet;     /* windows in a row in which no rank was slow */
};

struct supervisor;
struct msg_metrics;

/* Takes the limits of the job. */
void supervise_warn_open(struct supervisor *s);
/* A generation starts: what is known about its ranks is over. */
void supervise_warn_reset(struct supervisor *s);
/* A rank is ready after `step` finished steps. The first time, the losses and norms of earlier runs in
 * the folder become known (warn_prime.c). */
void supervise_warn_ready(struct supervisor *s, int64_t step);
/* The rank has sent the metrics of a step. first: of its generation; it warms up, so its time is not
 * judged. */
void supervise_warn_step(struct supervisor *s, int rank, const struct msg_metrics *m, bool first);
/* The most bytes that the rank has used. */
void supervise_warn_memory(struct supervisor *s, int rank, double bytes);
/* A window in which ranks are compared has ended (stragglers.h). */
void supervise_warn_ranks(struct supervisor *s, double window);
/* Another file of this room has judged a rule. printed: it has told people already. */
void supervise_warn_hold(struct supervisor *s, enum warning_id id, bool holds, const char *text,
			 bool printed);
void supervise_warn_tick(struct supervisor *s);

#endif
