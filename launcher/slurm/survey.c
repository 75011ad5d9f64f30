/*
 * survey: the state of the job's nodes. The environment is as old as the job, so only SLURM_JOB_ID
 * is used.
 *
 *     scontrol show job    which nodes the job still has, and whether it can be requeued
 *     scontrol show node   the state, address and port of each node, NODES_PER_QUERY at a time
 *     reach.h              suspects that Slurm calls up: a connection to their slurmd
 *
 * Slurm notices a dead node only after SlurmdTimeout (300 s by default), but a connection to it is
 * refused at once, or is not answered within REACH_MS.
 *
 * The two commands run at the same time and have ANSWER_MS together. If the controller does not
 * answer, all suspects are connected to: at the addresses of an earlier survey of this process,
 * otherwise by name at Slurm's default port. The port may be wrong then, so a refusal proves only
 * that the host is alive. A name without an address proves nothing.
 *
 * If only one of the commands is answered, its answer is used: a node may be down although it is not
 * known whether the job still has it, and a node has left a job that does not list it. But a node
 * that is up is only known to be usable if both are answered.
 */
#include "base/buf.h"
#include "launcher/child.h"
#include "launcher/slurm/job_record.h"
#include "launcher/slurm/limit.h"
#include "launcher/slurm/reach.h"
#include "launcher/slurm/slurm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { ANSWER_MS = 3000, REACH_MS = 1000, NODES_PER_QUERY = 512 };

/* What is known of a node. */
struct known {
	char name[TOPO_NAME];
	char host[SLURM_HOST];
	int port; /* 0: not from Slurm */
	enum node_state state;
	bool listed;  /* in the job's NodeList */
	bool idle;    /* runs no job */
	bool suspect; /* try to connect */
};

struct surveying {
	uv_loop_t *loop;
	struct slurm_limit limit; /* for the controller's answers */
	void (*done)(void *arg, const struct survey *s);
	void *arg;
	struct known *nodes;
	int n, asked; /* nodes before `asked` have been asked for */
	bool job_known, nodes_known, can_requeue;
	bool described; /* Slurm has described at least one node */
	char why[200];
	struct child *job_query, *node_query;
	struct reach *reach;
	int *targets; /* indices of the suspects that are connected to */
	int n_targets;
};

/* The addresses that the last survey got from Slurm, for one while the controller is silent. Only
 * the loop's thread uses them. */
static struct {
	struct known *nodes;
	int n;
} earlier;

static void free_survey(void *arg)
{
	struct surveying *v = arg;
	free(v->nodes);
	free(v->targets);
	free(v);
}

static void drop_child(struct child **c)
{
	if (!*c)
		return;
	launcher_child_signal(*c, SIGKILL);
	launcher_child_forget(*c);
	*c = NULL;
}

void slurm_survey_stop(struct surveying *v)
{
	drop_child(&v->job_query);
	drop_child(&v->node_query);
	if (v->reach)
		slurm_reach_stop(v->reach);
	v->reach = NULL;
	slurm_limit_close(&v->limit, free_survey, v);
}

static void remember_addresses(const struct surveying *v)
{
	struct known *copy = malloc((size_t)v->n * sizeof *copy);
	if (!copy)
		return; /* the older ones stay */
	memcpy(copy, v->nodes, (size_t)v->n * sizeof *copy);
	free(earlier.nodes);
	earlier.nodes = copy;
	earlier.n = v->n;
}

static enum node_state state_of(const struct surveying *v, const struct known *k)
{
	/* That a node is down says more than that the job has lost it. */
	if (k->state != NODE_UP && k->state != NODE_UNKNOWN)
		return k->state;
	if (v->job_known && !k->listed)
		return NODE_LEFT;
	bool up = v->job_known && (k->state == NODE_UP || v->nodes_known);
	return up ? NODE_UP : NODE_UNKNOWN;
}

static void report_survey(struct surveying *v)
{
	enum node_state *states = calloc((size_t)v->n + 1, sizeof *states);
	struct survey s = { .answered = v->job_known && v->nodes_known,
			    .nodes = states,
			    .n_nodes = states ? v->n : 0,
			    .partly = v->job_known || v->described,
			    .job_known = v->job_known,
			    .can_requeue = v->can_requeue };
	snprintf(s.why, sizeof s.why, "%s", states ? v->why : "no memory for the nodes' states");
	s.answered &= states != NULL;
	if (s.answered)
		s.why[0] = '\0';
	for (int i = 0; i < s.n_nodes; i++) {
		s.nodes[i] = state_of(v, &v->nodes[i]);
		s.free += s.nodes[i] == NODE_LEFT && v->nodes[i].idle;
	}
	v->done(v->arg, &s);
	free(states);
	slurm_limit_close(&v->limit, free_survey, v);
}

