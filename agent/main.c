/* muster-agent: with arguments it is a tool, without it is one rank of a job. */
#include "agent/boot.h"
#include "agent/control.h"
#include "agent/engine/ckpt/memory/store.h"
#include "agent/engine/train/phases.h"
#include "agent/generation.h"
#include "agent/program.h"
#include "agent/rendezvous.h"
#include "agent/tools/tools.h"
#include "base/agent_env.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/munge.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_JOB_FAILED = 1, EXIT_USAGE = 2 };

struct agent {
	char *address, *secret, *generation_text; /* from the environment */
	char *ranks;                              /* the same; NULL: PMIx says which rank it is */
	struct voucher munge;
	bool vouched;         /* both ends prove their user id with MUNGE */
	uint32_t first;       /* the generation that it was started for */
	char host[BOOT_HOST]; /* ranks of equal host share memory */
	struct boot *boot;    /* until the ranks are wired up; NULL: without PMIx */
	struct control *control;
	struct ckpt_store *memory;         /* copies of the state, for the next generation */
	const struct msg_welcome *welcome; /* of the generation; borrowed from the control */
	struct generation *generation;     /* NULL between two */
	struct phases phases;              /* of the start */
	struct program_failure failure;    /* of a program's task */
};

static int usage(const char *cause)
{
	fprintf(stderr,
		"muster-agent: %s; `muster run JOB.ini` and `muster submit JOB.ini` start agents, "
		"`muster data` and `muster ckpt` run its tools\n",
		cause);
	return EXIT_USAGE;
}

static int take_auth(struct agent *a)
{
	struct err e = ERR_INIT;
	char *word = agent_boot_take_env(AGENT_ENV_AUTH);
	int rc = munge_parse(word, &a->munge, &e);
	free(word);
	a->vouched = rc == 1;
	return rc < 0 ? usage(e.text) : 0;
}

static int take_environment(struct agent *a)
{
	a->address = agent_boot_take_env(AGENT_ENV_ADDRESS);
	a->secret = agent_boot_take_env(AGENT_ENV_SECRET);
	a->generation_text = agent_boot_take_env(AGENT_ENV_GENERATION);
	a->ranks = agent_boot_take_env(AGENT_ENV_RANKS);
	if (!a->address || !a->secret || !a->generation_text)
		return usage("started by hand: " AGENT_ENV_ADDRESS ", " AGENT_ENV_SECRET
			     " and " AGENT_ENV_GENERATION " are not in the environment");
	char *end;
	unsigned long n = strtoul(a->generation_text, &end, 10);
	if (!*a->generation_text || *end || n > UINT32_MAX)
		return usage(AGENT_ENV_GENERATION " is not a number");
	a->first = (uint32_t)n;
	return take_auth(a);
}

/* Which rank it is, before the supervisor is asked. */
static int find_rank(struct agent *a, int *rank, int *size, struct err *e)
{
	const char *number = getenv("SLURM_PROCID");
	if (a->ranks)
		return agent_rendezvous_parse(a->ranks, number ? strtoll(number, NULL, 10) : 0,
					      rank, size, e);
	if (agent_boot_open(&a->boot, e))
		return -1;
	*rank = agent_boot_rank(a->boot);
	*size = agent_boot_size(a->boot);
	return 0;
}

static int meet_supervisor(struct agent *a, int rank, int size, struct err *e)
{
	struct control_options opt = {
		.address = a->address,
		.secret = a->secret,
		.generation = a->first,
		.rank = rank,
		.world = size,
		.node = a->host,
		.voucher = a->vouched ? &a->munge : NULL,
	};
	int rc = agent_control_open(&opt, &a->control, &a->welcome, e);
	explicit_bzero(a->secret, strlen(a->secret));
	if (rc)
		return -1;
	if (a->welcome->rank != rank || a->welcome->world != size ||
	    a->welcome->generation != a->first)
		return err_set(e, ERR_PROTO,
			       "message welcome: it is for rank %d of %d in generation %lld",
			       a->welcome->rank, a->welcome->world,
			       (long long)a->welcome->generation);
	return a->boot ? agent_boot_seal(a->boot, a->welcome->group_secret, a->first, e) : 0;
}

static int start(struct agent *a, struct err *e)
{
	double since = clock_s();
	int rank, size;
	if (find_rank(a, &rank, &size, e))
		return -1;
	train_phases_lap(&a->phases, "pmix", &since);
	if (meet_supervisor(a, rank, size, e))
		return -1;
	train_phases_lap(&a->phases, "supervisor", &since);
	return 0;
}

