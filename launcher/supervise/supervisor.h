/*
 * supervisor — the state of the supervisor. Only the files of this room include it.
 *
 *     supervisor.c   opens, starts and closes it; turns connections into events
 *     agents.c       starts and ends the agents' processes
 *     regroup.c      keeps the agents of the other ranks after a loss
 *     rendezvous.c   exchanges the endpoints of ranks without PMIx
 *     wiring.c       which ranks are next to each other when they find each other
 *     run.c          supervise_run(): the event loop with its signals and ticks
 *     transitions.c  the table of transitions: for each state and event, what to do
 *     next.c         what follows a generation
 *     hello.c        lets agents join a generation
 *     hellos.c       records them, node by node, and welcomes them
 *     messages.c     handles the agents' messages
 *     progress.c     notes what the ranks, or the relays of their nodes, say of their progress
 *     watchdog.c     finds ranks that are silent or hang (hang_limit.c: after how long)
 *     heartbeat.c    how often agents say what they do
 *     suspects.c     notes what speaks against a node
 *     links.c        names slow links between ranks
 *     stragglers.c   names ranks that are slow or stood still
 *     evidence.c     why a rank is slow, and defects of devices, from what the agents see
 *     slow_checkpoints.c  names a folder of checkpoints that is slow
 *     warnings.c     the rules of the warnings (warn.c: what they are judged by, and reports)
 *     exclude.c      what the run does about the node of a slow rank
 *     verdict.c      gets a verdict from the flight recorders
 *     stacks.c       has the ranks of a hang examined, and names the one that hung first
 *     report.c       writes events.jsonl and metrics.jsonl, prints for people
 *                    (report_loss.c: a loss; report_end.c: the end of the run)
 *     times.c        accounts for the time of all ranks (account.c: the sums; marks.c: what a restart
 *                    loses), and writes time.jsonl
 *     contract.c     compares the prediction with what was measured
 *     symptoms.c     collects what is known about a loss (launch_log.c: what Slurm said)
 *     faults.c       the table of faults: what a loss means
 *     predecessors.c remembers earlier agents whose end was not seen
 *     restart.c      decides whether and when to start again
 *     rollback.c     decides what follows bad numbers
 *     pool.c         the nodes and devices that can be used
 *     policy.c       decides where the next generation runs
 *     node_checks.c  checks nodes that are back, or all before the first generation
 *     burn_in.c      measures all nodes before the first generation (burn_in_judge.c: compares them;
 *                    burn_in_report.c: prints and records the result)
 *     program.c      what only a program of the user needs: places, early exits
 *                    (program_output.c: what people see of its output;
 *                    program_stop.c: after which step it stops; step_rate.c: how fast it is)
 *     recovery.c     surveys the nodes and applies the policy
 *     stop.c         why the run is being stopped, and whether the job is requeued
 *     chain.c        the jobs that continue the run after this one
 *     uploads.c      copies checkpoints to checkpoint.remote
 *     thinning.c     keeps the files of JSON lines below [metrics] keep
 *     progress_comment.c  tells Slurm what the end of this job would cost
 *     exporting.c    tells TensorBoard's files and Prometheus' pages what happens
 *     guard.c        starts and watches the guard
 *     state.c        what the run does now, for state.json and for consoles (spots.c: ranks and nodes
 *                    that stand out)
 *     console.c      answers the commands of the run's owner
 *     notices.c      notifies people who are not at the terminal
 *     terminal.c     prints the progress for people (writer.c: without waiting for the reader)
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_SUPERVISOR_H
#define MUSTER_LAUNCHER_SUPERVISE_SUPERVISOR_H

#include "base/process_id.h"
#include "base/rank_rows.h"
#include "launcher/connections.h"
#include "launcher/exports/exports.h"
#include "launcher/rundir/events.h"
#include "launcher/supervise/agents.h"
#include "launcher/supervise/chain.h"
#include "launcher/supervise/collect.h"
#include "launcher/supervise/console.h"
#include "launcher/supervise/contract.h"
#include "launcher/supervise/evidence.h"
#include "launcher/supervise/exclude.h"
#include "launcher/supervise/exporting.h"
#include "launcher/supervise/faults.h"
#include "launcher/supervise/guard.h"
#include "launcher/supervise/hang_limit.h"
#include "launcher/supervise/heartbeat.h"
#include "launcher/supervise/hellos.h"
#include "launcher/supervise/links.h"
#include "launcher/supervise/notices.h"
#include "launcher/supervise/predecessors.h"
#include "launcher/supervise/program.h"
#include "launcher/supervise/progress.h"
#include "launcher/supervise/progress_comment.h"
#include "launcher/supervise/recovery.h"
#include "launcher/supervise/regroup.h"
#include "launcher/supervise/rendezvous.h"
#include "launcher/supervise/wiring.h"
#include "launcher/supervise/restart.h"
#include "launcher/supervise/rollback.h"
#include "launcher/supervise/slow_checkpoints.h"
#include "launcher/supervise/stacks.h"
#include "launcher/supervise/state.h"
#include "launcher/supervise/stop.h"
#include "launcher/supervise/stragglers.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/suspects.h"
#include "launcher/supervise/times.h"
#include "launcher/supervise/thinning.h"
#include "launcher/supervise/uploads.h"
#include "launcher/supervise/warn.h"

enum sup_state {
	SUP_CHECKING,  /* before the first generation: the nodes are checked */
	SUP_STARTING,  /* processes start and connect */
	SUP_PREPARING, /* all have connected; they build communicators and load */
	SUP_TRAINING,
	SUP_STOPPING,   /* asked to write a checkpoint and leave */
	SUP_EXITING,    /* all have finished; their processes end */
	SUP_DUMPING,    /* a rank is lost; the agents write their flight recorders */
	SUP_ANALYZING,  /* the flight recorders are read */
	SUP_EXAMINING,  /* the processes that hang are examined */
	SUP_REGROUPING, /* a rank is lost; the other agents leave the generation, and live on */
	SUP_DRAINING,   /* killed; waiting until none is left */
	SUP_SURVEYING,  /* none is left; waiting for the state of the nodes */
	SUP_WAITING,    /* for a lost node to return */
	SUP_BACKOFF,    /* waiting before the next generation */
	SUP_LEAVING,    /* stopped; waiting for the cause of the stop */
	SUP_ENDING,     /* the run ends; the agents that are left are killed */
	SUP_UPLOADING,  /* the run has ended; waiting for the copies of its checkpoints */
	SUP_DONE,
	SUP_STATE_COUNT
};

