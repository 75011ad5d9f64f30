/* program_inner — the state of a task's run, for agent/program*.c only. */
#ifndef MUSTER_AGENT_PROGRAM_INNER_H
#define MUSTER_AGENT_PROGRAM_INNER_H

#include "agent/rank_log.h"
#include "agent/meeting.h"
#include "agent/program.h"
#include "agent/task/activity.h"
#include "agent/task/client.h"
#include "agent/task/output.h"
#include "agent/task/process.h"
#include "agent/watch.h"
#include "plan/spec/job/job.h"

#include <pthread.h>
#include <stdatomic.h>

/* Of output that waits to be sent: lines, and bytes of a line. As JSON, in which bytes may be escaped, they
 * fit into a message. */
enum { SHOWN_LINES = 256, SHOWN_BYTES = 1900 };
_Static_assert(SHOWN_LINES * 2 * SHOWN_BYTES < MSG_MAX, "the lines fit into a message");

/* Output on its way to the terminal: the pump's thread adds lines, the loop sends them. */
struct shown_output {
	pthread_mutex_t lock;
	json_t *lines; /* NULL: none since the last message */
	int64_t left_out;
	bool wanted;
};

/* What the program has reported through the client. */
struct program_progress {
	bool used;    /* it uses the channel */
	bool began;   /* it has reported a step */
	bool metrics; /* this rank sends the message metrics */
	int64_t step, samples;
	double step_at; /* time of the last step */
	/* The last checkpoint that the supervisor does not know of yet; step -1: none. */
	int64_t saved_step;
	char saved_path[TASK_PATH_MAX + 1];
	double saved_told; /* time of the last message about one */
	struct train_times times;
	bool waits;     /* the program is not heard, because the supervisor has fallen behind */
	struct err bad; /* a loss that is NaN or infinite */
};

/* A dump of PyTorch's flight recorder that is to come. */
struct awaited_dump {
	atomic_bool asked; /* by the control thread */
	double until;      /* 0: the loop has not looked yet */
	int64_t size;
};

/* STOP_TOLD: it may still have steps to do. STOP_SAVES: it has done them, or should have. */
enum stop_stage { STOP_NOT_ASKED, STOP_TOLD, STOP_SAVES, STOP_SIGNALLED, STOP_KILLED };

struct program {
	struct control *control;
	const struct msg_welcome *welcome;
	struct msg_program place;
	struct job *job;
	struct rank_log *log; /* NULL: it is not open */
	struct meeting meeting;
	char **argv, **env;
	struct task_process *process;
	struct task_output *output;
	struct task_client *client;
	struct task_watch *activity;
	struct agent_watch *health; /* NULL: the node and the device are not watched */
	struct shown_output shown;
	struct program_progress progress;
	struct awaited_dump dump;
	enum stop_stage stop;
	double stop_until, started_at, looked_at;
	uint64_t lines_seen;
	uint64_t lines_told; /* that the supervisor knows of */
	double told_at;
	_Atomic(uint64_t) lines; /* of output so far */
	int wake;                /* eventfd: the generation is over */
	atomic_bool aborted;
	char abort_reason[256]; /* set before `aborted` */
	int signal;             /* that asks the task to stop */
	bool reported;          /* the supervisor knows the task's process */
	bool log_failed;        /* a person was told that the log lacks lines */
	struct task_end end;
};

/* program.c */
/* Tells the supervisor once which process the task is, so that it is examined if it hangs. Does nothing until
 * the program is executed, which a file system may delay. */
void agent_program_report_task(struct program *p);

/* program_place.c */
/* Sets p->argv and p->env. */
int agent_program_environment(struct program *p, struct err *e);

/* program_dump.c */
/* For agent_control_on_dump(). */
int agent_program_dump(void *program, struct err *e);
/* Tells the supervisor when the dump is written, when that takes too long, or at once. */
void agent_program_answer_dump(struct program *p, double now, bool at_once);

/* program_client.c */
extern const struct task_client_handlers agent_program_handlers;
/* Passes on what the program has said. While the program runs, it is not heard if the supervisor has
 * fallen behind. */
void agent_program_serve_client(struct program *p, bool ended);
/* Sends the last checkpoint, at most some per second unless at_once. */
void agent_program_send_saved(struct program *p, double now, bool at_once);

/* program_loop.c */
/* Returns when the task has ended (0, and p->end is set), or must be ended. */
int agent_program_loop(struct program *p, struct err *e);
/* Warns once if the log could not be written. */
void agent_program_check_log(struct program *p);
/* Sends the output that waits for the terminal. While the program runs, it waits if the supervisor has
 * fallen behind. */
void agent_program_send_shown(struct program *p, bool ended);

#endif