/* A new reference. NULL: there is nothing to say, or no memory. */
static json_t *blame_json(const struct agent *a)
{
	static const struct train_blame nobody;
	const struct train_blame *b = a->generation ? agent_generation_blame(a->generation)
						    : &nobody;
	struct msg_blame m = {
		.suspect = b->suspect, .step = b->step, .kind = b->kind, .tensor = b->tensor
	};
	json_t *body = NULL;
	m.ranks = b->n ? json_array() : NULL;
	for (int i = 0; i < b->n && m.ranks; i++)
		json_array_append_new(m.ranks, json_integer(b->ranks[i]));
	if (m.ranks)
		body = msg_blame_json(&m);
	json_decref(m.ranks);
	return body;
}

/* The error is another rank's, or the supervisor has ended the generation. */
static bool is_theirs(const struct err *e)
{
	return e->code == ERR_PEER || e->code == ERR_ABORTED;
}

static void report_failure(struct agent *a, const struct err *e)
{
	log_hook(LOG_ERROR, NULL, NULL); /* the message failed reports it */
	log_error("%s", e->text);
	struct msg_failed failed = { .code = err_word(e->code),
				     .text = e->text,
				     .has_status = a->failure.ended,
				     .status = a->failure.status,
				     .has_last_lines = a->failure.last_lines,
				     .last_lines = a->failure.last_lines,
				     .blame = blame_json(a) };
	failed.has_blame = failed.blame;
	json_t *body = msg_failed_json(&failed);
	if (!body) { /* a short text may still fit in memory */
		failed.text = "no memory for the error message";
		body = msg_failed_json(&failed);
	}
	json_decref(failed.blame);
	if (a->control)
		agent_control_send(a->control, MSG_FAILED, body);
	else
		json_decref(body);
	if (is_theirs(e))
		return;
	if (a->generation)
		agent_generation_fail(a->generation);
	agent_rank_log_fail(a->failure.log);
}

/* Whether the agent may live on: the error is another rank's, or the supervisor has ended the
 * generation. */
static bool may_continue(struct agent *a, const struct err *e)
{
	return a->control && !a->boot && a->generation && a->welcome->warm &&
	       (is_theirs(e) || agent_control_regroups(a->control));
}

/* One generation. 1: it is over, and the next one follows. */
static int run_generation(struct agent *a, const struct phases *so_far, struct err *e)
{
	const struct generation_start start = { .control = a->control,
						.welcome = a->welcome,
						.boot = a->boot ? &a->boot : NULL,
						.host = a->host,
						.memory = a->memory,
						.phases = so_far };
	agent_control_wipe_secret(a->control); /* only the boot keeps it */
	if (a->welcome->has_program)
		return agent_program_run(&start, &a->failure, e);
	if (agent_generation_open(&start, &a->generation, e))
		return -1;
	if (!agent_generation_run(a->generation, e))
		return 0;
	if (!may_continue(a, e))
		return -1;
	if (agent_control_regroups(a->control))
		log_info("the generation is over: %s", e->text);
	else
		report_failure(a, e);
	agent_generation_close(a->generation);
	a->generation = NULL;
	return agent_control_await_next(a->control, &a->welcome, e) ? -1 : 1;
}

static int run_generations(struct agent *a, struct err *e)
{
	int rc = start(a, e) || ckpt_store_open(&(struct ckpt_store_options){ 0 }, &a->memory, e)
			 ? -1
			 : run_generation(a, &a->phases, e);
	while (rc == 1) {
		*e = (struct err)ERR_INIT;
		rc = run_generation(a, NULL, e);
	}
	return rc;
}

static void agent_close(struct agent *a)
{
	log_hook(LOG_ERROR, NULL, NULL);
	agent_generation_close(a->generation);
	agent_rank_log_close(a->failure.log);
	agent_boot_finish(a->boot);
	agent_control_close(a->control);
	ckpt_store_close(a->memory);
	json_decref(a->failure.last_lines);
	free(a->address);
	free(a->secret);
	free(a->generation_text);
	free(a->ranks);
}

int main(int argc, char **argv)
{
	process_begin();
	if (argc > 1) {
		int rc = tool_main(argc, argv);
		return rc == TOOL_UNKNOWN ? usage("no such tool") : rc;
	}
	static struct agent a; /* large, so not on the stack */
	struct err e = ERR_INIT;
	int rc = take_environment(&a);
	if (rc)
		return rc;
	agent_control_block_signals();
	log_setup(2, LOG_INFO, "muster-agent");
	agent_boot_host(a.host);
	rc = run_generations(&a, &e) ? EXIT_JOB_FAILED : EXIT_DONE;
	if (rc)
		report_failure(&a, &e);
	agent_close(&a);
	return rc;
}