/* --- Connections to suspects --- */

static void on_reached(void *arg, const enum reach_result *results)
{
	struct surveying *v = arg;
	v->reach = NULL;
	for (int i = 0; i < v->n_targets; i++) {
		struct known *k = &v->nodes[v->targets[i]];
		/* Of a guessed port nothing is known. */
		if (k->port && (results[i] == REACH_SILENT || results[i] == REACH_REFUSED))
			k->state = NODE_UNREACHABLE;
		/* Slurm may doubt a good node, as in the seconds after its controller's start. */
		else if (results[i] == REACH_CONNECTED)
			k->state = NODE_UP;
	}
	report_survey(v);
}

/* Sets the address of a node that Slurm has not described. */
static void guess_address(struct known *k)
{
	for (int i = 0; i < earlier.n; i++)
		if (!strcmp(earlier.nodes[i].name, k->name)) {
			memcpy(k->host, earlier.nodes[i].host, sizeof k->host);
			k->port = earlier.nodes[i].port;
			return;
		}
	snprintf(k->host, sizeof k->host, "%s", k->name);
}

static void reach_suspects(struct surveying *v)
{
	struct reach_target *targets = calloc((size_t)v->n + 1, sizeof *targets);
	v->targets = calloc((size_t)v->n + 1, sizeof *v->targets);
	slurm_limit_stop(&v->limit);
	for (int i = 0; targets && v->targets && i < v->n; i++) {
		struct known *k = &v->nodes[i];
		if (!k->suspect || (k->state != NODE_UP && k->state != NODE_UNREACHABLE &&
				    k->state != NODE_UNKNOWN))
			continue;
		if (!k->host[0])
			guess_address(k);
		targets[v->n_targets] = (struct reach_target){ .host = k->host,
							       .port = k->port ? k->port
									       : SLURMD_PORT };
		v->targets[v->n_targets++] = i;
	}
	if (!targets || !v->targets ||
	    slurm_reach_start(v->loop, targets, v->n_targets, REACH_MS, on_reached, v, &v->reach,
			      NULL))
		report_survey(v);
	free(targets);
}

/* --- The controller's answers --- */

static void continue_if_answered(struct surveying *v)
{
	if (v->job_query || v->node_query)
		return;
	if (v->nodes_known)
		remember_addresses(v);
	reach_suspects(v);
}

static void on_answer_late(void *arg)
{
	struct surveying *v = arg;
	snprintf(v->why, sizeof v->why, "scontrol: no answer from slurmctld within %d s",
		 ANSWER_MS / 1000);
	drop_child(&v->job_query);
	drop_child(&v->node_query);
	continue_if_answered(v);
}

static int compare_known(const void *a, const void *b)
{
	return strcmp((*(struct known *const *)a)->name, (*(struct known *const *)b)->name);
}

/* The survey's nodes by name, for find_node(); NULL: no memory. */
static struct known **sort_nodes(const struct surveying *v)
{
	struct known **sorted = calloc((size_t)v->n + 1, sizeof *sorted);
	for (int i = 0; sorted && i < v->n; i++)
		sorted[i] = &v->nodes[i];
	if (sorted)
		qsort(sorted, (size_t)v->n, sizeof *sorted, compare_known);
	return sorted;
}

static struct known *find_node(struct known **sorted, int n, const char *name)
{
	struct known key, *at = &key;
	snprintf(key.name, sizeof key.name, "%s", name);
	struct known **found = bsearch(&at, sorted, (size_t)n, sizeof *sorted, compare_known);
	return found ? *found : NULL;
}

static void on_job(void *arg, int status, const char *output)
{
	struct surveying *v = arg;
	struct job_record r;
	struct err e = ERR_INIT;
	struct known **sorted = sort_nodes(v);
	v->job_query = NULL;
	if (!sorted)
		err_set(&e, ERR_NOMEM, "no memory for %d nodes", v->n);
	else if (!launcher_child_result("scontrol show job", status, output, &e) &&
		 !slurm_job_record_parse(output, getenv("SLURM_JOB_ID"), &r, &e)) {
		for (int i = 0; i < r.nodes.n; i++) {
			struct known *k = find_node(sorted, v->n, r.nodes.names[i]);
			if (k)
				k->listed = true;
		}
		v->can_requeue = r.can_requeue;
		v->job_known = true;
		slurm_job_record_free(&r);
	}
	free(sorted);
	if (*e.text)
		snprintf(v->why, sizeof v->why, "%s", e.text);
	continue_if_answered(v);
}

