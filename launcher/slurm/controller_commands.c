#include "launcher/slurm/controller.h"

#include "launcher/child.h"
#include "launcher/slurm/job_record.h"
#include "launcher/slurm/queue.h"
#include "launcher/slurm/slurm.h"
#include "plan/spec/job/keys.h" /* job_time_seconds() */
#include "topo/discover/scontrol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_S 30.0

static int run_command(const char *const *argv, struct buf *output, struct err *e)
{
	struct err why = ERR_INIT;
	const struct child_command c = { .argv = (char *const *)(uintptr_t)argv,
					 .out = -1,
					 .absent = SLURM_ABSENT,
					 .late = "; is Slurm's controller up (scontrol ping)?" };
	if (!launcher_child_run(&c, ASK_S, output, &why))
		return 0;
	bool unknown = strstr(why.text, "nvalid job id") != NULL;
	return err_set(e, unknown ? ERR_NOTFOUND : why.code, "%.800s%s", why.text,
		       unknown ? "; the job is unknown, or ended some minutes ago"
			       : slurm_queue_remedy(why.text));
}

/* --- Show --- */

static int64_t count_field(const char *line, const char *key)
{
	char text[32];
	topo_scontrol_field(line, key, text, sizeof text);
	double v = strtod(text, NULL); /* "2" or "2-4" */
	return v >= 0 && v < 1e9 ? (int64_t)v : 0;
}

/* A comment may contain blanks. It ends where the paths of the standard streams begin. */
static void comment_field(const char *line, char *out, size_t size)
{
	const char *at = strstr(line, " Comment="), *end = strstr(line, " StdErr=");
	at = at ? at + strlen(" Comment=") : "";
	size_t n = end && *at && end > at ? (size_t)(end - at) : strcspn(at, "\n");
	while (n > 0 && at[n - 1] == ' ')
		n--;
	snprintf(out, size, "%.*s", n < size ? (int)n : 0, at);
}

int slurm_commands_read_job(const char *text, const char *id, struct queue_job *out, struct err *e)
{
	char number[LAUNCH_JOB_ID], limit[40];
	struct queue_job job = { .n_nodes = count_field(text, "NumNodes"),
				 .restarts = count_field(text, "Restarts"),
				 .submitted = slurm_time_field(text, "SubmitTime"),
				 .starts = slurm_time_field(text, "StartTime"),
				 .ends = slurm_time_field(text, "EndTime") };
	topo_scontrol_field(text, "JobId", number, sizeof number);
	topo_scontrol_field(text, "JobState", job.state, sizeof job.state);
	if (strcmp(number, id) || !job.state[0])
		return err_set(e, ERR_PROTO,
			       "scontrol printed \"%.100s\", which does not describe job %.31s; is "
			       "scontrol "
			       "in PATH Slurm's?",
			       text, id);
	topo_scontrol_field(text, "TimeLimit", limit, sizeof limit);
	int64_t s = *limit ? job_time_seconds(limit) : 0;
	job.limit = s > 0 ? s / 60 : 0;
	topo_scontrol_field(text, "JobName", job.name, sizeof job.name);
	topo_scontrol_field(text, "UserId", job.user, sizeof job.user);
	job.user[strcspn(job.user, "(")] = '\0';
	topo_scontrol_field(text, "Reason", job.reason, sizeof job.reason);
	topo_scontrol_field(text, "Partition", job.partition, sizeof job.partition);
	topo_scontrol_field(text, "NodeList", job.nodes, sizeof job.nodes);
	comment_field(text, job.comment, sizeof job.comment);
	if (!strcmp(job.reason, "None"))
		job.reason[0] = '\0';
	snprintf(job.id, sizeof job.id, "%s", id);
	*out = job;
	return 0;
}

int slurm_commands_show(const char *id, struct queue_job *out, struct err *e)
{
	const char *argv[] = { "scontrol", "--oneliner", "show", "job", id, NULL };
	struct buf output = BUF_INIT;
	int rc = run_command(argv, &output, e);
	rc = rc ? rc : slurm_commands_read_job(buf_str(&output), id, out, e);
	buf_fini(&output);
	return rc;
}

/* --- Update and cancel --- */

int slurm_commands_update(const char *id, const struct queue_change *change, struct err *e)
{
	char limit[32], nice[32];
	snprintf(limit, sizeof limit, "%lld", (long long)change->limit);
	snprintf(nice, sizeof nice, "%lld", (long long)change->nice);
	const struct {
		const char *key, *value;
	} changes[] = {
		{ "JobId", id },
		{ "TimeLimit", change->limit > 0 ? limit : NULL },
		{ "Nice", change->nice != QUEUE_NICE_NONE ? nice : NULL },
		{ "Comment", change->comment },
		{ "Partition", change->partition },
		{ "QOS", change->qos },
		{ "Dependency", change->dependency },
		{ "JobName", change->name },
	};
	enum { CHANGES = sizeof changes / sizeof *changes };
	struct buf words[CHANGES] = { BUF_INIT }, output = BUF_INIT;
	const char *argv[CHANGES + 3] = { "scontrol", "update" };
	bool failed = false;
	int n = 2;
	for (int i = 0; i < CHANGES; i++) {
		if (!changes[i].value)
			continue;
		buf_printf(&words[i], "%s=%s", changes[i].key, changes[i].value);
		failed |= buf_failed(&words[i]);
		argv[n++] = buf_str(&words[i]);
	}
	int rc = failed ? err_set(e, ERR_NOMEM, "no memory to change job %s", id)
			: run_command(argv, &output, e);
	for (int i = 0; i < CHANGES; i++)
		buf_fini(&words[i]);
	buf_fini(&output);
	return rc;
}

int slurm_commands_cancel(const char *id, int signal, struct err *e)
{
	char option[32];
	struct buf output = BUF_INIT;
	struct queue_job job;
	/* scancel does not report a job that is unknown. */
	if (slurm_commands_show(id, &job, e))
		return -1;
	snprintf(option, sizeof option, "--signal=%d", signal);
	/* --full: the batch script gets the signal, too. */
	const char *signalled[] = { "scancel", "--full", option, id, NULL };
	const char *ended[] = { "scancel", id, NULL };
	int rc = run_command(signal > 0 ? signalled : ended, &output, e);
	buf_fini(&output);
	return rc;
}
