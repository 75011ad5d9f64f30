/* muster-agent: with arguments it is a tool, without it is one rank of a job. */
#include "agent/boot.h"
#include "agent/control.h"
#include "agent/drill.h"
#include "agent/engine/train/phases.h"
#include "agent/engine/parallel/device.h"
#include "agent/metrics/report.h"
#include "agent/predecessors.h"
#include "agent/preflight.h"
#include "agent/tools/tools.h"
#include "agent/watch.h"
#include "agent/engine/train/train.h"
#include "base/agent_env.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/munge.h"
#include "base/pin.h"
#include "base/process.h"
#include "base/run_paths.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_JOB_FAILED = 1, EXIT_USAGE = 2 };

struct agent {
	char *address, *secret, *generation_text; /* from the environment */
	struct voucher munge;
	bool vouched; /* both ends prove their user id with MUNGE */
	uint32_t generation;
	char host[BOOT_HOST]; /* ranks of equal host share memory */
	struct boot *boot;
	struct control *control;
	struct agent_watch *watch; /* NULL: nothing is watched */
	struct comm *world;
	int rank, size;
	struct job job;
	struct rank_view view;
	int node_index;
	int threads;
	int device, numa;                    /* on the node; numa -1: unknown */
	const char *cpus;                    /* next to the device; "": unknown */
	const char *run_dir, *resume, *node; /* borrowed from the welcome */
	const json_t *predecessors;          /* borrowed from the welcome; NULL: none */
	json_t *skips;                       /* the same */
	struct preflight place;
	bool watches_node;
	struct agent_drill drill;
	struct phases phases;
	struct train_blame blame;
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
	if (!a->address || !a->secret || !a->generation_text)
		return usage("started by hand: " AGENT_ENV_ADDRESS ", " AGENT_ENV_SECRET
			     " and " AGENT_ENV_GENERATION " are not in the environment");
	char *end;
	unsigned long n = strtoul(a->generation_text, &end, 10);
	if (!*a->generation_text || *end || n > UINT32_MAX)
		return usage(AGENT_ENV_GENERATION " is not a number");
	a->generation = (uint32_t)n;
	return take_auth(a);
}

/* Computes the rank's view of the plan. Its coordinates must be those of the welcome. */
static int compute_view(struct agent *a, const struct msg_welcome *w, struct err *e)
{
	struct msg_coords at;
	if (msg_coords_read(w->coords, &at, e))
		return -1;
	struct layout l = layout_of(&a->job, 1);
	int replica = layout_world(&l);
	l.dp = a->size / replica;
	if (a->size % replica || l.dp % l.ep)
		return err_set(e, ERR_PROTO,
			       "message welcome: tp %d, cp %d, ep %d and pp %d do not divide %d "
			       "ranks",
			       l.tp, l.cp, l.ep, l.pp, a->size);
	const struct coords own = layout_coords(&l, a->rank);
	if (at.tp != own.tp || at.cp != own.cp || at.dp != own.dp || at.pp != own.pp)
		return err_set(e, ERR_PROTO,
			       "message welcome: its coordinates are not those of rank %d of %d",
			       a->rank, a->size);
	return rank_view_init(&a->job, &l, a->rank, &a->view, e);
}

static int read_welcome(struct agent *a, const struct msg_welcome *w, struct err *e)
{
	a->run_dir = w->run;
	a->resume = w->resume;
	a->node = w->node;
	if (job_parse(w->job, "the supervisor's job", &a->job, e) || compute_view(a, w, e))
		return -1;
	a->place = (struct preflight){
		.cuda = a->job.job.device == DEVICE_CUDA,
		.bus = w->bus,
		.device = w->device,
		.memory = w->memory,
		.node_ranks = w->node_ranks,
	};
	a->threads = w->threads >= 1 && w->threads <= 4096 ? w->threads : 1;
	a->device = w->device;
	a->numa = w->numa;
	a->cpus = w->cpus;
	a->node_index = w->node_index;
	a->predecessors = w->predecessors;
	a->watches_node = w->watches_node;
	a->skips = w->skips;
	return 0;
}

