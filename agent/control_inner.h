/*
 * control_inner — the state of the control channel, for control.c (the thread, and what the trainer
 * calls), control_await.c (what it waits for), control_report.c (what it reports) and control_messages.c
 * (what the supervisor sends) only.
 */
#ifndef MUSTER_AGENT_CONTROL_INNER_H
#define MUSTER_AGENT_CONTROL_INNER_H

#include "agent/connection.h"
#include "agent/control.h"
#include "agent/examine.h"
#include "agent/node_member.h"
#include "agent/node_relay.h"
#include "agent/pace.h"
#include "agent/reports.h"
#include "agent/times.h"

#include <pthread.h>
#include <stdatomic.h>

enum { STOP_NONE, STOP_NOW, STOP_CHECKPOINT };

struct control {
	int wake_fd, signal_fd;
	pthread_t thread;
	json_t *welcome_body; /* `welcome` borrows from it */
	struct msg_welcome welcome;
	/* seconds, and times; used by the control thread only */
	double heartbeat_s, progress_s, next_beat, next_look;
	uint64_t sent_count;              /* `count` of the last message progress */
	struct examinations examinations; /* used by the control thread only */
	/* one at most; both used by the control thread only */
	struct node_relay *relay;   /* this rank is its node's relay */
	struct node_member *member; /* it reports to its node's relay */
	bool served;                /* ... which handed its reports on at the last look */

	pthread_mutex_t lock; /* connection, leaving, reason, on_abort, on_dump, on_collect */
	pthread_cond_t news;  /* one of the next members has changed */
	struct connection *connection;
	bool leaving, given_up;
	/* the generation is over and this process goes on; it has said that it is idle */
	bool regroups, idle;
	json_t *next;      /* body of the next generation's welcome; NULL: it has not come */
	json_t *endpoints; /* of the ranks from 0 on that have come */
	int64_t recorded;  /* the run folder holds the metrics up to this step */
	double contact;    /* when the supervisor's host was last reached: connection.h */
	int awaited;       /* ranks whose endpoints the trainer waits for */
	char reason[sizeof(((struct err *)0)->text)];
	void (*on_abort)(const char *reason, void *arg);
	void *on_abort_arg;
	int (*on_dump)(void *arg, struct err *e);
	void *on_dump_arg;
	void (*on_collect)(int rank, const char *node, void *arg);
	void *on_collect_arg;

	atomic_bool closing, finished;
	atomic_int awaits_contact; /* threads that do */
	atomic_int stop, save;     /* save: the highest number of the message */
	/* of the message stop, set before `stop`; the first one counts */
	char stop_reason[200];
	int64_t stop_at;
	double stop_reach_s;
	_Atomic(double) leave_s;
	atomic_llong trace; /* the last message: number << 32 | steps */
	atomic_llong step;
	atomic_ullong count;
	atomic_llong active;
	struct pace pace;
	struct times times;
	struct reports reports;
	_Atomic(const char *) phase;
};

/* control_report.c */
/* The welcome says how often the agent reports, and to whom. On the control thread, or before it runs. */
int agent_control_begin_reports(struct control *c, const struct msg_welcome *welcome,
				struct err *e);
/* Reports what is due: the progress in each heartbeat, and when the trainer has moved; and the times. */
void agent_control_report(struct control *c);
/* From now on this agent relays nothing, and uses no relay. */
void agent_control_end_reports(struct control *c);
/* The body of the message progress, a new reference. Any thread. */
json_t *agent_control_progress_json(struct control *c);

/* control.c */
/* Makes the control thread look for what there is to do. */
void agent_control_wake(struct control *c);
/* Bytes that wait for the supervisor. */
size_t agent_control_backlog(struct control *c);

/* control_messages.c */
/* Sends and receives without waiting and handles each message. An error means that the agent must
 * leave. */
int agent_control_exchange_messages(struct control *c, struct err *e);
/* The agent must leave: calls on_abort unless that was done, once. The lock is held meanwhile, so that
 * agent_control_on_abort(NULL) waits until it has returned. */
void agent_control_start_leaving(struct control *c, const char *reason);

#endif
