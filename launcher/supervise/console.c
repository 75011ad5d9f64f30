#include "launcher/supervise/console.h"

#include "base/human.h"
#include "launcher/rundir/control.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRANGERS_MAX = 8 };
static const double patience_s = 10;

/* --- answers ------------------------------------------------------------------------ */

static struct console *console_of(struct supervisor *s, const struct connection *c)
{
	return &s->console.consoles[launcher_connection_rank(c)];
}

static void drop(struct console *k)
{
	launcher_connection_drop(k->line);
	*k = (struct console){ .line = NULL };
}

void supervise_console_answer(struct console *k, const struct msg_console_answer *a)
{
	struct err e = ERR_INIT;
	json_t *body = launcher_connection_is_drained(k->line) ? msg_console_answer_json(a) : NULL;
	if (!body || launcher_connection_send(k->line, MSG_CONSOLE_ANSWER, body, &e))
		drop(k);
	json_decref(body);
}

void supervise_console_tell_all(struct supervisor *s, enum console_awaits what,
				const struct msg_console_answer *a)
{
	for (int i = 0; i < CONSOLES; i++) {
		struct console *k = &s->console.consoles[i];
		if (!k->line || k->awaits != what)
			continue;
		k->awaits = CONSOLE_AWAITS_NOTHING;
		supervise_console_answer(k, a);
	}
}

static void answer_text(struct console *k, bool ok, const char *text)
{
	supervise_console_answer(k, &(struct msg_console_answer){ .ok = ok, .text = text });
}

/* --- what consoles ask for ------------------------------------------------------------ */

static void on_state(struct supervisor *s, struct console *k, const struct msg_console_ask *m)
{
	(void)m;
	json_t *state = supervise_state_json(s);
	supervise_console_answer(
		k, &(struct msg_console_answer){ .ok = state != NULL,
						 .text = state ? "" : "no memory for the answer",
						 .has_state = state != NULL,
						 .state = state });
	json_decref(state);
}

static void on_ranks(struct supervisor *s, struct console *k, const struct msg_console_ask *m)
{
	int first = m->has_first ? m->first : 0, count = m->has_count ? m->count : CONSOLE_RANKS;
	if (first < 0 || first > s->world || count < 0) {
		answer_text(k, false, "there is no such rank");
		return;
	}
	count = count < CONSOLE_RANKS ? count : CONSOLE_RANKS;
	json_t *ranks = supervise_state_ranks_json(s, first, count);
	supervise_console_answer(
		k, &(struct msg_console_answer){ .ok = ranks != NULL,
						 .text = ranks ? "" : "no memory for the answer",
						 .has_first = true,
						 .first = first,
						 .has_world = true,
						 .world = s->world,
						 .has_ranks = ranks != NULL,
						 .ranks = ranks });
	json_decref(ranks);
}

static void stop(struct supervisor *s, struct console *k, bool now)
{
	char reason[200], text[200];
	bool before = s->state == SUP_STOPPING && !s->recovery.growing;
	struct connection *line = k->line;
	snprintf(reason, sizeof reason, "%s asked for it (muster stop%s)", k->who,
		 now ? " --now" : "");
	supervise_stop(s, reason, now);
	if (k->line != line) /* it was dropped meanwhile */
		return;
	if (now)
		snprintf(text, sizeof text, "the run stops at once");
	else if (s->state == SUP_STOPPING && s->program.ranks)
		snprintf(text, sizeof text, "the tasks %s asked to save and exit",
			 before ? "were already" : "are");
	else if (s->state == SUP_STOPPING)
		snprintf(text, sizeof text,
			 "the run %s after the step that it is in, with a checkpoint",
			 before ? "was already asked to stop, and stops" : "stops");
	else
		snprintf(text, sizeof text, "the run stops");
	answer_text(k, true, text);
}

static void on_stop(struct supervisor *s, struct console *k, const struct msg_console_ask *m)
{
	(void)m;
	stop(s, k, false);
}

static void on_stop_now(struct supervisor *s, struct console *k, const struct msg_console_ask *m)
{
	(void)m;
	stop(s, k, true);
}

/* Of this generation: s->step may be of the last one, which was further. */
static int64_t finished_steps(const struct supervisor *s)
{
	return s->stepped ? s->step : s->resumed;
}

static struct msg_console_answer committed(int64_t step, const char *path, char *text, size_t size)
{
	snprintf(text, size, "the checkpoint of step %lld is committed", (long long)step);
	return (struct msg_console_answer){ .ok = true,
					    .text = text,
					    .has_step = true,
					    .step = step,
					    .has_path = true,
					    .path = path };
}

