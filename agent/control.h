/*
 * control — the agent's end of the control channel.
 *
 * A thread of its own owns the socket. It sends what the trainer queues and the heartbeats, and it
 * handles stop, regroup and abort at once, whatever the trainer is doing. If the connection is lost or the
 * supervisor sends abort, the thread calls `on_abort` (the trainer's communicators are aborted) and
 * ends the process within a second. So no agent is left behind, even if the trainer is inside a
 * library that does not return.
 *
 * If the supervisor's host fails, it closes nothing. The connection counts as lost when that host
 * has not answered for 20 s (base/net.h): longer than the 15 s after which the supervisor counts a
 * rank as dead, so that a short outage of the network is judged by the supervisor alone, which can
 * restart the run, and short enough that agents are gone before the job starts again. Meanwhile the agent
 * may train, but it commits no checkpoint (agent_control_await_contact). A supervisor that is stopped loses no
 * agent, however long: its host still answers.
 *
 * If the node has several ranks, their progress, times and reports (MSG_REPORTS of base/rank_rows.h) take
 * another way while it works: to the first rank of the node, which reports them together with its own
 * (node_relay.h).
 *
 * SIGTERM, SIGINT and SIGUSR1 do not end an agent. It reports them to the supervisor, which
 * decides. Therefore main() calls agent_control_block_signals() first.
 */
#ifndef MUSTER_AGENT_CONTROL_H
#define MUSTER_AGENT_CONTROL_H

#include "agent/engine/train/times.h"
#include "base/err.h"
#include "base/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct control;
struct voucher; /* base/auth.h */

struct control_options {
	const char *address; /* of the supervisor */
	const char *secret;  /* hex */
	uint32_t generation;
	int rank, world;
	const char *node;
	/* the supervisor must present a MUNGE credential; NULL: the secret is enough */
	const struct voucher *voucher;
};

/* Call before any thread is created: threads inherit the mask. */
void agent_control_block_signals(void);

/* Connects, authenticates, sends hello and waits for the welcome. *welcome belongs to the control
 * and is valid until it is closed. */
int agent_control_open(const struct control_options *opt, struct control **out,
		       const struct msg_welcome **welcome, struct err *e);
/* The agent has left its generation: waits until the supervisor regroups, answers, and waits for the
 * welcome of the next generation, which replaces the last one. ERR_ABORTED: the agent must leave. The
 * functions on_abort and on_dump must be NULL. */
int agent_control_await_next(struct control *c, const struct msg_welcome **welcome, struct err *e);
/* Whether the supervisor has ended the generation, and this process goes on. */
bool agent_control_regroups(struct control *c);
/* Publishes this rank's endpoints (NULL: none), and waits for those of `n` ranks: a new list of objects,
 * in their order. Only an agent that publishes asks for ranks by their numbers; the others get those of
 * rank 0. ERR_ABORTED: the agent must leave, or the generation is over. */
int agent_control_exchange(struct control *c, json_t *values, const int *ranks, int n,
			   json_t **wanted, struct err *e);
/* Wipes the welcome's group_secret from memory; the member becomes NULL. */
void agent_control_wipe_secret(struct control *c);
/* Sends what is queued, for at most a second, and closes. If the agent must leave, it only returns,
 * and the control thread ends the process. Takes NULL. */
void agent_control_close(struct control *c);

/* The address, without port, of the interface that leads to the supervisor. */
const char *agent_control_local_address(const struct control *c);

/* Sets the function that is called once when the agent must leave, or when its generation is over: on
 * the control thread, or on the caller's if that is already so. It must neither log nor send. With NULL,
 * no call is under way or follows after this has returned. */
void agent_control_on_abort(struct control *c, void (*fn)(const char *reason, void *arg),
			    void *arg);

/* Sets the function that writes the flight recorder. The control thread calls it whenever the
 * supervisor sends dump. It must neither log, send nor wait. 0, or DUMP_LATER: it answers by the message
 * dumped later. NULL: as above. */
enum { DUMP_LATER = 1 };
void agent_control_on_dump(struct control *c, int (*fn)(void *arg, struct err *e), void *arg);

