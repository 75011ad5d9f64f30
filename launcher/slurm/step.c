/*
 * step: launch_slurm, the agents of one generation as one srun step.
 *
 * A pidfd shows when srun ends. This does not prove that its tasks have ended: srun may have been
 * killed, or a node lost. The generation is gone when srun has ended and the controller no longer
 * lists the step, which is found by its name.
 *
 *     kill           squeue → the step's id → scancel --signal=KILL → srun ends, otherwise SIGKILL
 *     srun has ended squeue → not listed: gone; listed: kill the step and look again
 *
 * Nobody waits for the end of scancel: it signals the nodes itself, and one that is dead delays its
 * end by Slurm's MessageTimeout (10 s). squeue and scancel have HELPER_MS each. If one hangs, it is
 * killed and the controller counts as silent: srun itself is killed, and the step is looked for
 * again.
 *
 * A step that is still listed, or of which nothing is known, SETTLE_S seconds after the end of srun
 * counts as gone: its node is lost, and its agents have left because their connection is closed.
 *
 * Whose PMIx server the agents use decides what the step's tasks are (pmix.h): with Slurm's they
 * are the agents; with muster's they are helpers, one per node, and the relay (relay.h) reports the
 * ends of the agents. To kill such a generation the relay asks the helpers; if the step has not
 * ended HELPERS_MS later, it is killed like the other kind. If all helpers have reported the ends
 * of their agents before srun ends, the controller need not be asked.
 *
 * If the caller knows that a node is lost, the controller lists the step until SlurmdTimeout. So
 * the generation is gone as soon as srun has ended, and scancel continues after slurm_close().
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/agent_path.h"
#include "launcher/child.h"
#include "launcher/launch.h"
#include "launcher/slurm/guard_step.h"
#include "launcher/slurm/pmix.h"
#include "launcher/slurm/queue.h"
#include "launcher/slurm/relay.h"
#include "launcher/slurm/slurm.h"
#include "launcher/slurm/srun.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SETTLE_S  5.0
#define HELPERS_S 30.0 /* between the first helper that connects and the last one */
enum {
	SRUN_GRACE_MS = 1500,
	LOST_GRACE_MS = 300, /* the same if a node is lost */
	LOST_QUERY_MS = 1000,
	LOOK_AGAIN_MS = 50,
	LOOK_AGAIN_MOST_MS = 1000,
	HELPER_MS = 10000,
	HELPERS_MS = 700,
	STEP_ID = 64,
	LOG_END = 65536
};

struct launch {
	uv_loop_t *loop;
	struct launch_events ev;
	char name[SRUN_NAME];
	char step[STEP_ID];     /* "12.3", as squeue prints it; "": unknown */
	char log[RUN_PATH];     /* the output of srun and of the tasks */
	char program[PATH_MAX]; /* muster, for the helpers; srun's command line refers to it */
	struct relay *relay;    /* NULL: Slurm's PMIx server serves the agents */
	bool falls_back;     /* if that server does not work, muster's serves the next generation */
	struct child *srun;  /* NULL once it has ended */
	struct child *query; /* squeue, if it runs */
	struct child *cancel; /* scancel, if it runs */
	uv_timer_t timer;
	int look_again_ms; /* delay of the next query after the end of srun */
	double ended;      /* when srun ended */
	double cancelled;  /* when scancel was started */
	bool killed;       /* slurm_kill() was called */
	bool node_lost;    /* nobody waits for the step's tasks */
	bool gone;
};

static void query_step(struct launch *l);

static void free_launch(uv_handle_t *h)
{
	free(h->data);
}

static void report_gone(struct launch *l)
{
	if (l->gone)
		return;
	l->gone = true;
	uv_timer_stop(&l->timer);
	l->ev.all_gone(l->ev.arg);
}

/* The time in which something should have ended is over. The end of squeue continues from here. */
static void on_timer(uv_timer_t *timer)
{
	struct launch *l = timer->data;
	if (l->query) {
		launcher_child_signal(l->query, SIGKILL);
		return;
	}
	if (!l->srun && l->node_lost) {
		report_gone(l);
		return;
	}
	if (l->srun)
		launcher_child_signal(l->srun, SIGKILL);
	query_step(l);
}

/* The limit counts from now; the loop's own time is that of its last turn. */
static void start_timer(struct launch *l, uv_timer_cb end, int ms)
{
	uv_update_time(l->loop);
	uv_timer_start(&l->timer, end, (uint64_t)ms, 0);
}

/* After the end of srun the delay doubles, so that a slow controller gets few queries. */
static void query_later(struct launch *l)
{
	int ms = l->node_lost ? LOST_GRACE_MS : SRUN_GRACE_MS;
	if (!l->srun) {
		ms = l->look_again_ms;
		l->look_again_ms = 2 * ms < LOOK_AGAIN_MOST_MS ? 2 * ms : LOOK_AGAIN_MOST_MS;
	}
	start_timer(l, on_timer, ms);
}

