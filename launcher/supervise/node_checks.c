#include "launcher/supervise/node_checks.h"

#include "launcher/agent_path.h"
#include "launcher/child.h"
#include "launcher/supervise/supervisor.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node_check {
	struct supervisor *s;
	struct child *child; /* NULL: it does not run */
	double at;           /* time of its start, or of its end */
	bool told;           /* the reason of a failure was printed */
	bool final;          /* it failed its burn-in, which a check cannot disprove */
	char why[300];       /* the reason of the last failure */
};

static int node_of(const struct node_check *c)
{
	return (int)(c - c->s->recovery.checks.all);
}

static void print_failure(struct supervisor *s, const char *name, const char *why)
{
	if (s->state == SUP_CHECKING)
		supervise_terminal_event(s->o.term, TONE_WARN, "nodes", "%s is not used: %s", name,
					 why);
	else
		supervise_terminal_event(s->o.term, TONE_WARN, "nodes",
					 "%s is back, but the run does not grow onto it: %s", name,
					 why);
}

/* Of a check of all nodes only the failures are recorded here. */
static void note_result(struct node_check *c, const char *why)
{
	struct supervisor *s = c->s;
	int node = node_of(c);
	const char *name = s->o.machines->nodes[node].name;
	bool print = why && !c->told;
	supervise_pool_check(&s->recovery.pool, node, !why);
	c->at = supervise_now(s);
	if (print || (!why && s->state != SUP_CHECKING))
		rundir_event_node_check(s->o.run, s->generation,
					&(struct rundir_node_check){
						.node = name,
						.passed = !why,
						.text = why ? why : "",
					});
	if (print)
		print_failure(s, name, why);
	c->told = why;
	snprintf(c->why, sizeof c->why, "%s", why ? why : "");
}

/* Finds the node's line. True: *passed is the result, and `why` has its text. */
static bool find_result(const struct node_check *c, const char *output, bool *passed, char *why,
			size_t size)
{
	char head[sizeof LAUNCH_CHECK_TAG + TOPO_NAME + 4];
	snprintf(head, sizeof head,
		 LAUNCH_CHECK_TAG "%s: ", c->s->o.machines->nodes[node_of(c)].name);
	const char *line = strstr(output, head);
	if (!line)
		return false;
	line += strlen(head);
	snprintf(why, size, "%.*s", (int)strcspn(line, "\n"), line);
	*passed = !strcmp(why, LAUNCH_CHECK_OK);
	return true;
}

/* The check's own line, otherwise an error of the command that started it. */
static bool read_result(const struct node_check *c, int status, const char *output, char *why,
			size_t size)
{
	struct err e = ERR_INIT;
	bool passed;
	if (find_result(c, output, &passed, why, size))
		return passed;
	if (!launcher_child_result("its check", status, output, &e))
		err_set(&e, ERR_PROTO, "its check printed no result");
	snprintf(why, size, "%s", e.text);
	return false;
}

void supervise_checks_fail(struct supervisor *s, int node, const char *why)
{
	struct node_check *c = &s->recovery.checks.all[node];
	note_result(c, why);
	c->final = true;
	supervise_suspect_note(s, node, SUSPECT_CHECK, why, "not used");
}

/* The last check is over: others may have waited for a free place. */
void supervise_checks_go_on(struct supervisor *s)
{
	if (s->recovery.checks.running || supervise_checks_start(s))
		return;
	if (s->state != SUP_CHECKING || !supervise_burn_in_start(s))
		supervise_handle(s, EV_CHECKED, NULL, NULL);
}

static void on_ended(void *arg, int status, const char *output)
{
	struct node_check *c = arg;
	char why[800];
	c->child = NULL;
	c->s->recovery.checks.running--;
	note_result(c, read_result(c, status, output, why, sizeof why) ? NULL : why);
	supervise_checks_go_on(c->s);
}

static int start_step(struct supervisor *s, const char *nodes, int n,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	char program[PATH_MAX];
	const struct check_request request = {
		.nodes = nodes,
		.n_nodes = n,
		.program = program,
		.needs = s->o.needs,
	};
	*out = NULL;
	if (launcher_self_path(program, sizeof program, e) ||
	    s->o.ops->check_nodes(s->o.loop, &request, ended, arg, out, e)) {
		*out = NULL;
		return -1;
	}
	s->recovery.checks.running++;
	return 0;
}

static void start_check(struct node_check *c)
{
	struct err e = ERR_INIT;
	c->at = supervise_now(c->s);
	if (start_step(c->s, c->s->o.machines->nodes[node_of(c)].name, 1, on_ended, c, &c->child,
		       &e))
		note_result(c, e.text);
}

static bool is_needed(const struct pool *p, int node)
{
	return p->nodes[node].returned && !p->nodes[node].passed && supervise_pool_usable(p, node);
}

/* Whether nodes can be checked at all. */
static bool open_checks(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	int n = s->o.machines->n_nodes;
	if (!s->o.ops->check_nodes || !s->o.needs)
		return false;
	if (k->all)
		return true;
	k->all = calloc((size_t)n, sizeof *k->all);
	for (int i = 0; k->all && i < n; i++)
		k->all[i].s = s;
	return k->all;
}

bool supervise_checks_start(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	const struct pool *p = &s->recovery.pool;
	if (!open_checks(s))
		return false;
	for (int i = 0; i < p->machines->n_nodes && k->running < NODE_CHECKS_MAX; i++)
		if (is_needed(p, i) && !k->all[i].child)
			start_check(&k->all[i]);
	return k->running > 0;
}

