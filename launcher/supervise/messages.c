#include "launcher/supervise/state.h"
#include "topo/bind.h"

#include <stdio.h>
#include <string.h>

/* Fields are what a peer wrote: each is checked before it is used. */
static bool get_int(const json_t *body, const char *key, int64_t least, int64_t most, int64_t *out)
{
	const json_t *v = json_object_get(body, key);
	if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most)
		return false;
	*out = json_integer_value(v);
	return true;
}

static const char *get_text(const json_t *body, const char *key, const char *otherwise)
{
	const char *v = json_string_value(json_object_get(body, key));
	return v ? v : otherwise;
}

static bool get_step(const json_t *body, int64_t *step)
{
	return get_int(body, "step", 0, INT64_MAX / 2, step);
}

static void refuse(struct supervisor *s, struct link *l, const char *why)
{
	supervise_report_refused(s, why);
	supervise_link_drop(l);
}

/* A rank that breaks the rules is lost; the handler's caller has checked that the link is
 * claimed. */
static void break_off(struct supervisor *s, struct link *l, const struct msg *m)
{
	struct loss loss = { .rank = supervise_link_rank(l),
			     .how = LOSS_PROTOCOL,
			     .code = ERR_PROTO,
			     .at = supervisor_now(s) };
	snprintf(loss.text, sizeof loss.text, "sent a malformed %s message", msg_word(m->type));
	s->ranks[loss.rank].link = NULL;
	supervise_link_drop(l);
	supervisor_handle(s, EV_LOST, &loss, NULL);
}

static void touch(struct supervisor *s, struct rank_state *k, int64_t step, const char *phase)
{
	if (step == k->step && !strcmp(phase, k->phase))
		return;
	k->step = step;
	snprintf(k->phase, sizeof k->phase, "%.31s", phase);
	k->moved = supervisor_now(s);
}

/* The rank's device, and the cores and the memory next to it. */
static void add_place(const struct supervisor *s, int rank, json_t *body)
{
	const struct plan_rank *r = &s->o.plan->ranks[rank];
	const struct node_kind *k = topo_cluster_kind(s->o.cluster, r->node);
	char cpus[TOPO_CPUS] = "";
	bool bound = s->o.job->launch.bind != BIND_NONE;
	if (bound)
		topo_bind_near(k, r->slot, cpus, sizeof cpus);
	json_object_set_new(body, "device", json_integer(r->slot));
	json_object_set_new(body, "bus", json_string(k->parts ? k->parts[r->slot].bus : ""));
	json_object_set_new(body, "memory", json_real(r->total));
	json_object_set_new(body, "crew", json_integer(r->node_ranks));
	json_object_set_new(body, "cpus", json_string(cpus));
	json_object_set_new(body, "numa", json_integer(*cpus ? k->parts[r->slot].numa : -1));
}

static int send_welcome(struct supervisor *s, struct link *l, int rank, struct err *e)
{
	const struct coords *at = &s->o.plan->ranks[rank].at;
	json_t *body = json_pack("{s:s, s:i, s:s, s:s, s:{s:i, s:i, s:i, s:i}, s:s, s:i, s:f}",
				 "job", s->o.job_text, "threads", s->o.plan->ranks[rank].threads,
				 "run", rundir_path(s->o.run), "resume", supervisor_resume(s),
				 "coords", "tp", at->tp, "cp", at->cp, "dp", at->dp, "pp", at->pp,
				 "node", supervisor_node(s, rank), "node_index",
				 s->o.plan->ranks[rank].node, "heartbeat_s", s->o.limits.heartbeat);
	if (!body)
		return err_set(e, ERR_NOMEM, "no memory for the welcome of rank %d", rank);
	json_object_set_new(body, "group_secret", json_string(s->group_secret));
	add_place(s, rank, body);
	int rc = supervise_link_send(l, MSG_WELCOME, body, e);
	json_decref(body);
	return rc;
}

