/*
 * launch — starts the agents of one generation. Each way to start them is a backend:
 *
 *     local  an embedded PMIx server and fork, one agent per slot (launcher/pmix/)
 *     slurm  one srun step with --mpi=pmix, or with a helper on each node (launcher/slurm/)
 *
 * To add a backend:
 *   1. a room below launcher/ with a `const struct launch_ops`, and its row in `rooms`;
 *   2. its word for the key [launch] launcher (plan/spec/job/);
 *   3. its entry in the list of launcher/cli/launch_choose.c.
 */
#ifndef MUSTER_LAUNCHER_LAUNCH_H
#define MUSTER_LAUNCHER_LAUNCH_H

#include "base/agent_env.h" /* the environment that a backend gives every agent */
#include "base/err.h"
#include "base/munge.h"
#include "base/net.h"
#include "launcher/stop_cause.h"
#include "launcher/survey.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct launch_request {
	const struct job *job;
	const struct cluster *cluster;
	const struct plan *plan;
	/* The ranks whose agents are started, ascending, and how many. They get no PMIx, because the
	 * others live on from the last generation: AGENT_ENV_RANKS says which ranks they are. NULL: all
	 * ranks. Borrowed for the start. */
	const int *ranks;
	int n_ranks;
	uint32_t generation;
	const char *address; /* of the supervisor, "host:port" */
	const char *secret;  /* of this generation, in hex */
	const char *run_dir;
	const char *agent; /* path of muster-agent */
	const char *auth;  /* value of AGENT_ENV_AUTH */
	/* What the backend's own processes must prove besides a secret, by `auth`; NULL: nothing.
	 * It outlives the launch. */
	const struct voucher *voucher;
};

/* A guard to start on a node: launcher/slurm/guard.h. */
struct guard_request {
	const char *node;
	const char *program; /* path of muster */
	const char *address; /* of the supervisor, for guards, "host:port" */
	const char *secret;  /* of the run's guards, in hex */
	const char *auth;    /* value of AGENT_ENV_AUTH */
	const char *run_dir;
	int number;
	bool requeue;    /* [slurm] requeue */
	double patience; /* seconds; [restart] patience */
};

/* A check of nodes: `muster doctor --node NEEDS` runs on each. The output has a line for each node
 * that has answered: LAUNCH_CHECK_TAG, the node's name, ": ", then LAUNCH_CHECK_OK, or what is
 * wrong with the node. */
#define LAUNCH_CHECK_TAG "muster-check: "
#define LAUNCH_CHECK_OK  "ok"
struct check_request {
	const char *nodes; /* their names, separated by commas */
	int n_nodes;
	const char *program; /* path of muster */
	const char *needs;   /* of the job, as a word */
};

/* A burn-in of nodes: `AGENT bench node WORDS` runs on each (agent/tools/bench_node.h), and
 * connects to `address`. */
struct burn_in_request {
	const char *nodes; /* their names, separated by commas */
	int n_nodes;
	int cpus;          /* of the node that has the fewest; 0: unknown */
	const char *agent; /* path of muster-agent */
	char *const *words;
	const char *address, *secret, *auth; /* for AGENT_ENV_ADDRESS and so on */
};

struct child;
struct launch;     /* the processes of one generation; each backend defines it */
struct surveying;  /* a survey that is under way */
struct stop_query; /* a question that is under way */
struct queueing;   /* a submission that is under way */

enum { LAUNCH_JOB_ID = 32 };

/* What a backend reports besides the ends of processes. */
enum launch_note {
	/* muster's own servers serve PMIx to this generation, and why */
	LAUNCH_NOTE_OWN_PMIX,
	/* the PMIx server of the system cannot serve the agents: the next generation gets
	 * muster's */
	LAUNCH_NOTE_PMIX_REFUSED,
	/* the helper of a node, which starts its agents, has ended or cannot start them */
	LAUNCH_NOTE_HELPER_LOST
};

/* Called on the loop's thread. */
struct launch_events {
	/* A process has ended. rank: the rank that its agent was started as, or -1 for srun: the slurm backend
	 * sees the end of srun, but not the end of each agent. status: as waitpid() sets it. */
	void (*exited)(void *arg, int rank, int status);
	/* No process of the generation is left. The launch may be closed. */
	void (*all_gone)(void *arg);
	void *arg;
	/* node: its name in the cluster; NULL: the note is about no node in particular. May be
	 * called within start(). */
	void (*noted)(void *arg, enum launch_note what, const char *node, const char *text);
};

