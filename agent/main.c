/* muster-agent: a tool when it is given words, else one rank of a job. */
#include "agent/boot.h"
#include "agent/control.h"
#include "agent/engine/train/phases.h"
#include "agent/engine/parallel/device.h"
#include "agent/metrics/report.h"
#include "agent/preflight.h"
#include "agent/tools/tools.h"
#include "agent/engine/train/train.h"
#include "base/agent_env.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/munge.h"
#include "base/pin.h"
#include "base/process.h"

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
	bool vouched; /* the supervisor's and our user id are proven, too */
	uint32_t generation;
	char host[BOOT_HOST]; /* ranks with the same one share memory */
	struct boot *boot;
	struct control *control;
	struct comm *world;
	int rank, size;
	struct job job;
	struct layout layout;
	struct coords at;
	int node_index;
	int threads;
	int device, numa;                    /* of the node; -1: not told */
	const char *cpus;                    /* next to the device; "": not told */
	const char *run_dir, *resume, *node; /* the welcome's */
	struct preflight place;
	struct phases phases;
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
		return usage(AGENT_ENV_GENERATION " is no number");
	a->generation = (uint32_t)n;
	return take_auth(a);
}

/* An object's text, or an error that says what the supervisor left out. */
static const char *text_of(const json_t *o, const char *key, struct err *e)
{
	const char *text = json_string_value(json_object_get(o, key));
	if (!text)
		err_set(e, ERR_PROTO, "the supervisor's welcome holds no text \"%s\"", key);
	return text;
}

static int place_of(struct agent *a, const json_t *welcome, struct err *e)
{
	const json_t *at = json_object_get(welcome, "coords");
	a->layout = layout_of(&a->job, 1);
	int replica = layout_world(&a->layout);
	a->layout.dp = a->size / replica;
	if (a->size % replica || a->layout.dp % a->layout.ep)
		return err_set(e, ERR_PROTO,
			       "the supervisor's welcome: tp %d, cp %d, ep %d and pp %d do not "
			       "divide %d ranks",
			       a->layout.tp, a->layout.cp, a->layout.ep, a->layout.pp, a->size);
	a->at = layout_coords(&a->layout, a->rank);
	if (json_integer_value(json_object_get(at, "tp")) != a->at.tp ||
	    json_integer_value(json_object_get(at, "cp")) != a->at.cp ||
	    json_integer_value(json_object_get(at, "dp")) != a->at.dp ||
	    json_integer_value(json_object_get(at, "pp")) != a->at.pp)
		return err_set(
			e, ERR_PROTO,
			"the supervisor's welcome: its coordinates are not those of rank %d of %d",
			a->rank, a->size);
	const char *bus = json_string_value(json_object_get(welcome, "bus"));
	a->place = (struct preflight){
		.cuda = a->job.job.device == DEVICE_CUDA,
		.bus = bus ? bus : "",
		.device = (int)json_integer_value(json_object_get(welcome, "device")),
		.memory = json_number_value(json_object_get(welcome, "memory")),
		.crew = (int)json_integer_value(json_object_get(welcome, "crew")),
	};
	json_int_t threads = json_integer_value(json_object_get(welcome, "threads"));
	a->threads = threads >= 1 && threads <= 4096 ? (int)threads : 1;
	a->device = (int)json_integer_value(json_object_get(welcome, "device"));
	const json_t *numa = json_object_get(welcome, "numa");
	a->numa = json_is_integer(numa) ? (int)json_integer_value(numa) : -1;
	const char *cpus = json_string_value(json_object_get(welcome, "cpus"));
	a->cpus = cpus ? cpus : "";
	a->node_index = (int)json_integer_value(json_object_get(welcome, "node_index"));
	return 0;
}

static int read_welcome(struct agent *a, const json_t *welcome, struct err *e)
{
	const char *job = text_of(welcome, "job", e);
	a->run_dir = text_of(welcome, "run", e);
	a->resume = text_of(welcome, "resume", e);
	a->node = text_of(welcome, "node", e);
	if (!job || !a->run_dir || !a->resume || !a->node)
		return -1;
	if (job_parse(job, "the supervisor's job", &a->job, e))
		return -1;
	return place_of(a, welcome, e);
}

static void tell(enum log_level level, const char *text, void *arg)
{
	agent_control_send(arg, MSG_LOG,
			   json_pack("{s:s, s:s}", "level", log_level_word(level), "text", text));
}

static int open_log(struct agent *a, struct err *e)
{
	char path[2 * JOB_PATH], who[2 * BOOT_HOST];
	snprintf(path, sizeof path, "%s/logs", a->run_dir);
	if (strchr(a->node, '/'))
		return err_set(e, ERR_PROTO, "the supervisor's welcome: node \"%s\" is no name",
			       a->node);
	if (file_make_dirs(a->run_dir, e) || file_make_own_dir(path, e))
		return -1;
	snprintf(path, sizeof path, "%s/logs/%s-%d.log", a->run_dir, a->node, a->rank);
	int fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int level = log_level_parse(a->job.log.level);
	snprintf(who, sizeof who, "%s:%d", a->node, a->rank);
	log_setup(fd, level < 0 ? LOG_INFO : (enum log_level)level, who);
	log_hook(LOG_WARN, tell, a->control);
	return 0;
}

