#include "agent/rank_log.h"

#include "agent/boot.h"
#include "agent/log_folder.h"
#include "agent/log_parts.h"
#include "base/file.h"
#include "base/log.h"
#include "plan/spec/job/node_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rank_log {
	struct agent_log file;
	struct control *control;
	char run[RUN_PATH], local[RUN_PATH]; /* local: the folder of the node; "": it is not used */
	char node[256];
	int rank;
	pthread_t thread; /* collects */
	pthread_mutex_t lock;
	pthread_cond_t news;
	json_t *asked; /* a list of the messages collect that wait */
	bool collects;
	atomic_bool stop; /* the log is closed: what is being collected stays on the node */
};

/* A rank that has failed collects its log only if that takes no time worth mentioning: bytes. */
enum { QUICK = 4 << 20 };

static void send_line(enum log_level level, const char *text, void *arg)
{
	agent_control_send(
		arg, MSG_LOG,
		msg_log_json(&(struct msg_log){ .level = log_level_word(level), .text = text }));
}

static void split_file(void *arg)
{
	agent_log_split(arg);
}

/* --- Collecting --------------------------------------------------------------------------------- */

static int collect(struct rank_log *l, int rank, const char *node, struct err *e)
{
	const struct agent_log_place at = {
		.run = l->run, .local = l->local, .node = node, .rank = rank
	};
	if (!*node || strchr(node, '/'))
		return err_set(e, ERR_PROTO, "message collect: node \"%s\" is not a host name",
			       node);
	if (rank == l->rank && !strcmp(node, l->node))
		return agent_log_collect(&l->file, &l->stop, e);
	return *l->local ? agent_log_collect_of(&at, &l->stop, e)
			 : err_set(e, ERR_NOTFOUND, "no folder of the node is in use");
}

static void collect_and_tell(struct rank_log *l, int rank, const char *node)
{
	struct err e = ERR_INIT;
	int rc = collect(l, rank, node, &e);
	agent_control_send(l->control, MSG_COLLECTED,
			   msg_collected_json(&(struct msg_collected){
				   .rank = rank,
				   .node = node,
				   .has_error = rc != 0,
				   .error = e.text,
				   .has_gone = rc && e.code == ERR_NOTFOUND,
				   .gone = true }));
}

static void answer(struct rank_log *l, const json_t *body)
{
	struct msg_collect m;
	if (!msg_collect_read(body, &m, NULL))
		collect_and_tell(l, m.rank, m.node);
}

static json_t *next_asked(struct rank_log *l)
{
	json_t *next = NULL;
	pthread_mutex_lock(&l->lock);
	while (!json_array_size(l->asked) && !atomic_load(&l->stop))
		pthread_cond_wait(&l->news, &l->lock);
	if (json_array_size(l->asked)) {
		next = json_incref(json_array_get(l->asked, 0));
		json_array_remove(l->asked, 0);
	}
	pthread_mutex_unlock(&l->lock);
	return next;
}

static void *run_collector(void *arg)
{
	struct rank_log *l = arg;
	for (json_t *body; (body = next_asked(l)); json_decref(body))
		answer(l, body);
	return NULL;
}

/* On the control thread. */
static void on_collect(int rank, const char *node, void *arg)
{
	struct rank_log *l = arg;
	pthread_mutex_lock(&l->lock);
	json_array_append_new(
		l->asked, msg_collect_json(&(struct msg_collect){ .rank = rank, .node = node }));
	pthread_cond_signal(&l->news);
	pthread_mutex_unlock(&l->lock);
}

static int start_collector(struct rank_log *l, struct err *e)
{
	l->asked = json_array();
	if (!l->asked)
		return err_set(e, ERR_NOMEM, "no memory to collect logs");
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->news, NULL);
	if (pthread_create(&l->thread, NULL, run_collector, l)) {
		json_decref(l->asked);
		return err_set(e, ERR_NOMEM, "no thread to collect logs");
	}
	l->collects = true;
	agent_control_on_collect(l->control, on_collect, l);
	return 0;
}

static void stop_collector(struct rank_log *l)
{
	agent_control_on_collect(l->control, NULL, NULL);
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->stop, true);
	pthread_cond_signal(&l->news);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	json_decref(l->asked);
	pthread_cond_destroy(&l->news);
	pthread_mutex_destroy(&l->lock);
}

void agent_rank_log_fail(struct rank_log *l)
{
	if (l && l->collects && agent_log_whole_size(&l->file) <= QUICK)
		collect_and_tell(l, l->rank, l->node);
}

/* --- The log ------------------------------------------------------------------------------------- */

/* Opens the file: that of rank 0 is always where everybody looks first. why: why a folder of the node is not
 * used. */
static int open_file(struct rank_log *l, const struct msg_welcome *w, const struct job *job,
		     struct err *why, struct err *e)
{
	struct agent_log_place at = { .run = l->run, .node = l->node, .rank = l->rank };
	int64_t keep = (int64_t)(job->log.keep * (1 << 20));
	if (job_logs_local(job, w->world) && agent_log_folder_make(w, job, l->local, why))
		*l->local = '\0';
	at.local = *l->local && l->rank ? l->local : NULL;
	if (!agent_log_open(&l->file, &at, keep, at.local ? why : e))
		return 0;
	if (!at.local)
		return -1;
	at.local = NULL;
	return agent_log_open(&l->file, &at, keep, e);
}

static int make_run_folder(const struct msg_welcome *w, struct err *e)
{
	char logs[RUN_PATH];
	run_path(logs, w->run, RUN_LOGS);
	if (strchr(w->node, '/') || strlen(w->node) > 255)
		return err_set(e, ERR_PROTO, "message welcome: node \"%s\" is not a host name",
			       w->node);
	return file_make_dirs(w->run, e) || file_make_own_dir(logs, e) ? -1 : 0;
}

/* From now on the process logs to the file. */
static void log_to_file(struct rank_log *l, const struct job *job)
{
	char who[2 * BOOT_HOST];
	int level = log_level_parse(job->log.level);
	snprintf(who, sizeof who, "%s:%d", l->node, l->rank);
	log_setup(l->file.fd, level < 0 ? LOG_INFO : (enum log_level)level, who);
	log_hook(LOG_WARN, send_line, l->control);
	log_limit(agent_log_size(&l->file), agent_log_most(&l->file),
		  l->file.keep ? split_file : NULL, &l->file);
}

int agent_rank_log_open(const struct msg_welcome *w, const struct job *job, struct control *c,
			struct rank_log **out, struct err *e)
{
	struct err why = ERR_INIT;
	if (make_run_folder(w, e))
		return -1;
	struct rank_log *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory for the log");
	l->control = c;
	l->rank = w->rank;
	snprintf(l->run, sizeof l->run, "%s", w->run);
	snprintf(l->node, sizeof l->node, "%s", w->node);
	if (open_file(l, w, job, &why, e)) {
		free(l);
		return -1;
	}
	log_to_file(l, job);
	if (job_logs_local(job, w->world) && start_collector(l, e)) {
		agent_rank_log_close(l);
		return -1;
	}
	if (why.code)
		log_line(w->rank == w->leader ? LOG_WARN : LOG_INFO,
			 "%s; the logs of this node are in the run folder", why.text);
	*out = l;
	return 0;
}

void agent_rank_log_close(struct rank_log *l)
{
	if (!l)
		return;
	if (l->collects)
		stop_collector(l);
	log_limit(0, 0, NULL, NULL);
	log_hook(LOG_ERROR, NULL, NULL);
	log_setup(STDERR_FILENO, LOG_INFO, "muster-agent");
	agent_log_close(&l->file);
	free(l);
}