static void on_cancelled(void *arg, int status, const char *output)
{
	struct launch *l = arg;
	(void)status;
	(void)output;
	l->cancel = NULL;
}

/* Starts scancel, unless one still runs. */
static void cancel_step(struct launch *l)
{
	const struct child_command c = { .argv = (char *[]){ "scancel", "--quiet", "--signal=KILL",
							     l->step, NULL },
					 .out = -1 };
	if (l->cancel) {
		if (clock_s() - l->cancelled > HELPER_MS / 1e3)
			launcher_child_signal(l->cancel, SIGKILL);
		return;
	}
	l->cancelled = clock_s();
	if (launcher_child_watch(l->loop, &c, on_cancelled, l, &l->cancel, NULL))
		l->cancel = NULL; /* the next look at the step tries again */
}

/* Reads "12.0|muster-1-77" lines for our step's id. */
static void find_step(struct launch *l, const char *lines)
{
	l->step[0] = '\0';
	for (const char *at = lines; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		size_t id = strcspn(at, "|\n"), name = strlen(l->name);
		if (at[id] == '|' && id < sizeof l->step && !strncmp(at + id + 1, l->name, name) &&
		    (at[id + 1 + name] == '\n' || at[id + 1 + name] == '\0')) {
			memcpy(l->step, at, id);
			l->step[id] = '\0';
		}
	}
}

static void on_step_listed(void *arg, int status, const char *output)
{
	struct launch *l = arg;
	l->query = NULL;
	if (!status)
		find_step(l, output);
	bool late = !l->srun && clock_s() - l->ended > SETTLE_S;
	if (l->step[0] && !late)
		cancel_step(l);
	else if (l->srun) /* not listed yet, or the controller is silent: only srun can be killed */
		launcher_child_signal(l->srun, SIGKILL);
	if (!l->srun && ((!status && !l->step[0]) || late || l->node_lost))
		report_gone(l);
	else
		query_later(l);
}

/* Only one squeue runs at a time; if it cannot start, tries again later. */
static void query_step(struct launch *l)
{
	const char *job = getenv("SLURM_JOB_ID");
	const struct child_command c = { .argv = (char *[]){ "squeue", "--noheader", "--steps",
							     "--jobs", (char *)(job ? job : ""),
							     "--format=%i|%j", NULL },
					 .out = -1 };
	if (l->query || l->gone)
		return;
	start_timer(l, on_timer, l->node_lost ? LOST_QUERY_MS : HELPER_MS);
	if (launcher_child_watch(l->loop, &c, on_step_listed, l, &l->query, NULL)) {
		l->query = NULL;
		query_later(l);
	}
}

/* Reads the end of the log, and looks for the reports of a PMIx server that does not work. */
static void check_pmix(struct launch *l)
{
	struct stat st;
	struct buf text = BUF_INIT;
	int fd = file_open(l->log, O_RDONLY, FILE_OWN, NULL);
	char *to = fd < 0 || fstat(fd, &st) ? NULL : buf_room(&text, LOG_END);
	ssize_t n = to ? pread(fd, to, LOG_END, st.st_size > LOG_END ? st.st_size - LOG_END : 0)
		       : 0;
	text.len = n > 0 ? (size_t)n : 0;
	if (slurm_pmix_failed(buf_str(&text))) {
		slurm_pmix_refuse();
		l->ev.noted(l->ev.arg, LAUNCH_NOTE_PMIX_REFUSED, NULL,
			    "agents cannot use the PMIx server of Slurm's plugin");
	}
	buf_fini(&text);
	if (fd >= 0)
		close(fd);
}

static void on_srun_end(void *arg, int status, const char *output)
{
	struct launch *l = arg;
	(void)output;
	l->srun = NULL;
	l->ended = clock_s();
	if (status && l->falls_back)
		check_pmix(l);
	l->ev.exited(l->ev.arg, -1, status);
	/* If squeue still runs, scancel has not been started: its end does both. */
	if ((l->node_lost && !l->query) || (l->relay && slurm_relay_is_over(l->relay)))
		report_gone(l);
	else
		query_step(l);
}