/* Sets the function that collects logs: fn(rank, node, arg) is called whenever the supervisor sends
 * collect, as that of on_dump. It answers later with the message collected. NULL: as above. */
void agent_control_on_collect(struct control *c, void (*fn)(int rank, const char *node, void *arg),
			      void *arg);

/* Queues a message. Any thread. Steals the reference to body. Sends the progress before "failed", and
 * the times and reports before "finished", "idle" and "failed". */
void agent_control_send(struct control *c, enum msg_type type, json_t *body);
/* Queues a message of MSG_REPORTS, as above, and gives it its number. Later: it may wait for a few seconds, and
 * goes with the reports of the node if it can; if the next one of its type comes before that, only this one is
 * sent. At once: one that must arrive even if this process dies in the next moment. */
void agent_control_report_later(struct control *c, enum msg_type type, json_t *body);
void agent_control_report_at_once(struct control *c, enum msg_type type, json_t *body);
/* Whether so much is queued that whoever sends on behalf of others should wait. */
bool agent_control_is_busy(struct control *c);
/* Notes the step and phase that the trainer is in. Cheap: it makes no system call. The supervisor
 * gets it with every heartbeat and, if it has changed, within 0.1 s (later in a world of more than 100
 * ranks). phase: a literal such as "forward". */
void agent_control_progress(struct control *c, int64_t step, const char *phase);
/* Notes progress inside a phase that takes long. Any thread. */
void agent_control_moved(struct control *c);
/* Notes that the task of a program computes or prints, which need not be progress. Any thread. */
void agent_control_active(struct control *c);
/* Notes a finished step. seconds: the part of it that the rank spent on its samples, on forward and
 * on backward, without waiting for other ranks. Only the training thread calls it. */
void agent_control_worked(struct control *c, double seconds);
/* Notes where the training thread's time went, which the supervisor gets every few seconds once it
 * knows that the rank is ready. at_once: it gets this one now, unless it has just got another. Only the
 * training thread calls it. */
void agent_control_times(struct control *c, const struct train_times *times, bool at_once);
/* The thread that trains; 0: it has not finished a step. And the step that it is in. Any thread. */
int agent_control_trainer(struct control *c);
int64_t agent_control_step(struct control *c);
/* Waits until the run folder holds all metrics and evaluations up to this step, whichever rank sent
 * them. ERR_IO: they are not there after `seconds`. ERR_ABORTED: the agent must leave, or
 * agent_control_give_up() was called. Any thread. */
int agent_control_await_recorded(struct control *c, int64_t step, double seconds, struct err *e);
/* Waits until the supervisor's host is known to have received something that this agent has sent lately, so
 * that the supervisor cannot have given this agent up: what an agent of an ended generation must not do, it
 * does right after this. ERR_ABORTED: as above. Any thread. */
int agent_control_await_contact(struct control *c, struct err *e);
/* This rank has failed: agent_control_await_recorded() and agent_control_await_contact() return at once, now
 * and later. */
void agent_control_give_up(struct control *c);
/* Whether the supervisor has sent stop; *checkpoint: whether to write a checkpoint first. */
bool agent_control_stopping(struct control *c, bool *checkpoint);
/* The supervisor's request to stop. */
struct stop_request {
	const char *reason; /* for people; valid until the agent leaves */
	int64_t at_step;    /* the step after which a program stops; 0: at once */
	double reach_s;     /* seconds in which it should have finished that step */
};
/* Whether the supervisor has sent it; sets *request. */
bool agent_control_stop_asked(struct control *c, struct stop_request *request);
/* How long the control thread waits, after it has called on_abort, for the main thread to end the
 * process: the time that it needs to end a task. */
void agent_control_allow_to_leave(struct control *c, double seconds);
/* The number of the last checkpoint that the supervisor has asked for in this generation; 0: none. */
int agent_control_save_asked(struct control *c);
/* The number of the last request in this generation to record steps, and *steps; 0: there is none. */
int agent_control_trace_asked(struct control *c, int *steps);

#endif
