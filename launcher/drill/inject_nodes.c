/* inject_nodes: faults of nodes, as Slurm's administrators cause them. */
#include "base/clock.h"
#include "launcher/drill/injections.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCONTROL_SECONDS = 60 };

static int set_node_state(const char *node, const char *state, struct err *e)
{
	char name[160], to[64];
	struct buf output = BUF_INIT;
	struct err why = ERR_INIT;
	snprintf(name, sizeof name, "nodename=%s", node);
	snprintf(to, sizeof to, "state=%s", state);
	char *argv[] = { (char[]){ "scontrol" },
			 (char[]){ "update" },
			 name,
			 to,
			 (char[]){ "reason=muster-drill" },
			 NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	int rc = launcher_child_run(&c, SCONTROL_SECONDS, &output, &why);
	buf_fini(&output);
	/* Most users may not do this: it is then skipped. */
	return rc ? err_set(e, ERR_UNSUPPORTED, "%s", why.text) : 0;
}

/* The last rank of another node than this one, where the batch script is. */
static int choose_rank(struct drill_run *r, struct err *e)
{
	const char *own = getenv("SLURMD_NODENAME");
	for (int rank = r->story.last.world - 1; rank >= 0; rank--) {
		if (drill_node_of(r, rank, r->node, sizeof r->node, e))
			break;
		if (!own || strcmp(own, r->node))
			return rank;
	}
	*r->node = '\0';
	return *e->text ? -1 : err_set(e, ERR_UNSUPPORTED, "every rank is on this node");
}

/* Slurm does not end the agents of a node in these states. */
static int set_state_and_kill(struct drill_run *r, const char *state, struct err *e)
{
	int rank = choose_rank(r, e);
	if (rank < 0 || set_node_state(r->node, state, e))
		return -1;
	return drill_signal_agent(r, rank, SIGKILL, e);
}

int drill_drain_node(struct drill_run *r, struct err *e)
{
	return set_state_and_kill(r, "DRAIN", e);
}

int drill_set_node_fail(struct drill_run *r, struct err *e)
{
	return set_state_and_kill(r, "FAIL", e);
}

int drill_set_node_down(struct drill_run *r, struct err *e)
{
	if (choose_rank(r, e) < 0)
		return -1;
	r->injected = clock_s();
	return set_node_state(r->node, "DOWN", e);
}

/* With ReturnToService a node that was down may be back already, and cannot be resumed. */
static bool is_back(const char *node)
{
	char name[160];
	snprintf(name, sizeof name, "--nodes=%s", node);
	char *argv[] = { (char[]){ "sinfo" }, (char[]){ "--noheader" }, (char[]){ "--format=%T" },
			 name, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	struct buf output = BUF_INIT;
	struct err why = ERR_INIT;
	int rc = launcher_child_run(&c, SCONTROL_SECONDS, &output, &why);
	const char *text = buf_str(&output);
	bool back = !rc && *text && !strstr(text, "down") && !strstr(text, "drain") &&
		    !strstr(text, "fail");
	buf_fini(&output);
	return back;
}

void drill_resume_node(struct drill_run *r)
{
	struct err e = ERR_INIT;
	if (!*r->node)
		return;
	if (set_node_state(r->node, "RESUME", &e) && !is_back(r->node))
		fprintf(stderr,
			"muster drill: node %s could not be put back: %s; run: scontrol update "
			"nodename=%s state=resume\n",
			r->node, e.text, r->node);
	*r->node = '\0';
}
