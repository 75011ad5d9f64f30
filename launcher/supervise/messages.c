/* messages: what the supervisor does with each message of an agent. */
#include "base/ranges.h"
#include "base/rank_rows.h"
#include "launcher/supervise/supervisor.h"
#include "launcher/supervise/traced_numbers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* An error of a handler: the message is malformed, or sent in the wrong order. */
static int report_out_of_order(const char *name, struct err *e)
{
	return err_set(e, ERR_PROTO, "message %s: it was sent twice or at the wrong time", name);
}

/* A rank that breaks the rules is lost. The connection is claimed. */
static void lose_rank(struct supervisor *s, struct connection *c, enum err_code code,
		      const char *text)
{
	struct lost_rank loss = { .rank = launcher_connection_rank(c),
				  .how = LOST_PROTOCOL,
				  .code = code,
				  .at = supervise_now(s) };
	snprintf(loss.text, sizeof loss.text, "%s", text);
	s->ranks[loss.rank].connection = NULL;
	launcher_connection_drop(c);
	supervise_handle(s, EV_LOST, &loss, NULL);
}

static struct rank_state *rank_of(struct supervisor *s, struct connection *c)
{
	return &s->ranks[launcher_connection_rank(c)];
}

static int on_hello(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	if (launcher_connection_rank(c) >= 0)
		return report_out_of_order("hello", e);
	supervise_hello(s, c, body);
	return 0;
}

/* --- a rank that trains ------------------------------------------------------------- */

static int on_ready(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct rank_state *k = rank_of(s, c);
	struct msg_ready m;
	if (msg_ready_read(body, &m, e))
		return -1;
	if (k->ready)
		return report_out_of_order("ready", e);
	k->ready = true;
	s->resumed = m.step;
	snprintf(s->resumed_from, sizeof s->resumed_from, "%s", m.has_from ? m.from : "");
	supervise_progress_set(s, k, m.step, "ready");
	supervise_times_ready(s, launcher_connection_rank(c), m.step);
	supervise_warn_ready(s, m.step);
	if (++s->readies == s->world) {
		supervise_predecessors_ready(s->predecessors, s->generation);
		supervise_handle(s, EV_ALL_READY, NULL, NULL);
	}
	return 0;
}

static int on_metrics(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct rank_state *k = rank_of(s, c);
	struct msg_metrics m;
	if (msg_metrics_read(body, &m, e))
		return -1;
	supervise_note_move(s, k);
	if (m.step > k->step)
		k->step = m.step;
	supervise_restart_step(&s->restart, m.step);
	supervise_stop_note_step(s);
	supervise_hang_note_step(&s->hang);
	if (!s->stepped)
		supervise_pool_confirm(&s->recovery.pool);
	supervise_state_note_metrics(s, &m);
	bool first = !s->stepped;
	supervise_report_metrics(s, &m);
	supervise_warn_step(s, launcher_connection_rank(c), &m, first);
	supervise_warn_memory(s, launcher_connection_rank(c), (double)m.peak_bytes);
	return 0;
}

static int on_eval(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_eval m;
	if (msg_eval_read(body, &m, e))
		return -1;
	supervise_note_move(s, rank_of(s, c));
	supervise_state_note_eval(s, m.step);
	supervise_report_eval(s, &m);
	return 0;
}

static int on_progress(struct supervisor *s, struct connection *c, const json_t *body,
		       struct err *e)
{
	return supervise_progress_note(s, launcher_connection_rank(c), body, e);
}

static int on_node_progress(struct supervisor *s, struct connection *c, const json_t *body,
			    struct err *e)
{
	return supervise_progress_note_node(s, launcher_connection_rank(c), body, e);
}

static int on_times(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_times m;
	if (msg_times_read(body, &m, e))
		return -1;
	if (!rank_of(s, c)->ready)
		return report_out_of_order("times", e);
	return supervise_times_note(s, launcher_connection_rank(c), &m, e);
}

static int on_health(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_health m;
	if (msg_health_read(body, &m, e))
		return -1;
	return supervise_evidence_note(s, launcher_connection_rank(c), &m, e);
}

static int on_links(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_links m;
	if (msg_links_read(body, &m, e))
		return -1;
	return supervise_links_note(s, launcher_connection_rank(c), &m, e);
}

