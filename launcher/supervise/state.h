/*
 * state — what the supervisor knows; shared by the files of this room only.
 *
 *     supervisor.c  opens, starts and closes it; connections and processes become events
 *     states.c      the table: state × event → what to do
 *     messages.c    the agents' messages
 *     watch.c       who is silent, who hangs
 *     trace.c       the flight recorders
 *     report.c      events.jsonl and the terminal
 *     contract.c    predicted against measured
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_STATE_H
#define MUSTER_LAUNCHER_SUPERVISE_STATE_H

#include "launcher/supervise/contract.h"
#include "launcher/supervise/links.h"
#include "launcher/supervise/restart.h"
#include "launcher/supervise/supervise.h"

enum sup_state {
	SUP_STARTING, /* processes start and connect */
	SUP_WIRING,   /* all have said hello; they build communicators and load */
	SUP_TRAINING,
	SUP_STOPPING, /* asked to write a checkpoint and leave */
	SUP_LEAVING,  /* all have finished; their processes end */
	/* lost, in a way that the flight recorders may explain; the agents write them */
	SUP_ASKING,
	SUP_JUDGING,  /* they are read */
	SUP_DRAINING, /* killed; waiting until none is left */
	SUP_BACKOFF,  /* waiting before the next generation */
	SUP_DONE,
	SUP_STATE_COUNT
};

enum sup_event {
	EV_HELLO,    /* the last rank said hello */
	EV_READY,    /* the last rank is ready */
	EV_FINISHED, /* the last rank has finished */
	EV_LOST,     /* a rank died, failed, fell silent or hangs: struct loss */
	EV_STOP,     /* stop when it suits: reason */
	EV_STOP_NOW, /* stop at once: reason */
	EV_TIMEOUT,  /* the state's deadline is over */
	EV_DUMPED,   /* a rank has written its flight recorder */
	EV_VERDICT,  /* the recorders have been read */
	EV_ALL_GONE, /* no process of the generation is left */
	SUP_EVENT_COUNT
};

enum loss_how {
	LOSS_CLOSED,
	LOSS_EXITED,
	LOSS_FAILED,
	LOSS_PROTOCOL,
	LOSS_SILENT,
	LOSS_HUNG,
	LOSS_START
};

struct loss {
	int rank; /* -1: no rank in particular */
	enum loss_how how;
	enum err_code code; /* what the agent said, or what comes nearest */
	char text[1000];
	double at;
};

/* What becomes of the run once the generation is gone. */
enum verdict { VERDICT_NONE, VERDICT_RETRY, VERDICT_STOPPED, VERDICT_FINISHED };

struct rank_state {
	struct link *link; /* NULL before hello and after the connection is gone */
	bool hello, ready, finished, exited, dumped;
	bool complained; /* gave up because of another one */
	int status;      /* as of waitpid, when exited */
	int64_t step;
	char phase[32];
	int64_t count;      /* the agent's own, of all that it did */
	double moved, beat; /* when step, phase or count changed; when anything came */
};

struct child;

struct supervisor {
	struct supervise_options o;
	struct links *links;
	struct launch *launch;
	char auth[MUNGE_WORD]; /* AGENT_ENV_AUTH's word, and who works for it */
	struct voucher munge;
	uint32_t generation;
	/* of the generation's ranks; told in their welcomes alone */
	char group_secret[AUTH_SECRET_HEX];
	bool first; /* no generation was started before this one */
	enum sup_state state;
	double deadline; /* of the state; 0: none */
	struct rank_state *ranks;
	int world, hellos, readies, finishes;
	struct restart restart;

	struct loss loss; /* the one that counts, when `lost` */
	bool lost;
	double settle_at; /* believe `loss` then; 0: no loss is waiting */
	enum verdict verdict;
	struct child *tracer; /* reads the flight recorders; NULL: does not run */
	/* no process of the generation is left, and that is still to be dealt with */
	bool gone;
	char reason[1000]; /* of the stop or of the end */
	int refusals;      /* told so far, of this generation */

	double opened, started, last_tick; /* times */
	bool stepped;                      /* a step was finished in this generation */
	int64_t step;    /* last one finished, as the agents count; -1: none in this launch */
	int64_t resumed; /* the step that this generation went on from */
	int64_t ckpt_step;
	char ckpt_path[1024];
	struct contract contract;
	double first_loss, last_loss, eval_loss, step_s /* smoothed */, measured_s, tokens;
	int64_t first_loss_step, measured, skipped /* fp16 */;
	bool has_eval;
	int status; /* exit status, when done */
};

/* states.c */
void supervisor_handle(struct supervisor *s, enum sup_event ev, const struct loss *loss,
		       const char *reason);

/* supervisor.c */
double supervisor_now(const struct supervisor *s);
/* Starts the next generation; on failure nothing of it is left. */
int supervisor_launch(struct supervisor *s, struct err *e);
void supervisor_broadcast(struct supervisor *s, enum msg_type type, json_t *body /* stolen */);
const char *supervisor_node(const struct supervisor *s, int rank);
/* What the job says until this launch has committed a checkpoint, afterwards "auto": the newest
 * valid one. */
const char *supervisor_resume(const struct supervisor *s);

/* messages.c */
void supervisor_message(void *supervisor, struct link *l, const struct msg *m);

/* watch.c */
void supervisor_watch(struct supervisor *s);

/* trace.c */
void supervise_trace_ask(struct supervisor *s);
bool supervise_trace_complete(const struct supervisor *s); /* who is connected has answered */
/* EV_VERDICT follows; false: there is nothing to read */
bool supervise_trace_judge(struct supervisor *s);
void supervise_trace_stop(struct supervisor *s); /* whoever still reads gives up */

/* report.c */
void supervise_report_event(struct supervisor *s, const char *event,
			    json_t *fields /* stolen, may be NULL */);
void supervise_report_started(struct supervisor *s, const char *resume);
void supervise_report_loss(struct supervisor *s); /* at once: the event */
/* once the generation is gone: what it was, for people */
void supervise_report_blame(struct supervisor *s);
void supervise_report_verdict(struct supervisor *s, json_t *verdict); /* muster trace's */
void supervise_report_exit(struct supervisor *s, int rank);
void supervise_report_refused(struct supervisor *s, const char *why);
void supervise_report_trouble(struct supervisor *s, const char *why);
void supervise_report_metrics(struct supervisor *s, json_t *body);
void supervise_report_eval(struct supervisor *s, int64_t step, double loss);
void supervise_report_ckpt(struct supervisor *s, json_t *body);
void supervise_report_end(struct supervisor *s, const char *event);

#endif