static int ask_nodes(struct surveying *v, struct err *e);

/* Takes the records of one answer. Returns their number; -1: no memory. */
static int take_records(struct surveying *v, const char *text)
{
	struct known **sorted = sort_nodes(v);
	struct node_record r;
	int n = sorted ? 0 : -1;
	while (sorted && slurm_node_record_next(&text, &r)) {
		struct known *k = find_node(sorted, v->n, r.name);
		if (!k)
			continue;
		k->state = r.state;
		k->idle = r.idle;
		k->port = r.port;
		memcpy(k->host, r.host, sizeof k->host);
		v->described = true;
		n++;
	}
	free(sorted);
	return n;
}

static void on_nodes(void *arg, int status, const char *output)
{
	struct surveying *v = arg;
	struct err e = ERR_INIT;
	v->node_query = NULL;
	/* scontrol fails if one node is unknown, but describes the others: a node may have been
	 * removed from the configuration. */
	int n = take_records(v, output);
	bool failed = n < 0 ||
		      (n == 0 && launcher_child_result("scontrol show node", status, output, &e));
	if (n < 0)
		err_set(&e, ERR_NOMEM, "no memory for %d nodes", v->n);
	if (!failed && v->asked < v->n)
		failed = ask_nodes(v, &e);
	else if (!failed)
		v->nodes_known = true;
	if (failed)
		snprintf(v->why, sizeof v->why, "%s", e.text);
	continue_if_answered(v);
}

static int ask_nodes(struct surveying *v, struct err *e)
{
	struct buf list = BUF_INIT;
	for (int i = 0; i < NODES_PER_QUERY && v->asked < v->n; i++)
		buf_printf(&list, "%s%s", i ? "," : "", v->nodes[v->asked++].name);
	char *argv[] = { "scontrol", "--oneliner", "show", "node", list.data, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	int rc = buf_failed(&list)
			 ? err_set(e, ERR_NOMEM, "scontrol: no memory for %d nodes", v->n)
			 : launcher_child_watch(v->loop, &c, on_nodes, v, &v->node_query, e);
	if (rc)
		v->node_query = NULL;
	buf_fini(&list);
	return rc;
}

static int ask_job(struct surveying *v, const char *job, struct err *e)
{
	char *argv[] = { "scontrol", "--oneliner", "show", "job", (char *)(uintptr_t)job, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	int rc = launcher_child_watch(v->loop, &c, on_job, v, &v->job_query, e);
	if (rc)
		v->job_query = NULL;
	return rc;
}

int slurm_survey(uv_loop_t *loop, const struct survey_request *r,
		 void (*done)(void *arg, const struct survey *s), void *arg, struct surveying **out,
		 struct err *e)
{
	const char *job = getenv("SLURM_JOB_ID");
	int n = r->cluster->n_nodes;
	if (!job)
		return err_set(e, ERR_NOTFOUND,
			       "SLURM_JOB_ID is not set, so there is no job whose "
			       "nodes can be asked for");
	struct surveying *v = calloc(1, sizeof *v);
	struct known *nodes = calloc((size_t)n + 1, sizeof *nodes);
	if (!v || !nodes) {
		free(v);
		free(nodes);
		return err_set(e, ERR_NOMEM, "no memory to survey %d nodes", n);
	}
	*v = (struct surveying){ .loop = loop, .done = done, .arg = arg, .nodes = nodes, .n = n };
	for (int i = 0; i < n; i++) {
		snprintf(nodes[i].name, sizeof nodes[i].name, "%s", r->cluster->nodes[i].name);
		nodes[i].state = NODE_UNKNOWN;
		nodes[i].suspect = r->suspects && r->suspects[i];
	}
	slurm_limit_init(&v->limit, loop);
	if (ask_job(v, job, e) || ask_nodes(v, e)) {
		slurm_survey_stop(v);
		return -1;
	}
	slurm_limit_start(&v->limit, ANSWER_MS, on_answer_late, v);
	*out = v;
	return 0;
}