static int on_log(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	int rank = launcher_connection_rank(c);
	struct msg_log m;
	if (msg_log_read(body, &m, e))
		return -1;
	supervise_report_log(s, rank, m.level, m.text);
	/* While the generation ends, the ranks' messages go to their logs and to events.jsonl
	 * only. */
	bool error = !strcmp(m.level, "error");
	if (s->state != SUP_DRAINING && s->state != SUP_REGROUPING && !s->settle_at)
		supervise_terminal_event(s->o.term, error ? TONE_BAD : TONE_WARN,
					 error ? "error" : "warn", "%s:%d: %s",
					 supervise_node(s, rank), rank, m.text);
	return 0;
}

static int on_ckpt(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_ckpt m;
	if (msg_ckpt_read(body, &m, e))
		return -1;
	supervise_note_move(s, rank_of(s, c));
	supervise_restart_ckpt(&s->restart, m.step);
	supervise_stop_note_ckpt(s, m.seconds);
	supervise_comment_note_ckpt(s, m.step);
	supervise_times_write(s);
	s->ckpt_step = m.step;
	snprintf(s->ckpt_path, sizeof s->ckpt_path, "%s", m.path);
	supervise_state_note_ckpt(s, &m);
	supervise_console_note_ckpt(s, m.step, m.path);
	supervise_report_ckpt(s, &m);
	supervise_slow_checkpoints_note(s, &m);
	supervise_uploads_look(s);
	supervise_recovery_look_for_nodes(s);
	return 0;
}

/* It does not count as the run's checkpoint: a node that is lost takes it along. */
static int on_ckpt_local(struct supervisor *s, struct connection *c, const json_t *body,
			 struct err *e)
{
	struct msg_ckpt_local m;
	if (msg_ckpt_local_read(body, &m, e))
		return -1;
	supervise_note_move(s, rank_of(s, c));
	rundir_event_ckpt_local(s->o.run, s->generation,
				&(struct rundir_ckpt){ .step = m.step,
						       .path = m.path,
						       .bytes = m.bytes,
						       .seconds = m.seconds,
						       .stall_s = m.stall_s });
	return 0;
}

static int on_save_failed(struct supervisor *s, struct connection *c, const json_t *body,
			  struct err *e)
{
	struct msg_save_failed m;
	if (msg_save_failed_read(body, &m, e))
		return -1;
	if (launcher_connection_rank(c) != 0)
		return err_set(e, ERR_PROTO, "message save_failed: only rank 0 sends it");
	if (!rank_of(s, c)->ready)
		return report_out_of_order("save_failed", e);
	supervise_note_move(s, rank_of(s, c));
	supervise_report_log(s, launcher_connection_rank(c), "warn", m.text);
	supervise_console_note_failure(s, m.step, m.text);
	return 0;
}

static int on_traced(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_traced m;
	if (msg_traced_read(body, &m, e))
		return -1;
	if (!m.has_error && (m.first < 1 || m.last < m.first))
		return err_set(e, ERR_PROTO, "message traced: steps %lld to %lld",
			       (long long)m.first, (long long)m.last);
	supervise_console_trace_note(s, launcher_connection_rank(c), &m);
	return 0;
}

static int on_collected(struct supervisor *s, struct connection *c, const json_t *body,
			struct err *e)
{
	struct msg_collected m;
	if (msg_collected_read(body, &m, e))
		return -1;
	supervise_collect_note(s, launcher_connection_rank(c), &m);
	return 0;
}

/* The metrics up to this step came earlier on the same connection, so they are in the run folder,
 * except for lines that a full disk has lost. rundir_lost() counts those; they do not delay a
 * checkpoint. */
static int on_series(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_series m;
	if (msg_series_read(body, &m, e))
		return -1;
	supervise_note_move(s, rank_of(s, c));
	json_t *answer = msg_recorded_json(&(struct msg_recorded){ .step = m.step });
	if (s->ranks[0].connection) /* otherwise rank 0 is lost, and its checkpoint with it */
		launcher_connection_send(s->ranks[0].connection, MSG_RECORDED, answer, NULL);
	json_decref(answer);
	return 0;
}

static int on_signal(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_signal m;
	char reason[128];
	if (msg_signal_read(body, &m, e))
		return -1;
	if (m.number < 1 || m.number > 128)
		return err_set(e, ERR_PROTO, "message signal: there is no signal %d", m.number);
	snprintf(reason, sizeof reason, "rank %d got signal %d (%s)", launcher_connection_rank(c),
		 m.number, strsignal(m.number));
	supervise_stop(s, reason, false);
	return 0;
}