struct launch_ops {
	const char *name;       /* for messages */
	enum job_launcher word; /* the value of [launch] launcher that selects it */
	/* Whether it can start agents here. [launch] launcher = auto selects the first backend that
	 * can. */
	bool (*available)(void);
	/* The spec of topo_cluster_open() for the machines that the agents run on. */
	const char *cluster;
	/* Sets the address, without a port, at which the agents reach the supervisor. */
	int (*control_host)(const struct job *job, char host[NET_ADDR_MAX], struct err *e);
	/* Optional. Chooses the value of AGENT_ENV_AUTH for all generations of the run. If it
	 * cannot choose the strongest one, *warning says why. NULL: agents prove the secret
	 * only. */
	void (*auth)(char word[MUNGE_WORD], struct err *warning);
	/* Returns when all processes are started. On failure no process is left. ERR_PEER: a
	 * process that the backend needs died; another attempt may succeed. */
	int (*start)(uv_loop_t *loop, const struct launch_request *r,
		     const struct launch_events *ev, struct launch **out, struct err *e);
	/* Sends SIGKILL to every process that still runs; all_gone() follows. node_lost: a node is
	 * dead, so nobody waits for its processes to end: a new agent ends those that still run on
	 * its node before it joins (agent/predecessors.h). */
	void (*kill)(struct launch *l, bool node_lost);
	/* Optional. Kills the process of one agent by the rank that it was started as; exited() follows.
	 * A backend without it does not see the ends of agents. */
	void (*kill_agent)(struct launch *l, int rank);
	/* Frees the launch. Called after all_gone(). */
	void (*close)(struct launch *l);
	/* Optional. Asks for the state of the nodes; `done` is called once, on the loop. Without
	 * it every node is up. */
	int (*survey)(uv_loop_t *loop, const struct survey_request *r,
		      void (*done)(void *arg, const struct survey *s), void *arg,
		      struct surveying **out, struct err *e);
	/* Ends a survey; `done` will not be called. */
	void (*survey_stop)(struct surveying *s);
	/* Optional. Asks why the job that this process runs in is being stopped; `done` is called
	 * once, on the loop. */
	int (*stop_query)(uv_loop_t *loop, const struct job *job,
			  void (*done)(void *arg, const struct stop_answer *a), void *arg,
			  struct stop_query **out, struct err *e);
	/* Ends a query; `done` will not be called. */
	void (*stop_query_end)(struct stop_query *q);
	/* Optional. Requeues the job that this process runs in, so that it starts again without the
	 * nodes `exclude` (a comma-separated list, or ""), on min_nodes to max_nodes nodes; 0: on
	 * as many as before. ERR_ABORTED: the job is being ended already. Returns when Slurm has
	 * accepted it; it has then begun to end this process, which must leave soon. It takes some
	 * seconds. 0 with a text in `e`: the job starts again, but not without those nodes, or not
	 * with that number of nodes; the text says why. */
	int (*requeue)(const char *exclude, int min_nodes, int max_nodes, struct err *e);
	/* Optional. The id of the job that this process runs in; NULL: it runs in none. */
	const char *(*own_job)(void);
	/* Optional. Queues the batch script (a path) as a job that starts when all earlier jobs of
	 * its name have ended. `done` is called once, on the loop, with the id of the job, or with
	 * NULL and the reason. */
	int (*queue_next)(uv_loop_t *loop, const char *script,
			  void (*done)(void *arg, const char *id, const char *why), void *arg,
			  struct queueing **out, struct err *e);
	/* Optional. The same, at once: it takes some seconds. id: of the new job. */
	int (*submit_again)(const char *script, char id[LAUNCH_JOB_ID], struct err *e);
	/* Ends a submission; `done` will not be called. The job may have been queued. */
	void (*queue_next_end)(struct queueing *q);
	/* Optional. Whether this job still waits in the queue; true, too, if that cannot be found
	 * out within some seconds. */
	bool (*job_waits)(const char *id);
	/* Optional. Cancels those of the jobs that still wait in the queue. It takes some seconds
	 * at most. */
	int (*cancel)(const char *const *ids, int n, struct err *e);
	/* Optional. Sets the comment of the job that this process runs in, by a child process whose
	 * end `ended` reports. */
	int (*comment)(uv_loop_t *loop, const char *text,
		       void (*ended)(void *arg, int status, const char *output), void *arg,
		       struct child **out, struct err *e);
	/* Optional. The node that this process runs on, by its name in the cluster; NULL: none. */
	const char *(*own_node)(void);
	/* Optional. Starts a guard as a child process (launcher/child.h), whose end `ended`
	 * reports. */
	int (*guard)(uv_loop_t *loop, const struct guard_request *r,
		     void (*ended)(void *arg, int status, const char *output), void *arg,
		     struct child **out, struct err *e);
	/* Optional. Starts the check of nodes, of all at the same time, as a child process, whose
	 * end `ended` reports with the output. It competes with no other job step, and ends by
	 * itself after about a minute. */
	int (*check_nodes)(uv_loop_t *loop, const struct check_request *r,
			   void (*ended)(void *arg, int status, const char *output), void *arg,
			   struct child **out, struct err *e);
	/* Optional. Starts the burn-in on all these nodes, in the same way. It ends when the
	 * connections to `address` do. */
	int (*burn_in)(uv_loop_t *loop, const struct burn_in_request *r,
		       void (*ended)(void *arg, int status, const char *output), void *arg,
		       struct child **out, struct err *e);
};

#endif
