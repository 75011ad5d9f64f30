#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/queue_target.h"
#include "base/human.h"
#include "launcher/status.h"
#include "plan/spec/job/keys.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS_MAX = 64 };

static const char help[] =
	"muster queue — show, change and cancel jobs of Slurm's queue\n"
	"\n"
	"SYNOPSIS\n"
	"  muster queue show RUN|JOB.ini|ID [--json] [section.key=value …]\n"
	"  muster queue update RUN|JOB.ini|ID [OPTION …] [section.key=value …]\n"
	"  muster queue cancel RUN|JOB.ini|ID [--signal NAME] [section.key=value …]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in runs/. Of a run or a job file, the jobs\n"
	"  are those that muster submit has queued for it. ID is the id of one job.\n"
	"\n"
	"  show prints the state of each job, and why it waits. update and cancel act on those\n"
	"  jobs of a run that wait or run; the last one is cancelled first, so that none of a\n"
	"  chain begins.\n"
	"\n"
	"  Slurm is reached as for the last submission of the run: by its commands, or by its\n"
	"  REST interface if slurm.rest names it. For an ID, give slurm.rest=… as a word, or set\n"
	"  MUSTER_SLURM_REST. The REST interface needs a token (SLURM_JWT, or\n"
	"  slurm.rest_token_file).\n"
	"\n"
	"OPTIONS\n"
	"  --json             print JSON; times in seconds since 1970, null is unknown\n"
	"  --signal NAME      send this signal, such as USR1 or 10, to all processes of the job "
	"in\n"
	"                     place of ending it; TERM makes a run write a checkpoint and stop\n"
	"  --time LIMIT       the new time limit, such as 90 (minutes) or 2-12; only an operator\n"
	"                     of the cluster can raise that of a running job\n"
	"  --comment TEXT     the new comment\n"
	"  --partition NAME   the new partition of a job that waits\n"
	"  --qos NAME         the new quality of service\n"
	"  --dependency LIST  the new dependency of a job that waits\n"
	"  --nice N           the new adjustment of the priority\n"
	"\n"
	"EXAMPLES\n"
	"  muster queue show runs/mine\n"
	"  muster queue update 4711 --time 30 --comment 'ends early'\n"
	"  muster queue cancel runs/mine --signal TERM\n"
	"  muster queue show 4711 slurm.rest=https://login.example.org:6820\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done\n"
	"  1  the output cannot be printed\n"
	"  2  usage or job file\n"
	"  3  Slurm cannot be asked, refuses the change, or does not know the job\n";

/* --- Arguments --- */

struct arguments {
	bool json;
	const char *signal, *time, *comment, *partition, *qos, *dependency, *nice;
	const char *target;
	const char *words[WORDS_MAX];
	int n_words;
};

/* A subcommand and the options that it takes. */
struct verb {
	const char *name;
	int (*run)(struct queue_target *t, const struct arguments *a);
	const char *options; /* each between blanks */
};

static int read_arguments(const struct verb *verb, int argc, char **argv, struct arguments *a)
{
	const struct command_option options[] = {
		{ "--json", &a->json, NULL },
		{ "--signal", NULL, &a->signal },
		{ "--time", NULL, &a->time },
		{ "--comment", NULL, &a->comment },
		{ "--partition", NULL, &a->partition },
		{ "--qos", NULL, &a->qos },
		{ "--dependency", NULL, &a->dependency },
		{ "--nice", NULL, &a->nice },
	};
	for (int i = 2; i < argc; i++) {
		size_t k = 0, n = sizeof options / sizeof *options;
		while (k < n && strcmp(options[k].name, argv[i]))
			k++;
		char shown[24];
		snprintf(shown, sizeof shown, " %.20s ", argv[i]);
		if (argv[i][0] == '-' && (k == n || !strstr(verb->options, shown)))
			return command_misuse("queue", "\"%s\" is not an option of %s", argv[i],
					      verb->name);
		if (k < n && options[k].value && i + 1 == argc)
			return command_misuse("queue", "%s needs a value", argv[i]);
		if (k < n && options[k].flag)
			*options[k].flag = true;
		else if (k < n)
			*options[k].value = argv[++i];
		else if (strchr(argv[i], '=') && a->n_words < WORDS_MAX)
			a->words[a->n_words++] = argv[i];
		else if (!a->target)
			a->target = argv[i];
		else
			return command_misuse("queue", "\"%s\" is one word too many", argv[i]);
	}
	return a->target ? 0
			 : command_misuse("queue", "%s needs a run, a job file or the id of a job",
					  verb->name);
}

