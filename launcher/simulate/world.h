/*
 * world — the state of a simulation. Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SIMULATE_WORLD_H
#define MUSTER_LAUNCHER_SIMULATE_WORLD_H

#include "launcher/rundir/rundir.h"
#include "launcher/simulate/check.h"
#include "launcher/simulate/queue.h"
#include "base/random.h"
#include "launcher/simulate/simulate.h"
#include "launcher/supervise/supervise.h"

/* The virtual time at which a simulation begins, in seconds. */
enum { SIMULATE_BEGIN = 1000 };
/* Seconds without an answer of the other host after which a connection is lost (base/net.h). */
enum { SIMULATE_KEEPALIVE = 20 };

enum { SIMULATE_NOTES = 400, SIMULATE_NOTE = 300, SIMULATE_COMMITTED = 1 << 14 };

struct machine {
	const char *name;
	bool lost; /* it has no power: its processes are gone, and nobody is told */
	bool cut;  /* its network is away: its processes live */
	bool down; /* Slurm counts it as down */
	bool left; /* it is no longer of the job */
	bool drained;
	double cut_at; /* since when */
	int boots;
};

enum process_state {
	PROCESS_BOOTING,
	PROCESS_GREETING,  /* hello is sent */
	PROCESS_PREPARING, /* it ends its predecessors */
	PROCESS_WIRING,    /* it waits for the endpoints that it needs */
	PROCESS_LOADING,
	PROCESS_TRAINING,
	PROCESS_FAILED,  /* because of another rank; it waits for regroup */
	PROCESS_LEAVING, /* it leaves its generation */
	PROCESS_IDLE,
	PROCESS_FINISHED,
	PROCESS_DEAD
};

struct parcel { /* a message under way */
	struct parcel *next;
	double at; /* of its arrival */
	uint32_t generation;
	enum msg_type type; /* MSG_NONE: the other end has closed the connection */
	json_t *body;
};

struct lane { /* one direction of a link: first in, first out */
	struct parcel *first, **last;
	double latest; /* arrival of the last one */
};

struct link {
	struct connection *connection; /* of the supervisor; NULL: none yet, or it has closed it */
	bool attached, open;           /* the supervisor has got it; the agent's end is open */
	struct lane up, down;
	double slow, slow_until; /* seconds more for each message, and until when */
};

struct copy {         /* of a rank's state in memory */
	int64_t step; /* -1: none */
	int rank, world;
};

struct errand { /* what a process does later */
	struct process *process;
	void (*what)(struct process *p);
	unsigned epoch;
	bool always;         /* even if the process does something else by then */
	struct errand *next; /* of those that a frozen process holds, or of the spare ones */
};

enum { SIMULATE_ERRANDS = 256 };

struct errands { /* memory for errands */
	struct errands *next;
	struct errand of[SIMULATE_ERRANDS];
};

struct process {
	struct simulation *sim;
	struct process *next;  /* of the living and those that died lately, or of the dead */
	struct launch *launch; /* NULL: nobody watches it any more */
	int started_as, node, slot;
	uint32_t launched_for;
	unsigned char secret[AUTH_SECRET_BYTES];
	int pid, boot;
	int64_t start;
	enum process_state state;
	unsigned epoch;      /* errands of an earlier one are void */
	struct errand *held; /* errands of a frozen process */
	bool frozen, hung, stuck, condemned,
		stubborn; /* condemned: it dies once a signal reaches it */
	bool silent;      /* it died with its node */
	bool welcomed;    /* it has joined a generation */
	bool lied;        /* it has sent a message at the wrong time */
	bool failed;      /* the supervisor was told that it has failed by an error of its own */
	int status;
	struct link link;
	/* of the welcome */
	uint32_t generation;
	int rank, world, leader;
	bool warm, by_pmix, copies, resumes;
	double silent_s;
	double heard;     /* when it last sent something that arrives */
	json_t *wants;    /* the ranks whose endpoints it needs */
	size_t endpoints; /* of these that have come */
	struct crew *crew;
	bool stop;
	int64_t step, count, resumed;
	int64_t windows; /* messages health */
	double next_window;
	double slow; /* it computes so many times slower */
	double ready_at, worked,
		computed; /* worked: seconds in steps since; computed: of its own work */
	struct copy own, other;
};

