#include "agent/setup.h"

#include "agent/boot.h"
#include "agent/predecessors.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pin.h"
#include "base/run_paths.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void send_log_line(enum log_level level, const char *text, void *arg)
{
	agent_control_send(
		arg, MSG_LOG,
		msg_log_json(&(struct msg_log){ .level = log_level_word(level), .text = text }));
}

static void split_log(void *arg)
{
	agent_log_split(arg);
}

int agent_setup_open_log(struct agent_log *log, const struct msg_welcome *w, const struct job *job,
			 struct control *c, struct err *e)
{
	char path[RUN_PATH], who[2 * BOOT_HOST];
	run_path(path, w->run, RUN_LOGS);
	if (strchr(w->node, '/'))
		return err_set(e, ERR_PROTO, "message welcome: node \"%s\" is not a host name",
			       w->node);
	if (file_make_dirs(w->run, e) || file_make_own_dir(path, e) ||
	    agent_log_open(log, w->run, w->node, w->rank, (int64_t)(job->log.keep * (1 << 20)), e))
		return -1;
	int level = log_level_parse(job->log.level);
	snprintf(who, sizeof who, "%s:%d", w->node, w->rank);
	log_setup(log->fd, level < 0 ? LOG_INFO : (enum log_level)level, who);
	log_hook(LOG_WARN, send_log_line, c);
	log_limit(agent_log_size(log), agent_log_most(log), log->keep ? split_log : NULL, log);
	return 0;
}

void agent_setup_close_log(struct agent_log *log)
{
	if (log->fd < 0)
		return;
	log_limit(0, 0, NULL, NULL);
	log_hook(LOG_ERROR, NULL, NULL);
	log_setup(STDERR_FILENO, LOG_INFO, "muster-agent");
	agent_log_close(log);
}

void agent_setup_bind(const struct msg_welcome *w)
{
	struct err e = ERR_INIT;
	if (pin_cpus(w->cpus, &e) || pin_memory(w->numa, &e))
		log_warn("device %d: %s; the agent runs on the cores where it was started",
			 w->device, e.text);
	else if (*w->cpus)
		log_info("device %d: bound to cpus %s; prefers memory of NUMA domain %d", w->device,
			 w->cpus, w->numa);
}

int agent_setup_end_predecessors(struct control *c, const struct msg_welcome *w, struct err *e)
{
	const struct predecessors_gate gate = { .node = w->node };
	agent_control_progress(c, 0, "predecessors");
	return agent_predecessors_end(&gate, w->predecessors, e);
}