/* --- Show --- */

/* Whether the job has not ended yet. */
static bool is_active(const char *state)
{
	static const char *const ended[] = { "BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE",
					     "FAILED",    "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
					     "REVOKED",   "TIMEOUT" };
	for (size_t i = 0; i < sizeof ended / sizeof *ended; i++)
		if (!strcmp(state, ended[i]))
			return false;
	return true;
}

static json_t *time_json(time_t t)
{
	return t > 0 ? json_integer((json_int_t)t) : json_null();
}

static json_t *text_json(const char *text)
{
	json_t *j = json_string(text);
	return j ? j : json_null(); /* it is not UTF-8 */
}

static json_t *job_json(const char *id, const struct queue_job *j)
{
	if (!j)
		return json_pack("{s:s, s:n}", "job", id, "state");
	return json_pack(
		"{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:b}",
		"job", id, "state", text_json(j->state), "reason", text_json(j->reason), "name",
		text_json(j->name), "user", text_json(j->user), "partition",
		text_json(j->partition), "nodes", text_json(j->nodes), "comment",
		text_json(j->comment), "n_nodes", (json_int_t)j->n_nodes, "limit_minutes",
		j->limit > 0 ? json_integer((json_int_t)j->limit) : json_null(), "restarts",
		(json_int_t)j->restarts, "submitted", time_json(j->submitted), "starts",
		time_json(j->starts), "ends", time_json(j->ends), "active", is_active(j->state));
}

static const char *when(time_t t, char out[32])
{
	struct tm tm;
	strcpy(out, "-");
	if (t > 0 && localtime_r(&t, &tm))
		strftime(out, 32, "%m-%d %H:%M:%S", &tm);
	return out;
}

static void print_job(bool first, const char *id, const struct queue_job *j)
{
	char start[32], end[32];
	if (first)
		printf("%-10s %-10s %-14s %-14s %5s  %-12s %s\n", "job", "state", "start", "end",
		       "nodes", "list", "reason; comment");
	if (!j) {
		printf("%-10s %-10s\n", id, "unknown");
		return;
	}
	/* Any user sets the comment of a job. */
	struct queue_job plain = *j;
	human_plain(plain.state);
	human_plain(plain.nodes);
	human_plain(plain.reason);
	human_plain(plain.comment);
	printf("%-10s %-10s %-14s %-14s %5lld  %-12s %s%s%s\n", id, plain.state,
	       when(j->starts, start), when(j->ends, end), (long long)j->n_nodes,
	       *plain.nodes ? plain.nodes : "-", plain.reason,
	       *plain.reason && *plain.comment ? "; " : "", plain.comment);
}

static int show(struct queue_target *t, const struct arguments *a)
{
	json_t *all = json_array();
	struct err e = ERR_INIT;
	int rc = 0;
	for (int i = 0; i < t->n && !rc; i++) {
		struct queue_job job, *known = &job;
		if (slurm_controller_show(t->controller, t->ids[i], &job, &e)) {
			known = NULL;
			rc = t->is_run && e.code == ERR_NOTFOUND ? 0 : -1;
			e.text[0] = rc ? e.text[0] : '\0';
		}
		if (!rc && a->json)
			rc = json_array_append_new(all, job_json(t->ids[i], known));
		else if (!rc)
			print_job(i == 0, t->ids[i], known);
	}
	if (!rc && a->json)
		rc = command_print_json(json_incref(all));
	json_decref(all);
	if (rc && e.text[0])
		return command_fail(&e);
	return command_output_end(rc ? STATUS_FAILED : STATUS_DONE);
}

/* --- Update and cancel --- */

/* Calls `act` for the jobs that have not ended, the last one first. One that fails does not keep the
 * others from it. */