struct launch {
	struct simulation *sim;
	struct launch *next;
	struct launch_events events;
	uint32_t generation;
	int n, ended;
	struct process **processes;
	bool watched;  /* the supervisor that started it lives, and has not closed it */
	bool orphaned; /* that supervisor was killed */
	bool killed, node_lost, gone, refused; /* refused: by PMIx */
};

struct crew { /* the ranks of a generation */
	struct simulation *sim;
	struct crew *next;
	uint32_t generation;
	int world, joined, wired, ready, left;
	struct process **members;
	bool resumed, started, broken; /* broken: a rank has left it */
	bool waiting;                  /* a rank does not work now */
	bool ending;                   /* the last step is done; its checkpoint follows */
	int64_t step, resume;          /* finished steps; where it continues */
	int64_t recorded; /* the run folder has the metrics up to there, as rank 0 knows */
	int64_t copying;  /* the step of the copies that are made in memory; -1: none */
	bool from_memory;
	struct { /* the checkpoint that is being written; step -1: none */
		int64_t step;
		double since;
		bool written, committing;
	} save;
};

/* What the next chance of a kind meets: set by faults.c, taken where it happens. */
struct traps {
	int start_fails, requeue_fails;
	bool pmix_refused, dies_starting, late_starting, dies_leaving, stubborn, bad_step,
		ckpt_fails, ckpt_slow, ckpt_unseen;
};

struct simulation {
	const struct simulate_setup *setup;
	struct simulate_result *result;
	struct simulate_queue queue;
	struct random_stream delays, dice;
	uv_loop_t loop;
	struct rundir *run;
	struct terminal *term;
	const char *folder;
	char empty[4096];              /* a folder without files, in place of / */
	struct supervisor *supervisor; /* NULL between two */
	double asleep;                 /* the supervisor does not run until then */
	struct machine *machines;      /* [setup->machines.n_nodes] */
	struct process *processes, **last_process, *dead;
	struct launch *launches;
	struct crew *crews;
	struct errands *errands;
	struct errand *spare;
	struct surveying *survey; /* under way */
	struct stop_query *query;
	int free;            /* nodes that are there for a job that begins again */
	double silent_until; /* Slurm does not answer */
	struct stop_answer stop_cause;
	double job_ends; /* 0: it has no time limit yet */
	bool stopping, requeued, over;
	int pids;
	struct traps traps;
	double fault_at; /* the last fault */
	struct check check;
	/* committed checkpoints, by step */
	int64_t committed[SIMULATE_COMMITTED];
	int n_committed;
	char notes[SIMULATE_NOTES][SIMULATE_NOTE]; /* the last ones, a ring */
	uint64_t noted;
	struct buf faults; /* lines */
};

