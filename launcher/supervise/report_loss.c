/* report_loss: what is written and printed about a generation that is lost. */
#include "base/file.h"
#include "base/human.h"
#include "base/run_paths.h"
#include "launcher/supervise/supervisor.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const char *const how_words[] = {
	[LOST_CLOSED] = "closed",     [LOST_EXITED] = "exited", [LOST_FAILED] = "failed",
	[LOST_PROTOCOL] = "protocol", [LOST_SILENT] = "silent", [LOST_HUNG] = "hung",
	[LOST_START] = "start",
};

static bool ended_by_signal(const struct rank_state *k)
{
	return k->exited && WIFSIGNALED(k->status);
}

static bool has_exited(const struct rank_state *k)
{
	return k->exited && !WIFSIGNALED(k->status);
}

void supervise_report_loss(struct supervisor *s)
{
	int rank = s->cause.rank;
	supervise_symptoms(s, &s->symptom);
	s->fault = supervise_fault_of(&s->symptom);
	struct rundir_rank_lost lost = {
		.fault = s->fault->name,
		.owner = supervise_owner_word(s->fault->owner),
		.how = how_words[s->cause.how],
		.code = err_word(s->cause.code),
		.text = s->cause.text,
	};
	if (rank >= 0) {
		const struct rank_state *k = &s->ranks[rank];
		lost.has_rank = lost.has_node = lost.has_step = lost.has_phase = true;
		lost.rank = rank;
		lost.node = supervise_node(s, rank);
		lost.step = k->step;
		lost.phase = k->phase;
		lost.has_signal = ended_by_signal(k);
		lost.signal = WTERMSIG(k->status);
		lost.has_status = has_exited(k);
		lost.status = WEXITSTATUS(k->status);
	}
	rundir_event_rank_lost(s->o.run, s->generation, &lost);
}

void supervise_report_verdict(struct supervisor *s, const struct rundir_verdict *v)
{
	rundir_event_verdict(s->o.run, s->generation, v);
	if (strcmp(v->finding, "none"))
		supervise_terminal_event(s->o.term, TONE_BAD, "verdict", "%s", v->text);
}

void supervise_report_exit(struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	rundir_event_exit(s->o.run, s->generation,
			  &(struct rundir_exit){ .has_rank = true,
						 .rank = rank,
						 .has_node = true,
						 .node = supervise_node(s, rank),
						 .has_step = true,
						 .step = k->step,
						 .has_phase = true,
						 .phase = k->phase,
						 .has_signal = ended_by_signal(k),
						 .signal = WTERMSIG(k->status),
						 .has_status = has_exited(k),
						 .status = WEXITSTATUS(k->status) });
}

/* Prints the last line of the launch log, where the dynamic linker and PMIx report errors. A line
 * of srun counts only if there is no other. */
static void print_launch_log(struct supervisor *s)
{
	char path[RUN_PATH], line[512], last[512] = "";
	run_path_launch_log(path, rundir_path(s->o.run), supervise_launch_of(s, s->cause.rank));
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	while (in && fgets(line, sizeof line, in))
		if (strcspn(line, "\n") && (strncmp(line, "srun: ", 6) || !*last))
			snprintf(last, sizeof last, "%.*s", (int)strcspn(line, "\n"), line);
	if (in)
		fclose(in);
	supervise_terminal_event(s->o.term, TONE_PLAIN, "log", "%s: %s", path,
				 *last ? last : "empty");
}

void supervise_describe_lost_rank(const struct supervisor *s, char *out, size_t size)
{
	int rank = s->cause.rank;
	if (rank < 0) {
		snprintf(out, size, "the agents");
		return;
	}
	const struct rank_state *k = &s->ranks[rank];
	char where[96] = "";
	if (k->step > 0)
		snprintf(where, sizeof where, ", after step %lld", (long long)k->step);
	else if (k->hello && (!s->program.ranks || s->program.began))
		snprintf(where, sizeof where, ", before its first step");
	snprintf(out, size, "rank %d on %.64s%s%s%s%s", rank, supervise_node(s, rank), where,
		 *k->phase ? " (" : "", k->phase, *k->phase ? ")" : "");
}

/* How the process of the lost rank ended, or what the supervisor saw, and what it means. */
static void describe_cause(const struct supervisor *s, char *out, size_t size)
{
	const struct symptom *m = &s->symptom;
	const struct lost_rank *l = &s->cause;
	bool ended = l->how == LOST_CLOSED || l->how == LOST_EXITED;
	if (ended && m->signal && sigabbrev_np(m->signal))
		snprintf(out, size, "killed by SIG%s; %s", sigabbrev_np(m->signal), s->fault->text);
	else if (ended && m->status)
		snprintf(out, size, "exit status %d; %s", m->status, s->fault->text);
	else if (ended)
		snprintf(out, size, "%s", s->fault->text);
	else if (l->how == LOST_FAILED || m->node == NODE_UP)
		snprintf(out, size, "%s", l->text);
	else
		snprintf(out, size, "%s; %s", l->text, s->fault->text);
}

static void write_fault(const struct supervisor *s)
{
	const struct symptom *m = &s->symptom;
	static const char *const words[] = {
		[RETRY_NEVER] = "never",
		[RETRY_ONCE] = "once",
		[RETRY_NOW] = "now",
		[RETRY_WAIT] = "wait",
	};
	bool ranked = s->cause.rank >= 0;
	rundir_event_fault(s->o.run, s->generation,
			   &(struct rundir_fault){ .has_rank = ranked,
						   .rank = s->cause.rank,
						   .has_node = ranked,
						   .node = supervise_node(s, s->cause.rank),
						   .fault = s->fault->name,
						   .owner = supervise_owner_word(s->fault->owner),
						   .retry = words[s->fault->retry],
						   .text = s->fault->text,
						   .remedy = s->fault->remedy,
						   .has_signal = m->signal != 0,
						   .signal = m->signal,
						   .has_status = m->status != 0,
						   .status = m->status });
}

void supervise_report_blame(struct supervisor *s)
{
	char who[256], why[1400];
	supervise_describe_lost_rank(s, who, sizeof who);
	describe_cause(s, why, sizeof why);
	write_fault(s);
	supervise_terminal_event(s->o.term, TONE_BAD, "lost", "%s: %s", who, why);
	if (s->program.ranks)
		supervise_program_print_lines(s);
	supervise_notice_loss(s, who, why);
	if (!s->stepped && s->cause.how != LOST_FAILED && (!s->program.ranks || !s->trained))
		print_launch_log(s);
}

void supervise_report_remedy(struct supervisor *s)
{
	/* An agent's own message ends with its remedy. */
	if (s->cause.how != LOST_FAILED && *s->fault->remedy && s->advice != s->fault)
		supervise_terminal_event(s->o.term, TONE_PLAIN, "remedy", "%s", s->fault->remedy);
	s->advice = s->fault;
}

void supervise_report_restart(struct supervisor *s, double wait)
{
	rundir_event_restart(s->o.run, s->generation,
			     &(struct rundir_restart){ .delay_s = wait,
						       .futile = s->restart.futile });
	if (s->fault->retry == RETRY_WAIT)
		supervise_terminal_event(s->o.term, TONE_WARN, "wait",
					 "%g s, then another start; muster waits up to %g s "
					 "([restart] patience), and this restart does not count",
					 wait, s->restart.limits.patience);
	else if (wait > 0)
		supervise_terminal_event(s->o.term, TONE_WARN, "restart",
					 "in %g s, because the last generation made no progress",
					 wait);
}