enum sup_event {
	EV_ALL_CONNECTED, /* the last rank has connected */
	EV_ALL_READY,     /* the last rank is ready */
	EV_ALL_FINISHED,  /* the last rank has finished */
	EV_LOST,          /* a rank died, failed, is silent or hangs: struct lost_rank */
	EV_STOP,          /* stop at the next step: reason */
	EV_STOP_NOW,      /* stop at once: reason */
	EV_TIMEOUT,       /* the state's deadline has passed */
	EV_DUMPED,        /* a rank has written its flight recorder */
	EV_VERDICT,       /* the recorders have been read */
	EV_EXAMINED,      /* a process that hangs has been examined */
	EV_IDLE,          /* a rank that lives on has left the generation, or the time has passed */
	EV_ALL_GONE,      /* no process of the generation is left */
	EV_SURVEYED,      /* the state of the nodes is known */
	EV_STOP_KNOWN,    /* the cause of the stop is known */
	EV_LEAVE_NODE,    /* the run goes on without a slow node: reason */
	EV_CHECKED,       /* the nodes have been checked: all, or those that are back */
	EV_UPLOADED,      /* all checkpoints are copied */
	SUP_EVENT_COUNT
};

struct lost_rank {
	int rank; /* -1: no rank in particular */
	enum lost_how how;
	enum err_code code; /* the agent's, or the nearest one */
	bool wrong_results; /* its hardware has computed or kept wrong numbers */
	char text[1000];
	double at;
};

