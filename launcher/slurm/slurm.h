/*
 * slurm — muster and Slurm, through Slurm's commands, and through its REST interface.
 *
 *     step.c      launch_slurm: a generation is one srun step of the allocation
 *     srun.c      that step's command line, environment and host file
 *     pmix.c      whether Slurm's PMIx server or muster's own serves the agents
 *     relay.c     with muster's own: the supervisor's end of the helpers, of which each node has one
 *                 (launcher/helper); relay_nodes.c: what it knows about their nodes
 *     survey.c    the state of the nodes: scontrol, and a connection to the slurmd of suspects
 *     reach.c     connects to many hosts at once
 *     job_record.c  parses scontrol's descriptions of a job and of nodes' states
 *     stop_cause.c  why Slurm stops the job that this process runs in
 *     check_step.c  the job steps that check and measure nodes: before the first start, and before a
 *                   run grows onto a node that is back
 *     requeue.c   requeues the job that this process runs in
 *     script.c    the batch script of `muster submit` (launcher/cli/cmd_submit.c), from a template
 *     controller.h  the queue from outside a job, by Slurm's commands (controller_commands.c, queue.c) or
 *                 by its REST interface (rest/)
 *     auth.c      whether both ends of the control channel present MUNGE credentials
 *     place.c    where in a job `muster run` may be started
 *     site.c     what Slurm says about partitions and nodes; admit.c compares a job with it
 *     address.c   the address at which the allocation's nodes reach the supervisor
 *     tool.c      runs one of the agent's tools as a step of the allocation
 *     guard.h     the guard, which ends the job if its supervisor is gone; guard_step.c starts it
 *     guard_state.h  what a guard does next
 *
 * No command is run through a shell, and no command line contains a secret.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SLURM_H
#define MUSTER_LAUNCHER_SLURM_SLURM_H

#include "base/err.h"
#include "base/munge.h"
#include "base/net.h"
#include "launcher/launch.h"

#include <stdbool.h>

/* The launch backend of an allocation: one srun step per generation. Its tasks are the agents, or
 * helpers that start them. */
extern const struct launch_ops launch_slurm;

/* The remedy if one of Slurm's commands cannot be executed, for struct child_command. */
#define SLURM_ABSENT "; are Slurm's commands in PATH?"

/*
 * The address, without a port, at which the nodes of the allocation reach this host: the NodeAddr
 * of the node that we run on, otherwise SLURM_LAUNCH_NODE_IPADDR, otherwise the host's name. It is
 * a loopback address only if Slurm itself uses one (all nodes on one host). If the job sets
 * [network] interface, the caller uses net_local_address() instead.
 */
int slurm_address(char out[NET_ADDR_MAX], struct err *e);

/*
 * The value of AGENT_ENV_AUTH for this run's agents: MUNGE credentials if Slurm itself uses them
 * (AuthType is auth/munge; AuthInfo names munged's socket). The secret alone in three cases:
 * AuthType is another one; the user sets MUSTER_AUTH=secret, for nodes where agents cannot reach
 * munged; or this node cannot make a credential, which sets *warning. Nobody on the network can
 * force the last case, and the agents learn the value through Slurm.
 */
void slurm_auth(char word[MUNGE_WORD], struct err *warning);

/* Refuses to start agents from a heterogeneous job, and from a job step of several tasks, in which
 * each task would start all of them. In a step of one task it replaces the variables that srun has
 * set for the step by those of the allocation. */
int slurm_enter_allocation(struct err *e);
/* Whether this process is the one of its job step that prints what concerns all tasks. */
bool slurm_speaks(void);

/* launch_slurm's operations of the same names (launcher/launch.h). */
int slurm_survey(uv_loop_t *loop, const struct survey_request *r,
		 void (*done)(void *arg, const struct survey *s), void *arg, struct surveying **out,
		 struct err *e);
void slurm_survey_stop(struct surveying *s);
int slurm_stop_query(uv_loop_t *loop, const struct job *job,
		     void (*done)(void *arg, const struct stop_answer *a), void *arg,
		     struct stop_query **out, struct err *e);
void slurm_stop_query_end(struct stop_query *q);
int slurm_check_nodes(uv_loop_t *loop, const struct check_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e);
int slurm_burn_in(uv_loop_t *loop, const struct burn_in_request *r,
		  void (*ended)(void *arg, int status, const char *output), void *arg,
		  struct child **out, struct err *e);
int slurm_requeue(const char *exclude, int min_nodes, int max_nodes, struct err *e);

/* Executes srun in place of this process. It runs `agent argv[0] argv[1] …` once per device of the
 * allocation, with PMIx. Returns only on failure. */
int slurm_tool(const char *agent, int argc, char **argv, struct err *e);

#endif