static bool on_hello(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t rank, world, version, pid;
	if (supervise_link_rank(l) >= 0)
		return false;
	if (!get_int(body, "version", 0, INT32_MAX, &version) || version != MSG_VERSION) {
		refuse(s, l, "an agent of another version");
		return true;
	}
	if (!get_int(body, "world", 1, INT32_MAX, &world) || world != s->world ||
	    !get_int(body, "rank", 0, s->world - 1, &rank) ||
	    !get_int(body, "pid", 1, INT32_MAX, &pid)) {
		refuse(s, l, "a hello for a rank that the plan does not have");
		return true;
	}
	struct rank_state *k = &s->ranks[rank];
	if (k->hello) {
		refuse(s, l, "a second hello for a rank that is here already");
		return true;
	}
	supervise_link_claim(l, (int)rank);
	*k = (struct rank_state){ .link = l,
				  .hello = true,
				  .beat = supervisor_now(s),
				  .moved = supervisor_now(s),
				  .step = -1,
				  .exited = k->exited };
	supervise_report_event(s, "hello",
			       json_pack("{s:I, s:s, s:I}", "rank", (json_int_t)rank, "node",
					 get_text(body, "node", ""), "pid", (json_int_t)pid));
	struct err e = ERR_INIT;
	if (send_welcome(s, l, (int)rank, &e)) {
		struct loss loss = { .rank = (int)rank,
				     .how = LOSS_PROTOCOL,
				     .code = e.code,
				     .at = supervisor_now(s) };
		snprintf(loss.text, sizeof loss.text, "cannot be told its part: %.900s", e.text);
		supervisor_handle(s, EV_LOST, &loss, NULL);
		return true;
	}
	if (++s->hellos == s->world)
		supervisor_handle(s, EV_HELLO, NULL, NULL);
	return true;
}

static bool on_ready(struct supervisor *s, struct link *l, const json_t *body)
{
	struct rank_state *k = &s->ranks[supervise_link_rank(l)];
	int64_t step;
	if (!get_step(body, &step) || k->ready)
		return false;
	k->ready = true;
	s->resumed = step;
	touch(s, k, step, "ready");
	if (++s->readies == s->world)
		supervisor_handle(s, EV_READY, NULL, NULL);
	return true;
}

static bool on_metrics(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t step;
	if (!get_step(body, &step))
		return false;
	struct rank_state *k = &s->ranks[supervise_link_rank(l)];
	k->moved = supervisor_now(s);
	if (step > k->step)
		k->step = step;
	supervise_restart_step(&s->restart, step);
	supervise_report_metrics(s, (json_t *)body);
	return true;
}

static bool on_eval(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t step;
	const json_t *loss = json_object_get(body, "loss");
	if (!get_step(body, &step) || !json_is_number(loss))
		return false;
	s->ranks[supervise_link_rank(l)].moved = supervisor_now(s);
	supervise_report_eval(s, step, json_number_value(loss));
	return true;
}

static bool on_progress(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t step, count = json_integer_value(json_object_get(body, "count"));
	struct rank_state *k = &s->ranks[supervise_link_rank(l)];
	if (!get_int(body, "step", -1, INT64_MAX / 2, &step))
		return false;
	touch(s, k, step, get_text(body, "phase", ""));
	if (count != k->count)
		k->moved = supervisor_now(s);
	k->count = count;
	return true;
}

static bool on_log(struct supervisor *s, struct link *l, const json_t *body)
{
	int rank = supervise_link_rank(l);
	const char *level = get_text(body, "level", "warn"), *text = get_text(body, "text", "");
	supervise_report_event(s, "log",
			       json_pack("{s:i, s:s, s:s, s:s}", "rank", rank, "node",
					 supervisor_node(s, rank), "level", level, "text", text));
	/* What the ranks say while the generation is being ended is in their logs. */
	if (s->state != SUP_DRAINING && !s->settle_at)
		supervise_terminal_event(s->o.term, strcmp(level, "error") ? TONE_WARN : TONE_BAD,
					 strcmp(level, "error") ? "warn" : "error", "%s:%d: %s",
					 supervisor_node(s, rank), rank, text);
	return true;
}

static bool on_ckpt(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t step;
	if (!get_step(body, &step) || !json_is_string(json_object_get(body, "path")))
		return false;
	s->ranks[supervise_link_rank(l)].moved = supervisor_now(s);
	supervise_restart_ckpt(&s->restart, step);
	s->ckpt_step = step;
	snprintf(s->ckpt_path, sizeof s->ckpt_path, "%s", get_text(body, "path", ""));
	supervise_report_ckpt(s, (json_t *)body);
	return true;
}