/* How the run continues once no process of the generation is left. */
enum outcome { OUTCOME_NONE, OUTCOME_RESTART, OUTCOME_STOPPED, OUTCOME_FINISHED };

struct rank_state {
	struct connection *connection; /* NULL before hello and after it has closed */
	bool hello, ready, finished, exited, dumped;
	bool waits; /* for its welcome: hellos.h */
	/* times: step, phase or count last changed; last message. They are near the beginning, because the watchdog
	 * reads these of all ranks, and hardly anything else. */
	double moved, beat;
	bool blamed_peer; /* failed and blamed another rank */
	bool failed;      /* by an error of its own */
	/* regroup.h: its agent lives on after this generation; it has left it */
	bool lives_on, idle;
	int endpoints;    /* of the list that it wants, how many it was sent: rendezvous.h */
	bool helper_lost; /* the helper of its node has ended, or cannot start it */
	bool log_asked,
		log_shared; /* collect.h: it has been told to move its log; it has done it */
	int traced;         /* the last request to record steps that it has answered */
	int status;         /* as of waitpid, if exited */
	struct agent_process process;
	struct process_id id;
	char host[256]; /* of its hello */
	int64_t step;
	char phase[32];
	int64_t count;                  /* of the message progress */
	int64_t active;                 /* of the message progress */
	double active_at;               /* time at which it last changed */
	int64_t reports[REPORTS_COUNT]; /* the highest number of each message of MSG_REPORTS */
};

struct child;

struct supervisor {
	struct supervise_options o;
	const struct deployment *d; /* what this generation runs */
	struct connections *connections;
	struct supervise_guard *guard; /* NULL: the run has none */
	struct launched *launches;     /* those that are alive; NULL: no process is left */
	char auth[MUNGE_WORD];         /* value of AGENT_ENV_AUTH */
	struct voucher munge;          /* its implementation; .work is NULL for the secret alone */
	uint32_t generation;
	bool by_pmix; /* the ranks find each other by PMIx; otherwise by rendezvous.h */
	bool trained; /* every rank of this generation was ready */
	struct regroup_state regroup;
	struct rendezvous_state rendezvous;
	struct wiring wiring;
	struct program_state program; /* .ranks is NULL without a program */
	/* shared by the generation's ranks; only their welcomes carry it */
	char group_secret[AUTH_SECRET_HEX];
	bool first; /* no generation was started before this one */
	enum sup_state state;
	double deadline; /* of the state; 0: none */
	double patience; /* seconds from entering the state to the deadline */
	struct rank_state *ranks;
	int most; /* ranks of any generation */
	int world, hellos, readies, finishes;
	struct hellos_state hellos_waiting;
	struct restart restart;
	struct rollback_state rollback;
	struct recovery_state recovery;
	struct stop_state stop;
	struct hang_limit hang;
	struct stragglers stragglers;
	struct links_state links;
	struct evidence evidence;
	struct exclude_state exclude;
	struct slow_checkpoints slow_checkpoints;
	struct warn_state warn;
	struct notices_state notices;
	bool suspects_failed;    /* a person was told that the list of suspect nodes is not kept */
	double last_move, slept; /* times: of any rank; when this process had not run */
	struct chain_state chain;
	struct uploads_state uploads;
	struct thinning_state thinning;
	struct progress_comment comment;
	struct times_state times;
	struct state_view view;
	struct console_state console;
	struct collect_state collect;
	struct exports *exports; /* NULL: the run has none */
	struct predecessors *predecessors;

