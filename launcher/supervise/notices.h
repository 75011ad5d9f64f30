/*
 * notices — tells people outside of the terminal what happens to the run, as [notify] of the job asks
 * (launcher/notify/notify.h sends it; plan/spec/job/notify.h lists the kinds).
 *
 * Nothing here waits, except supervise_notices_close() for at most NOTICES_LAST_S.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_NOTICES_H
#define MUSTER_LAUNCHER_SUPERVISE_NOTICES_H

#include "launcher/supervise/warnings.h"
#include "plan/spec/job/notify.h"

enum { NOTICES_LAST_S = 5 };

struct notices_state {
	struct notify *notify; /* NULL: nobody is notified */
	char loss[600];        /* what the last generation was lost by; "": nothing */
};

struct supervisor;

/* If notifications cannot be sent, a person is told, and the run goes on without them. */
void supervise_notices_open(struct supervisor *s);
/* Prints what was not delivered. */
void supervise_notices_close(struct supervisor *s);
/* Prints why notifications are not delivered, once for each cause. */
void supervise_notices_tick(struct supervisor *s);

/* Every rank is ready: the training begins, or goes on. */
void supervise_notice_ready(struct supervisor *s);
/* A generation is lost, and s->cause says why. who, why: for people. */
void supervise_notice_loss(struct supervisor *s, const char *who, const char *why);
/* A warning begins or ends; its state is in s->warn. */
void supervise_notice_warning(struct supervisor *s, enum warning_id id);
/* The run ends; s->status is set. */
void supervise_notice_end(struct supervisor *s);

#endif