static int open_log(struct launch *l, const struct launch_request *r, struct err *e)
{
	run_path_launch_log(l->log, r->run_dir, r->generation);
	return file_open(l->log, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
}

static bool slurm_available(void)
{
	return getenv("SLURM_JOB_ID") != NULL;
}

/* Chooses the PMIx server, and prepares srun for it. */
static int prepare(struct launch *l, const struct launch_request *r, struct srun *s, struct err *e)
{
	const char *why;
	if (r->ranks)
		return slurm_srun_prepare_missing(r, s, e);
	if (!slurm_pmix_is_own(r->job, &why)) {
		l->falls_back = r->job->launch.pmix == PMIX_AUTO;
		return slurm_srun_prepare(r, s, e);
	}
	const struct relay_options o = {
		.loop = l->loop, .request = r, .events = &l->ev, .patience = HELPERS_S
	};
	if (launcher_self_path(l->program, sizeof l->program, e) ||
	    slurm_relay_open(&o, &l->relay, e))
		return -1;
	l->ev.noted(l->ev.arg, LAUNCH_NOTE_OWN_PMIX, NULL, why);
	const struct srun_helpers h = { .program = l->program,
					.address = slurm_relay_address(l->relay),
					.secret = slurm_relay_secret(l->relay) };
	return slurm_srun_prepare_helpers(r, &h, s, e);
}

static int start_srun(struct launch *l, const struct launch_request *r, int log, struct err *e)
{
	struct srun s;
	if (prepare(l, r, &s, e))
		return -1;
	snprintf(l->name, sizeof l->name, "%s", s.name);
	const struct child_command c = {
		.argv = s.argv, .env = s.env, .out = log, .absent = SLURM_ABSENT
	};
	int rc = launcher_child_watch(l->loop, &c, on_srun_end, l, &l->srun, e);
	slurm_srun_fini(&s);
	return rc;
}

static int slurm_start(uv_loop_t *loop, const struct launch_request *r,
		       const struct launch_events *ev, struct launch **out, struct err *e)
{
	if (!slurm_available())
		return err_set(e, ERR_NOTFOUND,
			       "[launch] launcher = slurm: this is not a Slurm allocation; "
			       "use `muster submit`, or run it under salloc");
	struct launch *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to start the job step");
	l->loop = loop;
	l->ev = *ev;
	l->timer.data = l;
	l->look_again_ms = LOOK_AGAIN_MS;
	int log = open_log(l, r, e), rc = log < 0 ? -1 : start_srun(l, r, log, e);
	if (log >= 0)
		close(log);
	if (rc) {
		slurm_relay_close(l->relay);
		free(l);
		return -1;
	}
	uv_timer_init(loop, &l->timer);
	*out = l;
	return 0;
}

/* The helpers have not ended the step. */
static void on_helpers_late(uv_timer_t *timer)
{
	query_step(timer->data);
}

static void slurm_kill(struct launch *l, bool node_lost)
{
	bool news = node_lost && !l->node_lost, first = !l->killed;
	l->node_lost |= node_lost;
	l->killed = true;
	if (l->gone)
		return;
	if (l->relay)
		slurm_relay_kill(l->relay);
	if (news && l->query) /* it was started with the longer limit */
		start_timer(l, on_timer, LOST_QUERY_MS);
	else if (news && !l->srun)
		start_timer(l, on_timer, 0);
	else if (news && l->cancelled > 0)
		query_later(l);
	else if (l->relay && l->srun && first && !node_lost)
		start_timer(l, on_helpers_late, HELPERS_MS);
	else
		query_step(l);
}

static void slurm_close(struct launch *l)
{
	slurm_relay_close(l->relay);
	if (l->query)
		launcher_child_forget(l->query);
	if (l->cancel)
		launcher_child_forget(l->cancel);
	uv_close((uv_handle_t *)&l->timer, free_launch);
}

static int slurm_control_host(const struct job *job, char host[NET_ADDR_MAX], struct err *e)
{
	const char *interface = job->network.interface;
	return *interface ? net_local_address(interface, NULL, host, e) : slurm_address(host, e);
}

const struct launch_ops launch_slurm = {
	.name = "slurm",
	.word = LAUNCHER_SLURM,
	.available = slurm_available,
	.cluster = "slurm",
	.control_host = slurm_control_host,
	.auth = slurm_auth,
	.start = slurm_start,
	.kill = slurm_kill,
	.close = slurm_close,
	.survey = slurm_survey,
	.survey_stop = slurm_survey_stop,
	.stop_query = slurm_stop_query,
	.stop_query_end = slurm_stop_query_end,
	.requeue = slurm_requeue,
	.own_job = slurm_own_job,
	.queue_next = slurm_queue_next,
	.submit_again = slurm_queue_submit_again,
	.queue_next_end = slurm_queue_next_end,
	.job_waits = slurm_queue_waits,
	.cancel = slurm_queue_cancel,
	.comment = slurm_comment,
	.own_node = slurm_own_node,
	.guard = slurm_guard_start,
	.check_nodes = slurm_check_nodes,
	.burn_in = slurm_burn_in,
};
