/*
 * reports — what a rank reports now and then besides its progress and times (MSG_REPORTS of
 * base/rank_rows.h): the newest message of each type that is not on its way to the supervisor yet.
 *
 * It numbers the messages, because the next one may overtake one that waits with the relay of the node. Any
 * thread may call these functions.
 */
#ifndef MUSTER_AGENT_REPORTS_H
#define MUSTER_AGENT_REPORTS_H

#include "base/rank_rows.h"

#include <pthread.h>
#include <stdint.h>

struct reports {
	pthread_mutex_t lock;
	int64_t last[REPORTS_COUNT];    /* numbers */
	json_t *waiting[REPORTS_COUNT]; /* NULL: none */
	int64_t number[REPORTS_COUNT];  /* of the one that waits */
};

void agent_reports_init(struct reports *r);
void agent_reports_fini(struct reports *r);

/* Gives a message that is sent now its number. The one that waits, which is older, is dropped. */
void agent_reports_overtake(struct reports *r, int report, json_t *body);
/* Gives the message its number and keeps it; the one that waits is dropped. Steals the reference. */
void agent_reports_keep(struct reports *r, int report, json_t *body);
/* The one that waits, a new reference, and its number. NULL: none. */
json_t *agent_reports_waiting(struct reports *r, int report, int64_t *number);
/* The one of this number is on its way. */
void agent_reports_settle(struct reports *r, int report, int64_t number);

#endif