static void send_log_line(enum log_level level, const char *text, void *arg)
{
	agent_control_send(
		arg, MSG_LOG,
		msg_log_json(&(struct msg_log){ .level = log_level_word(level), .text = text }));
}

static int open_log(struct agent *a, struct err *e)
{
	char path[RUN_PATH], who[2 * BOOT_HOST];
	run_path(path, a->run_dir, RUN_LOGS);
	if (strchr(a->node, '/'))
		return err_set(e, ERR_PROTO, "message welcome: node \"%s\" is not a host name",
			       a->node);
	if (file_make_dirs(a->run_dir, e) || file_make_own_dir(path, e))
		return -1;
	run_path_rank_log(path, a->run_dir, a->node, a->rank);
	int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int level = log_level_parse(a->job.log.level);
	snprintf(who, sizeof who, "%s:%d", a->node, a->rank);
	log_setup(fd, level < 0 ? LOG_INFO : (enum log_level)level, who);
	log_hook(LOG_WARN, send_log_line, a->control);
	return 0;
}

/* Binds the process to the cores and the memory next to its device, for all threads that training
 * starts. The run continues if the node does not permit it. */
static void bind_to_device(const struct agent *a)
{
	struct err e = ERR_INIT;
	if (pin_cpus(a->cpus, &e) || pin_memory(a->numa, &e))
		log_warn("device %d: %s; the agent runs on the cores where it was started",
			 a->device, e.text);
	else if (*a->cpus)
		log_info("device %d: bound to cpus %s; prefers memory of NUMA domain %d", a->device,
			 a->cpus, a->numa);
}

static int meet_supervisor(struct agent *a, struct err *e)
{
	struct control_options opt = {
		.address = a->address,
		.secret = a->secret,
		.generation = a->generation,
		.rank = a->rank,
		.world = a->size,
		.node = a->host,
		.voucher = a->vouched ? &a->munge : NULL,
	};
	const struct msg_welcome *welcome;
	int rc = agent_control_open(&opt, &a->control, &welcome, e);
	explicit_bzero(a->secret, strlen(a->secret));
	if (rc || agent_boot_seal(a->boot, welcome->group_secret, a->generation, e))
		return -1;
	agent_control_wipe_secret(a->control); /* only the boot keeps it */
	if (read_welcome(a, welcome, e) || open_log(a, e))
		return -1;
	bind_to_device(a);
	return 0;
}

static void abort_world(const char *reason, void *arg)
{
	comm_abort(arg, reason);
}

static int write_recorder(void *arg, struct err *e)
{
	struct agent *a = arg;
	char dir[RUN_PATH], path[RUN_PATH];
	run_path_trace(dir, a->run_dir, a->generation);
	run_path_recorder(path, dir, a->rank);
	return file_make_dirs(dir, e) || comm_dump(a->world, path, e) ? -1 : 0;
}

/* Opens the world communicator with the endpoints from PMIx, then finalizes PMIx: from then on the
 * death of one rank does not end the others. */
static int wire_up(struct agent *a, struct err *e)
{
	char dumps[RUN_PATH];
	run_path_trace(dumps, a->run_dir, a->generation);
	struct comm_options opt = {
		.host = a->host,
		.interface = a->job.network.interface,
		.address_hint = agent_control_local_address(a->control),
		.timeout_s = a->job.network.timeout,
		.backend = a->job.network.backend,
		.sockets = (int)a->job.network.sockets,
		.dump_dir = dumps,
		.integrity = (enum comm_integrity)comm_integrity_parse(a->job.network.integrity),
	};
	if (comm_open(agent_boot_bootstrap(a->boot), &opt, &a->world, e))
		return err_prefix(e, "wiring up");
	agent_control_on_abort(a->control, abort_world, a->world);
	agent_control_on_dump(a->control, write_recorder, a);
	agent_boot_finish(a->boot);
	a->boot = NULL;
	return 0;
}

/* Before the device is used: an earlier agent may still hold it. */
static int end_predecessors(struct agent *a, struct err *e)
{
	const struct predecessors_gate gate = { .node = a->node };
	agent_control_progress(a->control, 0, "predecessors");
	return agent_predecessors_end(&gate, a->predecessors, e);
}