/* Cores and memory next to the device, for all threads that training starts. What the node does
 * not grant is not worth a run. */
static void settle(const struct agent *a)
{
	struct err e = ERR_INIT;
	if (pin_cpus(a->cpus, &e) || pin_memory(a->numa, &e))
		log_warn("device %d: %s; the run goes on where the agent was started", a->device,
			 e.text);
	else if (*a->cpus)
		log_info("device %d: cpus %s, memory of domain %d first", a->device, a->cpus,
			 a->numa);
}

/* The secret of the generation's ranks comes over the sealed control channel; nothing but the
 * boot keeps it. */
static int take_group_secret(struct agent *a, json_t *welcome, struct err *e)
{
	const char *secret = text_of(welcome, "group_secret", e);
	if (!secret || agent_boot_seal(a->boot, secret, a->generation, e))
		return -1;
	explicit_bzero((char *)(uintptr_t)secret, strlen(secret));
	json_object_del(welcome, "group_secret");
	return 0;
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
	json_t *welcome;
	int rc = agent_control_open(&opt, &a->control, &welcome, e);
	explicit_bzero(a->secret, strlen(a->secret));
	if (rc || take_group_secret(a, welcome, e) || read_welcome(a, welcome, e))
		return -1;
	if (open_log(a, e))
		return -1;
	settle(a);
	return 0;
}

static void abort_world(const char *reason, void *arg)
{
	comm_abort(arg, reason);
}

static void trace_dir(const struct agent *a, char out[2 * JOB_PATH])
{
	snprintf(out, 2 * JOB_PATH, "%s/trace/gen-%" PRIu32, a->run_dir, a->generation);
}

static int dump_world(void *arg, struct err *e)
{
	struct agent *a = arg;
	char dir[2 * JOB_PATH], path[2 * JOB_PATH + 32];
	trace_dir(a, dir);
	snprintf(path, sizeof path, "%s/comm-%d.json", dir, a->rank);
	return file_make_dirs(dir, e) || comm_dump(a->world, path, e) ? -1 : 0;
}

/* Endpoints through PMIx, which is then over: from here on a dead rank takes nobody along. */
static int wire_up(struct agent *a, struct err *e)
{
	char dumps[2 * JOB_PATH];
	trace_dir(a, dumps);
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
	agent_control_on_dump(a->control, dump_world, a);
	agent_boot_finish(a->boot);
	a->boot = NULL;
	return 0;
}

static int work(struct agent *a, struct err *e)
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
	agent_control_progress(a->control, 0, "preflight");
	if (agent_preflight(&a->place, e))
		return -1;
	a->device = a->place.ordinal;
	train_phases_lap(&a->phases, "preflight", &since);
	agent_control_progress(a->control, 0, "wire up");
	if (wire_up(a, e))
		return -1;
	train_phases_lap(&a->phases, "wire-up", &since);
	log_info("rank %d of %d: tp %d/%d, cp %d/%d, dp %d/%d, pp %d/%d, %d threads, %s, "
		 "generation %" PRIu32,
		 a->rank, a->size, a->at.tp, a->layout.tp, a->at.cp, a->layout.cp, a->at.dp,
		 a->layout.dp, a->at.pp, a->layout.pp, a->threads, comm_backend(a->world),
		 a->generation);
	struct train_hooks hooks = agent_report_hooks(a->control);
	struct train_env env = {
		.job = &a->job,
		.layout = a->layout,
		.at = a->at,
		.world = a->world,
		.hooks = &hooks,
		.run_dir = a->run_dir,
		.resume = a->resume,
		.generation = a->generation,
		.threads = a->threads,
		.node = a->node_index,
		.phases = &a->phases,
		.device = a->job.job.device == DEVICE_CUDA ? parallel_device_of_slot(a->device) : 0,
	};
	return train_run(&env, e);
}

static void say_failed(struct agent *a, const struct err *e)
{
	log_hook(LOG_ERROR, NULL, NULL); /* "failed" tells the supervisor */
	log_error("%s", e->text);
	if (a->control)
		agent_control_send(a->control, MSG_FAILED,
				   json_pack("{s:s, s:s}", "code", err_word(e->code), "text",
					     e->text));
}

static void agent_close(struct agent *a)
{
	log_hook(LOG_ERROR, NULL, NULL);
	if (a->control) {
		agent_control_on_abort(a->control, NULL, NULL);
		agent_control_on_dump(a->control, NULL, NULL);
	}
	agent_boot_finish(a->boot);
	comm_close(a->world);
	agent_control_close(a->control);
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
	struct agent a = { 0 };
	struct err e = ERR_INIT;
	int rc = take_environment(&a);
	if (rc)
		return rc;
	agent_control_block_signals();
	log_setup(2, LOG_INFO, "muster-agent");
	agent_boot_host(a.host);
	rc = work(&a, &e) ? EXIT_JOB_FAILED : EXIT_DONE;
	if (rc)
		say_failed(&a, &e);
	agent_close(&a);
	return rc;
}