static void ask_ranks_to_save(struct supervisor *s)
{
	struct console_state *t = &s->console;
	t->saving = true;
	t->number++;
	t->generation = s->generation;
	t->step = finished_steps(s);
	/* The last checkpoint of a run that stops is on its way already. */
	if (s->state == SUP_TRAINING)
		supervise_broadcast(s, MSG_SAVE,
				    msg_save_json(&(struct msg_save){ .number = t->number }));
}

static bool can_save(const struct supervisor *s)
{
	return s->state == SUP_TRAINING || s->state == SUP_STOPPING || s->state == SUP_EXITING;
}

static void on_checkpoint(struct supervisor *s, struct console *k, const struct msg_console_ask *m)
{
	char text[200];
	(void)m;
	if (s->program.ranks) {
		answer_text(
			k, false,
			"muster cannot ask a program (job.program) for a checkpoint; it saves by "
			"itself, and when muster stop asks it to end");
		return;
	}
	if (!can_save(s)) {
		snprintf(text, sizeof text,
			 "the run does not train now (%s); ask again when it does",
			 rundir_state_word(s->view.id));
		answer_text(k, false, text);
		return;
	}
	bool joins = s->console.saving;
	if (!joins && s->ckpt_step >= 0 && s->ckpt_step >= finished_steps(s)) {
		const struct msg_console_answer a = committed(s->ckpt_step, s->ckpt_path, text,
							      sizeof text);
		supervise_console_answer(k, &a);
		return;
	}
	if (!joins) {
		rundir_event_ckpt_asked(s->o.run, s->generation,
					&(struct rundir_why){ .why = k->who });
		ask_ranks_to_save(s);
	}
	k->awaits = CONSOLE_AWAITS_CKPT;
	snprintf(text, sizeof text, "%s",
		 joins ? "a checkpoint was already asked for; this request waits for it"
		       : "a checkpoint follows after the step that the run is in");
	supervise_console_answer(
		k, &(struct msg_console_answer){ .ok = true, .text = text, .more = true });
}

static void end_saving(struct supervisor *s, const struct msg_console_answer *a)
{
	s->console.saving = false;
	supervise_console_tell_all(s, CONSOLE_AWAITS_CKPT, a);
}

void supervise_console_note_ckpt(struct supervisor *s, int64_t step, const char *path)
{
	char text[100];
	if (!s->console.saving || step < s->console.step)
		return;
	const struct msg_console_answer a = committed(step, path, text, sizeof text);
	end_saving(s, &a);
}

void supervise_console_note_failure(struct supervisor *s, int64_t step, const char *why)
{
	const struct console_state *t = &s->console;
	char text[1100];
	if (!t->saving || t->generation != s->generation || step < t->step)
		return; /* that of an earlier request */
	snprintf(text, sizeof text, "the checkpoint failed: %s; the run trains on", why);
	end_saving(s, &(struct msg_console_answer){ .text = text });
}

/* --- connections ------------------------------------------------------------------------ */

static const struct {
	const char *what;
	void (*handle)(struct supervisor *s, struct console *k, const struct msg_console_ask *m);
} handlers[] = {
	{ "state", on_state },
	{ "ranks", on_ranks },
	{ "stop", on_stop },
	{ "stop-now", on_stop_now },
	{ "checkpoint", on_checkpoint },
	{ "trace", supervise_console_trace_ask },
	{ "logs", supervise_collect_ask },
};

/* A free place, or that of the console that was quiet for the longest time. */
static struct console *find_place(struct supervisor *s)
{
	struct console *best = s->console.consoles;
	for (int i = 0; i < CONSOLES; i++) {
		struct console *k = &s->console.consoles[i];
		if (!k->line)
			return k;
		if (k->heard < best->heard)
			best = k;
	}
	drop(best);
	return best;
}

static void on_hello(struct supervisor *s, struct connection *c, const struct msg *m)
{
	struct msg_console_hello hello;
	struct err e = ERR_INIT;
	if (m->type != MSG_CONSOLE_HELLO || msg_console_hello_read(m->body, &hello, &e)) {
		launcher_connection_drop(c);
		return;
	}
	struct console *k = find_place(s);
	*k = (struct console){ .line = c, .heard = supervise_now(s) };
	snprintf(k->who, sizeof k->who, "%s", hello.who);
	human_plain(k->who);
	launcher_connection_claim(c, (int)(k - s->console.consoles));
	if (hello.version == CONSOLE_VERSION)
		return;
	answer_text(k, false, "the run's muster is of another version; use that one");
	if (k->line == c)
		drop(k);
}