/* The lines before it came over the same connection in order, so they are in the run folder, but
 * for those that it had no room for: these are counted and told (rundir_lost), and hold no
 * checkpoint up. */
static bool on_series(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t step;
	if (!get_step(body, &step))
		return false;
	s->ranks[supervise_link_rank(l)].moved = supervisor_now(s);
	json_t *answer = json_pack("{s:I}", "step", (json_int_t)step);
	if (s->ranks[0].link) /* else it is lost, and so is its checkpoint */
		supervise_link_send(s->ranks[0].link, MSG_RECORDED, answer, NULL);
	json_decref(answer);
	return true;
}

static bool on_signal(struct supervisor *s, struct link *l, const json_t *body)
{
	int64_t number;
	char reason[128];
	if (!get_int(body, "number", 1, 128, &number))
		return false;
	snprintf(reason, sizeof reason, "rank %d got signal %d (%s)", supervise_link_rank(l),
		 (int)number, strsignal((int)number));
	supervisor_handle(s, EV_STOP, NULL, reason);
	return true;
}

static enum err_code code_of(const char *word)
{
	for (int c = ERR_NONE; c <= ERR_INTERNAL; c++)
		if (!strcmp(word, err_word((enum err_code)c)))
			return (enum err_code)c;
	return ERR_INTERNAL;
}

static bool on_failed(struct supervisor *s, struct link *l, const json_t *body)
{
	struct loss loss = { .rank = supervise_link_rank(l),
			     .how = LOSS_FAILED,
			     .at = supervisor_now(s) };
	loss.code = code_of(get_text(body, "code", "internal"));
	snprintf(loss.text, sizeof loss.text, "%s",
		 get_text(body, "text", "failed without saying why"));
	supervisor_handle(s, EV_LOST, &loss, NULL);
	return true;
}

static bool on_finished(struct supervisor *s, struct link *l, const json_t *body)
{
	struct rank_state *k = &s->ranks[supervise_link_rank(l)];
	int64_t step;
	if (!get_step(body, &step) || k->finished)
		return false;
	k->finished = true;
	supervise_contract_memory(&s->contract, s->o.plan, supervise_link_rank(l),
				  json_number_value(json_object_get(body, "peak_bytes")));
	touch(s, k, step, "finished");
	if (++s->finishes == s->world)
		supervisor_handle(s, EV_FINISHED, NULL, NULL);
	return true;
}

static bool on_dumped(struct supervisor *s, struct link *l, const json_t *body)
{
	int rank = supervise_link_rank(l);
	const char *error = get_text(body, "error", NULL);
	s->ranks[rank].dumped = true;
	if (error)
		supervise_report_event(s, "log",
				       json_pack("{s:i, s:s, s:s, s:s}", "rank", rank, "node",
						 supervisor_node(s, rank), "level", "warn", "text",
						 error));
	supervisor_handle(s, EV_DUMPED, NULL, NULL);
	return true;
}

/* What agents may send. false: malformed, or out of its turn. */
static const struct {
	bool (*fn)(struct supervisor *, struct link *, const json_t *body);
	bool stranger; /* may come before hello */
} handlers[MSG_COUNT] = {
	[MSG_HELLO] = { on_hello, true },        [MSG_READY] = { on_ready, false },
	[MSG_METRICS] = { on_metrics, false },   [MSG_EVAL] = { on_eval, false },
	[MSG_PROGRESS] = { on_progress, false }, [MSG_LOG] = { on_log, false },
	[MSG_CKPT] = { on_ckpt, false },         [MSG_SERIES] = { on_series, false },
	[MSG_SIGNAL] = { on_signal, false },     [MSG_FAILED] = { on_failed, false },
	[MSG_FINISHED] = { on_finished, false }, [MSG_DUMPED] = { on_dumped, false },
};

void supervisor_message(void *supervisor, struct link *l, const struct msg *m)
{
	struct supervisor *s = supervisor;
	int rank = supervise_link_rank(l);
	bool known = m->type > MSG_NONE && m->type < MSG_COUNT && handlers[m->type].fn;
	if (rank < 0 && !(known && handlers[m->type].stranger)) {
		refuse(s, l, "a message before hello");
		return;
	}
	if (rank >= 0)
		s->ranks[rank].beat = supervisor_now(s);
	if (!known || !handlers[m->type].fn(s, l, m->body))
		break_off(s, l, m);
}