static int act_on_active(struct queue_target *t,
			 int (*act)(struct slurm_controller *c, const char *id, const void *arg,
				    struct err *e),
			 const void *arg, const char *done)
{
	struct err e = ERR_INIT;
	int failed = 0, acted = 0;
	for (int i = t->n; i-- > 0;) {
		struct queue_job job;
		int rc = t->is_run ? slurm_controller_show(t->controller, t->ids[i], &job, &e) : 0;
		if (rc && e.code == ERR_NOTFOUND)
			continue;
		if (!rc && t->is_run && !is_active(job.state))
			continue;
		rc = rc ? rc : act(t->controller, t->ids[i], arg, &e);
		if (rc)
			failed = command_fail(&e);
		else
			printf("%s %s\n", done, t->ids[i]);
		acted++;
	}
	if (!acted) {
		err_set(&e, ERR_NOTFOUND,
			"no job of this run waits or runs; `muster queue show` lists its jobs");
		return command_fail(&e);
	}
	return command_output_end(failed);
}

static int update_job(struct slurm_controller *c, const char *id, const void *arg, struct err *e)
{
	return slurm_controller_update(c, id, arg, e);
}

static int update(struct queue_target *t, const struct arguments *a)
{
	struct queue_change c = { .comment = a->comment,
				  .partition = a->partition,
				  .qos = a->qos,
				  .dependency = a->dependency,
				  .nice = QUEUE_NICE_NONE };
	char *end;
	if (a->time) {
		int64_t s = job_time_seconds(a->time);
		if (s <= 0)
			return command_misuse("queue",
					      "--time %s is not a time limit; use 90 (minutes), "
					      "1:30:00 or 2-12 (days-hours)",
					      a->time);
		c.limit = (s + 59) / 60;
	}
	if (a->nice) {
		c.nice = strtoll(a->nice, &end, 10);
		if (!*a->nice || *end || c.nice < -2147483645 || c.nice > 2147483645)
			return command_misuse("queue", "--nice %s is not a number", a->nice);
	}
	if (!a->time && !a->nice && !c.comment && !c.partition && !c.qos && !c.dependency)
		return command_misuse("queue", "update needs an option that says what to change");
	return act_on_active(t, update_job, &c, "updated");
}

static int cancel_job(struct slurm_controller *c, const char *id, const void *arg, struct err *e)
{
	return slurm_controller_cancel(c, id, *(const int *)arg, e);
}

/* The number of "TERM", "SIGTERM" or "15"; 0: it is no signal. */
static int read_signal(const char *word)
{
	char *end;
	long n = strtol(word, &end, 10);
	if (*word && !*end)
		return n > 0 && n < SIGRTMIN ? (int)n : 0;
	word += strncmp(word, "SIG", 3) ? 0 : 3;
	for (int i = 1; i < SIGRTMIN; i++) {
		const char *name = sigabbrev_np(i);
		if (name && !strcmp(name, word))
			return i;
	}
	return 0;
}

static int cancel(struct queue_target *t, const struct arguments *a)
{
	int signal = a->signal ? read_signal(a->signal) : 0;
	if (a->signal && !signal)
		return command_misuse("queue",
				      "--signal %s is not a signal; use a name such as TERM or a "
				      "number",
				      a->signal);
	return act_on_active(t, cancel_job, &signal, signal ? "signalled" : "cancelled");
}

static const struct verb verbs[] = {
	{ "show", show, " --json " },
	{ "update", update, " --time --comment --partition --qos --dependency --nice " },
	{ "cancel", cancel, " --signal " },
};

int cmd_queue(int argc, char **argv)
{
	static const char *const names[] = { "show", "update", "cancel", NULL };
	struct arguments a = { .json = false };
	struct queue_target t;
	struct err e = ERR_INIT;
	size_t v = 0, n = sizeof verbs / sizeof *verbs;
	if (command_wants_help(argc, argv))
		return command_help(help);
	while (v < n && (argc < 2 || strcmp(verbs[v].name, argv[1])))
		v++;
	if (argc < 2)
		return command_misuse("queue", "needs one of show, update and cancel");
	if (v == n) {
		const char *near = command_nearest(argv[1], names);
		return command_misuse("queue", "\"%s\" is none of show, update and cancel%s%s",
				      argv[1], near ? "; did you mean " : "", near ? near : "");
	}
	int status = read_arguments(&verbs[v], argc, argv, &a);
	if (status)
		return status;
	if (command_queue_target_open(a.target, a.words, a.n_words, &t, &e))
		return command_fail(&e);
	status = verbs[v].run(&t, &a);
	command_queue_target_close(&t);
	return status;
}