/* simulate.c */
/* The simulation that runs on this thread. */
struct simulation *simulate_current(void);
void simulate_later(struct simulation *sim, double delay, void (*fire)(void *arg), void *arg);
/* Notes a line of what happens: it counts for the hash, and is shown if something does not hold. */
void simulate_note(struct simulation *sim, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Something does not hold; the first one counts. */
void simulate_break(struct simulation *sim, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The supervisor ends without a word, and another one starts after `seconds`. */
void simulate_kill_supervisor(struct simulation *sim, double seconds);

/* links.c */
void simulate_link_send(struct process *p, enum msg_type type, json_t *body /* stolen */);
/* The agent's end is closed: by its process, or, if reset, by the network. */
void simulate_link_close(struct process *p);
void simulate_link_reset(struct process *p);
/* Delivers what has arrived, after something that held it up is over. */
void simulate_link_pump(struct process *p);
/* The node is gone: nothing more arrives, and nobody is told. */
void simulate_link_vanish(struct process *p);
/* The node cannot be reached from now on: if that lasts, the supervisor's end is lost. */
void simulate_link_watch(struct process *p);
void simulate_link_free(struct process *p);

/* relays.c */
/* A heartbeat of the process. */
void simulate_report_progress(struct process *p);

/* process.c */
struct process *simulate_process_start(struct launch *l, int rank, int node, int slot,
				       const unsigned char *secret);
/* Takes the dead ones from the list of the living. Not called while somebody reads the list. */
void simulate_processes_sweep(struct simulation *sim);
void simulate_processes_free(struct simulation *sim);
/* Unless it does something else by then; always: in any case, if it lives. A frozen process does it once it
 * is not frozen any more. */
void simulate_process_later(struct process *p, double delay, void (*what)(struct process *p));
void simulate_process_always(struct process *p, double delay, void (*what)(struct process *p));
/* Sends SIGKILL, which ends it unless its node cannot be reached or it is stuck. */
void simulate_process_kill(struct process *p);
/* It ends now. status: as of waitpid(). */
void simulate_process_end(struct process *p, int status);
void simulate_process_vanish(struct process *p); /* with its node */
/* Its node cannot be reached from now on. */
void simulate_process_cut(struct process *p);
void simulate_process_fail(struct process *p, enum err_code code, const char *text);
void simulate_process_thaw(struct process *p);
bool simulate_process_lives(const struct process *p);
/* Whether it takes part in a step now. */
bool simulate_process_works(const struct process *p);
/* It exits with status 1. */
void simulate_process_exit(struct process *p);
/* The agent leaves because its connection is lost, or because it was told to. */
void simulate_process_leave(struct process *p);

/* agents.c */
void simulate_process_receive(struct process *p, const struct parcel *m);
void simulate_process_finish(struct process *p);
void simulate_process_send_times(struct process *p);

/* crew.c */
void simulate_crew_join(struct process *p);
void simulate_crew_wired(struct process *p);
void simulate_crew_loaded(struct process *p);
void simulate_crew_leave(struct process *p, bool silently);
/* All ranks have done their work. */
void simulate_crew_finish(struct crew *c);
/* The rank that sends metrics. NULL: it has left. */
struct process *simulate_crew_speaker(const struct crew *c);
/* Something that held up steps is over. */
void simulate_crews_go_on(struct simulation *sim);
void simulate_crews_free(struct simulation *sim);

/* saves.c */
void simulate_save_begin(struct crew *c);
/* Copies of the state in memory. */
void simulate_copy_begin(struct crew *c);
/* The run folder has the metrics up to this step. */
void simulate_save_recorded(struct process *p, int64_t step);
/* The step of the last checkpoint; 0: none. */
int64_t simulate_last_committed(const struct simulation *sim);

/* backend.c */
extern const struct launch_ops simulate_slurm_ops, simulate_local_ops;
void simulate_launch_ended(struct process *p);
/* What is known of nodes has changed. */
void simulate_launches_look(struct simulation *sim);
/* The supervisor is gone. */
void simulate_launches_forget(struct simulation *sim);
void simulate_launches_free(struct simulation *sim);
/* The helper of the node ends, with the agents that it has started. False: it has started none. */
bool simulate_helper_end(struct simulation *sim, int node);

/* nodes.c */
int simulate_survey(uv_loop_t *loop, const struct survey_request *r,
		    void (*done)(void *arg, const struct survey *s), void *arg,
		    struct surveying **out, struct err *e);
void simulate_survey_stop(struct surveying *s);
int simulate_stop_query(uv_loop_t *loop, const struct job *job,
			void (*done)(void *arg, const struct stop_answer *a), void *arg,
			struct stop_query **out, struct err *e);
void simulate_stop_query_end(struct stop_query *q);
void simulate_node_lose(struct simulation *sim, int node, double seconds);
void simulate_node_cut(struct simulation *sim, int node, double seconds);
void simulate_node_leave(struct simulation *sim, int node);
void simulate_node_drain(struct simulation *sim, int node, double seconds);
bool simulate_node_reached(const struct simulation *sim, int node);
void simulate_nodes_return(struct simulation *sim);
/* Frees what an event that will not happen any more holds. */
void simulate_nodes_drop(const struct simulate_event *e);

/* faults_agents.c */
/* Any process that these fit, and that can be reached; NULL: there is none. */
struct process *simulate_pick(struct simulation *sim, bool (*fits)(const struct process *p));
bool simulate_is_alive(const struct process *p);  /* and not frozen */
bool simulate_is_joined(const struct process *p); /* it is part of a generation */
bool simulate_trains(const struct process *p);

/* faults.c */
void simulate_faults_begin(struct simulation *sim);

#endif