	struct lost_rank cause; /* the loss that counts, if `lost` */
	bool lost;
	struct symptom symptom;     /* of the cause */
	const struct fault *fault;  /* that explains the cause; NULL: no generation was lost */
	const struct fault *advice; /* whose remedy was printed last */
	/* launcher_oom_kills() when all ranks were last ready, or when the first generation started: a
	 * later kill is of one of this generation's agents, or of one that lived on from the last one */
	int64_t oom_kills;
	double settle_at; /* when `loss` counts unless another one comes first; 0: none waits */
	enum outcome outcome;
	struct stacks_state stacks;
	int dump_awaited;             /* a rank that may not have written its flight recorder yet */
	struct child *verdict_reader; /* reads the flight recorders; NULL: it does not run */
	bool gone;         /* no process is left, and the state has not handled that yet */
	char reason[1000]; /* of the stop or of the end */
	uint32_t
		numbers_traced_in; /* the generation that the last event numbers-traced belongs to */
	int refusals;              /* connections refused in this generation */
	bool pmix_refused;         /* the system's PMIx server does not work; in this generation */
	bool pmix_said;            /* a person was told that muster serves PMIx */

	double opened, started, last_tick; /* times */
	bool stepped;                      /* this generation has finished a step */
	int64_t step;    /* last finished step; -1: none since this process started */
	int64_t resumed; /* the step that this generation continued from */
	char resumed_from[sizeof(
		((struct job *)0)->checkpoint.resume)]; /* "memory", a path, or "" */
	int64_t ckpt_step;
	char ckpt_path[1024];
	struct contract contract;
	double first_loss, last_loss, eval_loss, step_s /* smoothed */, measured_s, tokens;
	int64_t first_loss_step, measured, skipped /* fp16 */;
	bool has_eval;
	int status; /* exit status, in SUP_DONE */
};

/* transitions.c */
/* Ends every process of the generation, if any is left. `outcome` decides what follows. */
void supervise_end_generation(struct supervisor *s, enum outcome outcome);
void supervise_handle(struct supervisor *s, enum sup_event ev, const struct lost_rank *loss,
		      const char *reason);

/* next.c */
/* Enters a state; its deadline is `seconds` later; 0: it has none. */
void supervise_enter(struct supervisor *s, enum sup_state state, double seconds);
/* Ends the run with this exit status, at once or after the copies of its checkpoints. */
void supervise_end(struct supervisor *s, int status);
/* Ends the run with s->status at once. */
void supervise_end_now(struct supervisor *s);
/* The steps from a generation that is gone to the next one, in their order; next.c has a picture.
 * Each one continues with the following one unless the run waits or ends. */
/* The generation is lost and no process of it is left. Makes sure that the nodes have been
 * surveyed, or waits for it. */
void supervise_survey_nodes(struct supervisor *s);
/* Finds the fault, and whether another generation may start after it. */
void supervise_judge_loss(struct supervisor *s);
/* Decides where the next generation runs, and starts it `wait` seconds later, waits for nodes,
 * requeues the job or ends the run. */
void supervise_choose_deployment(struct supervisor *s, double wait);
/* The first step of a run: starts the first generation, after a check of the nodes if the job asks
 * for it. */
void supervise_start_first(struct supervisor *s);
/* The nodes were checked before the first generation: starts it, or decides where it runs. */
void supervise_use_checked_nodes(struct supervisor *s);
/* Starts the next generation with the current deployment. */
void supervise_start_generation(struct supervisor *s);
/* The generation has left in order to grow: starts the larger one, or requeues the job. If Slurm
 * refuses that, the same deployment continues. */
void supervise_start_grown(struct supervisor *s);

/* supervisor.c */
double supervise_now(const struct supervisor *s);
/* The rank is lost: EV_LOST. */
void supervise_lose_rank(struct supervisor *s, int rank, enum lost_how how, enum err_code code,
			 const char *text);
/* To every rank that is connected; it is packed only once. */
void supervise_broadcast(struct supervisor *s, enum msg_type type, json_t *body /* stolen */);
/* To those of them for which `to` holds; NULL: to all. */
void supervise_send_all(struct supervisor *s, enum msg_type type, json_t *body /* stolen */,
			bool (*to)(const struct rank_state *k));
const char *supervise_node(const struct supervisor *s, int rank);
/* The job's value until this process has committed a checkpoint; then "auto": the last valid
 * one. */
const char *supervise_resume(const struct supervisor *s);