static int on_bad_step(struct supervisor *s, struct connection *c, const json_t *body,
		       struct err *e)
{
	struct msg_bad_step m;
	struct ranges fits = { 0 };
	if (msg_bad_step_read(body, &m, e))
		return -1;
	if (ranges_add(&fits, m.first, m.count, NULL))
		return err_set(e, ERR_PROTO, "message bad_step: %lld samples from %lld on",
			       (long long)m.count, (long long)m.first);
	supervise_note_move(s, rank_of(s, c));
	supervise_rollback_note(s, &m);
	return 0;
}

/* --- a rank that ends --------------------------------------------------------------- */

static enum err_code code_named(const char *word)
{
	for (int c = ERR_NONE; c <= ERR_INTERNAL; c++)
		if (!strcmp(word, err_word((enum err_code)c)))
			return (enum err_code)c;
	return ERR_INTERNAL;
}

static int on_failed(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_failed m;
	if (msg_failed_read(body, &m, e))
		return -1;
	struct lost_rank loss = { .rank = launcher_connection_rank(c),
				  .how = LOST_FAILED,
				  .code = code_named(m.code),
				  .at = supervise_now(s) };
	snprintf(loss.text, sizeof loss.text, "%s", m.text);
	rank_of(s, c)->failed = !supervise_blames_another(&loss);
	supervise_program_note_end(s, loss.rank, &m);
	if (m.has_blame && supervise_traced_numbers_note(s, m.blame, &loss, e))
		return -1;
	supervise_handle(s, EV_LOST, &loss, NULL);
	return 0;
}

static int on_finished(struct supervisor *s, struct connection *c, const json_t *body,
		       struct err *e)
{
	struct rank_state *k = rank_of(s, c);
	struct msg_finished m;
	if (msg_finished_read(body, &m, e))
		return -1;
	if (k->finished)
		return report_out_of_order("finished", e);
	k->finished = true;
	supervise_contract_memory(&s->contract, &s->d->plan, launcher_connection_rank(c),
				  (double)m.peak_bytes);
	supervise_progress_set(s, k, m.step, "finished");
	supervise_times_finished(s, launcher_connection_rank(c));
	supervise_program_note_exit(s, launcher_connection_rank(c));
	if (++s->finishes == s->world)
		supervise_handle(s, EV_ALL_FINISHED, NULL, NULL);
	return 0;
}

static int on_dumped(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_dumped m;
	if (msg_dumped_read(body, &m, e))
		return -1;
	rank_of(s, c)->dumped = true;
	if (m.has_error)
		supervise_report_log(s, launcher_connection_rank(c), "warn", m.error);
	supervise_handle(s, EV_DUMPED, NULL, NULL);
	return 0;
}

static int on_examined(struct supervisor *s, struct connection *c, const json_t *body,
		       struct err *e)
{
	struct msg_examined m;
	if (msg_examined_read(body, &m, e))
		return -1;
	supervise_stacks_note(s, launcher_connection_rank(c), &m);
	supervise_handle(s, EV_EXAMINED, NULL, NULL);
	return 0;
}

/* --- between two generations ------------------------------------------------------------ */

static int on_idle(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	(void)body;
	if (!supervise_regroup_note_idle(s, launcher_connection_rank(c)))
		return report_out_of_order("idle", e);
	supervise_handle(s, EV_IDLE, NULL, NULL);
	return 0;
}

static int on_endpoints(struct supervisor *s, struct connection *c, const json_t *body,
			struct err *e)
{
	struct msg_endpoints m;
	if (msg_endpoints_read(body, &m, e))
		return -1;
	int rank = launcher_connection_rank(c);
	return s->program.ranks ? supervise_program_publish(s, rank, m.values, e)
				: supervise_rendezvous_note(s, rank, &m, e);
}

/* --- a task of a program ---------------------------------------------------------------- */

/* Only agents of a program send these. */
static int check_program(const struct supervisor *s, const char *name, struct err *e)
{
	return s->program.ranks ? 0 : report_out_of_order(name, e);
}

static int on_task(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_task m;
	if (msg_task_read(body, &m, e) || check_program(s, "task", e))
		return -1;
	supervise_program_note_task(s, launcher_connection_rank(c), &m);
	return 0;
}

static int on_task_failed(struct supervisor *s, struct connection *c, const json_t *body,
			  struct err *e)
{
	(void)body;
	if (check_program(s, "task_failed", e))
		return -1;
	supervise_program_note_failing(s, launcher_connection_rank(c));
	return 0;
}

static int on_output(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_output m;
	if (msg_output_read(body, &m, e) || check_program(s, "output", e))
		return -1;
	supervise_program_note_output(s, launcher_connection_rank(c), &m);
	return 0;
}