/* Without it the run goes on: slow ranks are then named without a reason. */
static void watch_health(struct agent *a)
{
	struct err e = ERR_INIT;
	char checkpoints[RUN_PATH];
	run_path(checkpoints, a->run_dir, RUN_CKPT);
	const struct watch_options opt = {
		.control = a->control,
		.world = a->world,
		.window_s = a->job.health.slow_window,
		.node = a->watches_node,
		.gpu = a->place.cuda ? a->place.bus : "",
		.disk = *a->job.checkpoint.dir && !job_path_is_address(a->job.checkpoint.dir)
				? a->job.checkpoint.dir
				: checkpoints,
	};
	if (agent_watch_open(&opt, &a->watch, &e))
		log_warn("%s", e.text);
}

static int run_rank(struct agent *a, struct err *e)
{
	double since = clock_s();
	if (agent_boot_open(&a->boot, e))
		return -1;
	a->rank = agent_boot_rank(a->boot);
	a->size = agent_boot_size(a->boot);
	train_phases_lap(&a->phases, "pmix", &since);
	if (meet_supervisor(a, e))
		return -1;
	train_phases_lap(&a->phases, "supervisor", &since);
	a->place.node = a->node;
	if (agent_drill_open(&a->drill, a->rank, a->generation, e) || end_predecessors(a, e))
		return -1;
	train_phases_lap(&a->phases, "predecessors", &since);
	agent_control_progress(a->control, 0, "preflight");
	if (agent_preflight(&a->place, e))
		return -1;
	a->device = a->place.ordinal;
	train_phases_lap(&a->phases, "preflight", &since);
	agent_control_progress(a->control, 0, "wire up");
	if (wire_up(a, e))
		return -1;
	train_phases_lap(&a->phases, "wire-up", &since);
	const struct coords *at = &a->view.at;
	const struct layout *l = &a->view.layout;
	log_info("rank %d of %d: tp %d/%d, cp %d/%d, dp %d/%d, pp %d/%d, %d threads, %s, "
		 "generation %" PRIu32,
		 a->rank, a->size, at->tp, l->tp, at->cp, l->cp, at->dp, l->dp, at->pp, l->pp,
		 a->threads, comm_backend(a->world), a->generation);
	watch_health(a);
	struct train_hooks hooks = agent_report_hooks(a->control);
	hooks.drill = agent_drill_step;
	hooks.plant = agent_drill_plant;
	hooks.drill_data = agent_drill_data;
	hooks.drill_arg = &a->drill;
	a->drill.world = a->world;
	struct train_env env = {
		.view = &a->view,
		.world = a->world,
		.hooks = &hooks,
		.run_dir = a->run_dir,
		.resume = a->resume,
		.generation = a->generation,
		.skips = a->skips,
		.threads = a->threads,
		.node = a->node_index,
		.node_name = a->node,
		.phases = &a->phases,
		.blame = &a->blame,
		.device = a->job.job.device == DEVICE_CUDA ? parallel_device_of_slot(a->device) : 0,
	};
	return train_run(&env, e);
}

/* A new reference. NULL: there is nothing to say, or no memory. */
static json_t *blame_json(const struct train_blame *b)
{
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

static void report_failure(struct agent *a, const struct err *e)
{
	log_hook(LOG_ERROR, NULL, NULL); /* the message failed reports it */
	log_error("%s", e->text);
	struct msg_failed failed = { .code = err_word(e->code),
				     .text = e->text,
				     .blame = blame_json(&a->blame) };
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
}

static void agent_close(struct agent *a)
{
	log_hook(LOG_ERROR, NULL, NULL);
	agent_watch_close(a->watch);
	if (a->control) {
		agent_control_on_abort(a->control, NULL, NULL);
		agent_control_on_dump(a->control, NULL, NULL);
	}
	agent_boot_finish(a->boot);
	comm_close(a->world);
	agent_control_close(a->control);
	rank_view_fini(&a->view);
	free(a->address);
	free(a->secret);
	free(a->generation_text);
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
	rc = run_rank(&a, &e) ? EXIT_JOB_FAILED : EXIT_DONE;
	if (rc)
		report_failure(&a, &e);
	agent_close(&a);
	return rc;
}