static void on_message(void *arg, struct connection *c, const struct msg *m)
{
	struct supervisor *s = arg;
	struct msg_console_ask ask;
	struct err e = ERR_INIT;
	if (launcher_connection_rank(c) < 0) {
		on_hello(s, c, m);
		return;
	}
	struct console *k = console_of(s, c);
	k->heard = supervise_now(s);
	if (m->type != MSG_CONSOLE_ASK || msg_console_ask_read(m->body, &ask, &e)) {
		drop(k);
		return;
	}
	size_t n = sizeof handlers / sizeof *handlers, i = 0;
	while (i < n && strcmp(handlers[i].what, ask.what))
		i++;
	if (i < n)
		handlers[i].handle(s, k, &ask);
	else
		answer_text(k, false,
			    "the run's muster is another version, which does not know the request");
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	struct supervisor *s = arg;
	(void)why;
	if (rank >= 0)
		s->console.consoles[rank] = (struct console){ .line = NULL };
}

static void on_trouble(void *arg, const struct err *why)
{
	struct supervisor *s = arg;
	supervise_terminal_event(s->o.term, TONE_WARN, "warn", "consoles cannot connect: %s",
				 why->text);
}

static int write_file(struct supervisor *s, const char *address, const unsigned char *secret,
		      struct err *e)
{
	char hex[AUTH_SECRET_HEX];
	struct process_id id;
	process_id_self(&id);
	auth_secret_hex(secret, hex);
	int rc = rundir_control_save(s->o.run,
				     &(struct rundir_control){ .version = RUNDIR_CONTROL_VERSION,
							       .address = address,
							       .secret = hex,
							       .auth = s->auth,
							       .host = s->view.host,
							       .pid = id.pid,
							       .start = id.start,
							       .pid_space = id.pid_space,
							       .boot = id.boot },
				     e);
	explicit_bzero(hex, sizeof hex);
	return rc;
}

/* Listens on the host of the agents' address. */
static int listen_to_consoles(struct supervisor *s, struct err *e)
{
	char host[NET_ADDR_MAX], address[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	struct connections_options co = {
		.loop = s->o.loop,
		.most = STRANGERS_MAX,
		.most_per_address = STRANGERS_MAX,
		.patience = patience_s,
		.voucher = s->munge.work ? &s->munge : NULL,
		.message = on_message,
		.closed = on_closed,
		.trouble = on_trouble,
		.arg = s,
	};
	const char *colon = strrchr(s->o.address, ':');
	snprintf(host, sizeof host, "%.*s",
		 (int)(colon ? colon - s->o.address : (ptrdiff_t)strlen(s->o.address)),
		 s->o.address);
	if (net_listen(host, &co.listener, address, e) ||
	    launcher_connections_open(&co, &s->console.connections, e))
		return -1;
	auth_secret_new(secret);
	launcher_connections_renew(s->console.connections, secret, CONSOLE_GENERATION,
				   supervise_now(s));
	int rc = write_file(s, address, secret, e);
	explicit_bzero(secret, sizeof secret);
	return rc;
}

void supervise_console_open(struct supervisor *s)
{
	struct err e = ERR_INIT;
	rundir_control_remove(s->o.run); /* that of a muster that was killed */
	if (s->o.address && listen_to_consoles(s, &e))
		supervise_terminal_event(
			s->o.term, TONE_WARN, "warn",
			"muster stop, checkpoint and trace --next cannot reach this run: %s",
			e.text);
}

/* The generation that was asked for a checkpoint is over, or the run is. */
static void check_saving(struct supervisor *s)
{
	const struct console_state *t = &s->console;
	if (t->saving && !(can_save(s) && t->generation == s->generation))
		end_saving(s, &(struct msg_console_answer){
				      .text = "the generation ended before the checkpoint was "
					      "committed; ask again when the run trains" });
}

void supervise_console_tick(struct supervisor *s)
{
	if (!s->console.connections)
		return;
	launcher_connections_tick(s->console.connections, supervise_now(s));
	check_saving(s);
	supervise_console_trace_check(s);
	supervise_collect_check(s);
}

void supervise_console_close(struct supervisor *s)
{
	if (!s->console.connections)
		return;
	check_saving(s);
	supervise_console_trace_check(s);
	supervise_collect_check(s);
	rundir_control_remove(s->o.run);
	launcher_connections_close(s->console.connections);
}