static int on_began(struct supervisor *s, struct connection *c, const json_t *body, struct err *e)
{
	struct msg_began m;
	if (msg_began_read(body, &m, e) || check_program(s, "began", e))
		return -1;
	supervise_note_move(s, rank_of(s, c));
	supervise_program_note_began(s, launcher_connection_rank(c), &m);
	return 0;
}

static int on_client_ckpt(struct supervisor *s, struct connection *c, const json_t *body,
			  struct err *e)
{
	struct msg_client_ckpt m;
	if (msg_client_ckpt_read(body, &m, e) || check_program(s, "client_ckpt", e))
		return -1;
	supervise_note_move(s, rank_of(s, c));
	supervise_program_note_ckpt(s, &m);
	supervise_recovery_look_for_nodes(s);
	return 0;
}

/* --- dispatch ----------------------------------------------------------------------- */

/* The messages that agents send. An error means that the rank is lost. */
static const struct {
	int (*handle)(struct supervisor *, struct connection *, const json_t *body, struct err *e);
	bool stranger; /* may come from a connection that is not claimed */
} handlers[MSG_COUNT] = {
	[MSG_HELLO] = { on_hello, true },
	[MSG_READY] = { on_ready, false },
	[MSG_METRICS] = { on_metrics, false },
	[MSG_EVAL] = { on_eval, false },
	[MSG_PROGRESS] = { on_progress, false },
	[MSG_NODE_PROGRESS] = { on_node_progress, false },
	[MSG_TIMES] = { on_times, false },
	[MSG_LOG] = { on_log, false },
	[MSG_CKPT] = { on_ckpt, false },
	[MSG_SERIES] = { on_series, false },
	[MSG_CKPT_LOCAL] = { on_ckpt_local, false },
	[MSG_SAVE_FAILED] = { on_save_failed, false },
	[MSG_TRACED] = { on_traced, false },
	[MSG_COLLECTED] = { on_collected, false },
	[MSG_SIGNAL] = { on_signal, false },
	[MSG_FAILED] = { on_failed, false },
	[MSG_FINISHED] = { on_finished, false },
	[MSG_DUMPED] = { on_dumped, false },
	[MSG_HEALTH] = { on_health, false },
	[MSG_BAD_STEP] = { on_bad_step, false },
	[MSG_EXAMINED] = { on_examined, false },
	[MSG_LINKS] = { on_links, false },
	[MSG_IDLE] = { on_idle, false },
	[MSG_ENDPOINTS] = { on_endpoints, false },
	[MSG_TASK] = { on_task, false },
	[MSG_TASK_FAILED] = { on_task_failed, false },
	[MSG_OUTPUT] = { on_output, false },
	[MSG_BEGAN] = { on_began, false },
	[MSG_CLIENT_CKPT] = { on_client_ckpt, false },
};

/* Notes a message of MSG_REPORTS. True: one that was sent later has come before it. */
static bool is_overtaken(struct rank_state *k, enum msg_type type, const json_t *body)
{
	int report = msg_report_index(type);
	const json_t *number = json_object_get(body, "number");
	if (report < 0 || !json_is_integer(number)) /* its reader refuses it */
		return false;
	if (json_integer_value(number) <= k->reports[report])
		return true;
	k->reports[report] = json_integer_value(number);
	return false;
}

void supervise_report(struct supervisor *s, int rank, enum msg_type type, const json_t *body)
{
	struct rank_state *k = &s->ranks[rank];
	struct connection *c = k->connection;
	struct err e = ERR_INIT;
	if (!is_overtaken(k, type, body) && handlers[type].handle(s, c, body, &e))
		lose_rank(s, c, e.code, e.text);
}

void supervise_message(void *supervisor, struct connection *c, const struct msg *m)
{
	struct supervisor *s = supervisor;
	struct err e = ERR_INIT;
	int rank = launcher_connection_rank(c);
	bool known = m->type > MSG_NONE && m->type < MSG_COUNT && handlers[m->type].handle;
	if (rank < 0 && !(known && handlers[m->type].stranger)) {
		supervise_refuse(s, c, "a message before hello");
		return;
	}
	if (rank >= s->most) /* an agent that waits for the next generation */
		return;
	if (rank >= 0)
		supervise_progress_heard(s, rank);
	if (rank >= 0 && is_overtaken(&s->ranks[rank], m->type, m->body))
		return;
	int rc = known ? handlers[m->type].handle(s, c, m->body, &e)
		       : err_set(&e, ERR_PROTO, "message %s: only the supervisor sends it",
				 msg_word(m->type));
	if (rc)
		lose_rank(s, c, e.code, e.text);
}