void supervise_checks_look(struct supervisor *s)
{
	struct pool *p = &s->recovery.pool;
	const struct node_check *all = s->recovery.checks.all;
	for (int i = 0; all && i < p->machines->n_nodes; i++)
		if (p->nodes[i].unfit && !all[i].final &&
		    supervise_now(s) - all[i].at >= NODE_CHECK_AGAIN)
			supervise_pool_check_again(p, i);
}

/* --- All nodes before the first generation -------------------------------------------- */

/* The names of all nodes, separated by commas. */
static void list_nodes(const struct cluster *c, struct buf *out)
{
	for (int i = 0; i < c->n_nodes; i++)
		buf_printf(out, "%s%s", i ? "," : "", c->nodes[i].name);
}

static void give_up_checks(struct supervisor *s, const char *why)
{
	supervise_terminal_event(s->o.term, TONE_WARN, "nodes",
				 "they cannot be checked, and the run starts without that: %s",
				 why);
	supervise_pool_confirm(&s->recovery.pool); /* no node has to pass a check */
}

static void on_all_ended(void *arg, int status, const char *output)
{
	struct supervisor *s = arg;
	struct node_checks *k = &s->recovery.checks;
	struct err e = ERR_INIT;
	char why[800];
	bool passed;
	int answers = 0;
	k->together = NULL;
	k->running--;
	for (int i = 0; i < s->o.machines->n_nodes; i++) {
		if (!find_result(&k->all[i], output, &passed, why, sizeof why))
			continue;
		answers++;
		note_result(&k->all[i], passed ? NULL : why);
	}
	if (!answers) {
		if (!launcher_child_result("srun", status, output, &e))
			err_set(&e, ERR_PROTO, "no node has answered");
		give_up_checks(s, e.text);
	}
	supervise_checks_go_on(s);
}

bool supervise_checks_start_all(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	struct buf names = BUF_INIT;
	struct err e = ERR_INIT;
	if (!open_checks(s))
		return false;
	k->since = supervise_now(s);
	supervise_pool_return_all(&s->recovery.pool);
	list_nodes(s->o.machines, &names);
	int rc = buf_failed(&names) ? err_set(&e, ERR_NOMEM, "no memory for the names of the nodes")
				    : start_step(s, buf_str(&names), s->o.machines->n_nodes,
						 on_all_ended, s, &k->together, &e);
	buf_fini(&names);
	if (rc)
		give_up_checks(s, e.text);
	return !rc;
}

/* If most nodes have passed, the others failed for reasons of their own, not because the job needs
 * too much. */
static void note_suspects(struct supervisor *s, int passed, int failed)
{
	const struct pool *p = &s->recovery.pool;
	for (int i = 0; failed < passed && i < p->machines->n_nodes; i++)
		if (p->nodes[i].unfit && !s->recovery.checks.all[i].final)
			supervise_suspect_note(s, i, SUSPECT_CHECK, s->recovery.checks.all[i].why,
					       "not used");
}

void supervise_checks_finish_all(struct supervisor *s)
{
	const struct pool *p = &s->recovery.pool;
	int n = p->machines->n_nodes, passed = 0, failed = 0;
	for (int i = 0; i < n; i++) {
		passed += p->nodes[i].passed;
		failed += p->nodes[i].unfit;
	}
	double seconds = supervise_now(s) - s->recovery.checks.since;
	rundir_event_nodes_checked(s->o.run, s->generation,
				   &(struct rundir_nodes_checked){ .passed = passed,
								   .failed = failed,
								   .seconds = seconds });
	if ((passed || failed) && !s->recovery.burn_in_told)
		supervise_terminal_event(s->o.term, failed ? TONE_WARN : TONE_PLAIN, "nodes",
					 "%d of %d passed the check, which took %.1f s", passed, n,
					 seconds);
	note_suspects(s, passed, failed);
	supervise_pool_confirm(&s->recovery.pool);
}

/* --- The end of checks ---------------------------------------------------------------- */

/* srun ends the job step when it gets SIGTERM. */
static void end_child(struct supervisor *s, struct child **child)
{
	launcher_child_signal(*child, SIGTERM);
	launcher_child_forget(*child);
	*child = NULL;
	s->recovery.checks.running--;
}

void supervise_checks_tick(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	int late = 0;
	supervise_burn_in_tick(s);
	if (k->together && supervise_now(s) - k->since >= NODE_CHECK_SECONDS) {
		end_child(s, &k->together);
		late++;
	}
	for (int i = 0; k->running && i < s->o.machines->n_nodes; i++) {
		struct node_check *c = &k->all[i];
		if (!c->child || supervise_now(s) - c->at < NODE_CHECK_SECONDS)
			continue;
		end_child(s, &c->child);
		note_result(c, "its check took too long");
		late++;
	}
	if (late)
		supervise_checks_go_on(s);
}

void supervise_checks_stop(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	supervise_burn_in_stop(s);
	if (k->together)
		end_child(s, &k->together);
	for (int i = 0; k->running && i < s->o.machines->n_nodes; i++)
		if (k->all[i].child)
			end_child(s, &k->all[i].child);
}

void supervise_checks_close(struct supervisor *s)
{
	supervise_checks_stop(s);
	free(s->recovery.checks.all);
	s->recovery.checks.all = NULL;
}
