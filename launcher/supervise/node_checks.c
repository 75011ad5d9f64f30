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
};

static int node_of(const struct node_check *c)
{
	return (int)(c - c->s->recovery.checks.all);
}

static void note_result(struct node_check *c, const char *why)
{
	struct supervisor *s = c->s;
	int node = node_of(c);
	const char *name = s->o.machines->nodes[node].name;
	supervise_pool_check(&s->recovery.pool, node, !why);
	c->at = supervise_now(s);
	if (!why || !c->told)
		rundir_event_node_check(s->o.run, s->generation,
					&(struct rundir_node_check){
						.node = name,
						.passed = !why,
						.text = why ? why : "",
					});
	if (why && !c->told)
		supervise_terminal_event(s->o.term, TONE_WARN, "nodes",
					 "%s is back, but the run does not grow onto it: %s", name,
					 why);
	c->told = why;
}

/* The check's own line, otherwise an error of the command that started it. */
static bool read_result(int status, const char *output, char *why, size_t size)
{
	const char *line = strstr(output, LAUNCH_CHECK_TAG);
	struct err e = ERR_INIT;
	if (line) {
		line += sizeof LAUNCH_CHECK_TAG - 1;
		snprintf(why, size, "%.*s", (int)strcspn(line, "\n"), line);
		return !strcmp(why, LAUNCH_CHECK_OK);
	}
	if (!launcher_child_result("its check", status, output, &e))
		err_set(&e, ERR_PROTO, "its check printed no result");
	snprintf(why, size, "%s", e.text);
	return false;
}

/* The last check is over: others may have waited for a free place. */
static void go_on(struct supervisor *s)
{
	if (!s->recovery.checks.running && !supervise_checks_start(s))
		supervise_handle(s, EV_CHECKED, NULL, NULL);
}

static void on_ended(void *arg, int status, const char *output)
{
	struct node_check *c = arg;
	char why[800];
	c->child = NULL;
	c->s->recovery.checks.running--;
	note_result(c, read_result(status, output, why, sizeof why) ? NULL : why);
	go_on(c->s);
}

static void start_check(struct node_check *c)
{
	struct supervisor *s = c->s;
	char program[PATH_MAX];
	struct err e = ERR_INIT;
	const struct check_request request = {
		.node = s->o.machines->nodes[node_of(c)].name,
		.program = program,
		.needs = s->o.needs,
	};
	c->at = supervise_now(s);
	if (launcher_self_path(program, sizeof program, &e) ||
	    s->o.ops->check_node(s->o.loop, &request, on_ended, c, &c->child, &e)) {
		c->child = NULL;
		note_result(c, e.text);
	} else {
		s->recovery.checks.running++;
	}
}

static bool is_needed(const struct pool *p, int node)
{
	return p->nodes[node].returned && !p->nodes[node].passed && supervise_pool_usable(p, node);
}

static bool open_checks(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	int n = s->o.machines->n_nodes;
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
	if (!s->o.ops->check_node || !s->o.needs || !open_checks(s))
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
		if (p->nodes[i].unfit && supervise_now(s) - all[i].at >= NODE_CHECK_AGAIN)
			p->nodes[i].unfit = false;
}

/* srun ends the job step when it gets SIGTERM. */
static void end_check(struct node_check *c)
{
	launcher_child_signal(c->child, SIGTERM);
	launcher_child_forget(c->child);
	c->child = NULL;
	c->s->recovery.checks.running--;
}

void supervise_checks_tick(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	int late = 0;
	for (int i = 0; k->running && i < s->o.machines->n_nodes; i++) {
		struct node_check *c = &k->all[i];
		if (!c->child || supervise_now(s) - c->at < NODE_CHECK_SECONDS)
			continue;
		end_check(c);
		note_result(c, "its check took too long");
		late++;
	}
	if (late)
		go_on(s);
}

void supervise_checks_stop(struct supervisor *s)
{
	struct node_checks *k = &s->recovery.checks;
	for (int i = 0; k->running && i < s->o.machines->n_nodes; i++)
		if (k->all[i].child)
			end_check(&k->all[i]);
}

void supervise_checks_close(struct supervisor *s)
{
	supervise_checks_stop(s);
	free(s->recovery.checks.all);
	s->recovery.checks.all = NULL;
}