/* hello.c */
/* Ends a connection that does not belong to the run. */
void supervise_refuse(struct supervisor *s, struct connection *c, const char *why);
/* An agent's first message: its connection gets the rank, or is refused. */
void supervise_hello(struct supervisor *s, struct connection *c, const json_t *body);
/* Sends the agent of the rank its part of the generation. host: of the agent. */
int supervise_send_welcome(struct supervisor *s, struct connection *c, int rank, const char *host,
			   struct err *e);

/* messages.c */
void supervise_message(void *supervisor, struct connection *c, const struct msg *m);
/* A message of MSG_REPORTS by this rank, which is connected, that another rank has handed on. */
void supervise_report(struct supervisor *s, int rank, enum msg_type type, const json_t *body);

/* The end of a hang's text until its ranks have been examined. */
#define SUPERVISE_GUESS "; this one is the furthest behind"

/* watchdog.c */
void supervise_watchdog(struct supervisor *s);
/* The first call of a tick: if this process did not run since the last one, because it or its
 * machine was stopped, no deadline runs out because of that. */
void supervise_note_sleep(struct supervisor *s);
/* Whether this process ran all the time since then. Of a time in which it did not, it cannot say
 * what the ranks did. */
bool supervise_ran_since(const struct supervisor *s, double time);
/* The rank has made progress. Call it before its phase changes. */
void supervise_note_move(struct supervisor *s, struct rank_state *k);

/* verdict.c */
/* Whether the loss of this rank may be the fault of another one. */
bool supervise_blames_another(const struct lost_rank *l);
/* Whether the flight recorders may explain s->cause. */
bool supervise_verdict_needed(const struct supervisor *s);
void supervise_verdict_request(struct supervisor *s);
bool supervise_verdict_ready(struct supervisor *s); /* all connected ranks have answered */
/* Starts to read the flight recorders. True: EV_VERDICT follows. False: there are none. */
bool supervise_verdict_read(struct supervisor *s);
void supervise_verdict_stop(struct supervisor *s); /* kills the reader if it still runs */

/* symptoms.c */
/* What is known about s->cause so far: a survey of the nodes may still be under way. */
void supervise_symptoms(const struct supervisor *s, struct symptom *out);

/* report.c */
/* counts: against [restart] max_restarts. */
void supervise_report_started(struct supervisor *s, const char *resume, bool counts);
void supervise_report_ready(struct supervisor *s);
/* s->resumed is set: prints where the run continues, unless it begins. */
void supervise_report_resumed(struct supervisor *s);
void supervise_report_log(struct supervisor *s, int rank, const char *level, const char *text);
void supervise_report_refused(struct supervisor *s, const char *why);
void supervise_report_trouble(struct supervisor *s, const char *why);
/* node: NULL: none in particular */
void supervise_report_note(struct supervisor *s, enum launch_note what, const char *node,
			   const char *text);
void supervise_report_metrics(struct supervisor *s, const struct msg_metrics *m);
void supervise_report_eval(struct supervisor *s, const struct msg_eval *m);
void supervise_report_ckpt(struct supervisor *s, const struct msg_ckpt *m);

/* report_loss.c */
void supervise_report_loss(struct supervisor *s); /* the event, at once */
/* "rank 4 on n1, after step 12 (forward)"; "the agents" if no rank in particular is lost. */
void supervise_describe_lost_rank(const struct supervisor *s, char *out, size_t size);
/* Once the generation is gone and s->symptom and s->fault are set: prints what was lost. */
void supervise_report_blame(struct supervisor *s);
/* If the run continues: prints the remedy unless it is that of the loss before, because with each
 * restart it would be noise. If the run does not continue, its last line is the remedy. */
void supervise_report_remedy(struct supervisor *s);
/* The next generation starts after `wait` seconds. */
void supervise_report_restart(struct supervisor *s, double wait);
void supervise_report_verdict(struct supervisor *s, const struct rundir_verdict *v);
void supervise_report_exit(struct supervisor *s, int rank);

/* report_end.c */
/* Whether the agents of a node have more threads than it has cores. */
bool supervise_shares_cores(const struct supervisor *s);
void supervise_report_end(struct supervisor *s); /* s->status is set */

#endif
