#include "launcher/helper/helper.h"

#include "base/agent_env.h"
#include "base/log.h"
#include "base/munge.h"
#include "base/parts.h"
#include "launcher/helper/line.h"
#include "launcher/helper/node.h"
#include "launcher/take_variable.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Slurm, or a person through Slurm, means the agents. */
static const int forwarded[] = { SIGTERM, SIGINT, SIGUSR1, SIGHUP };
enum { FORWARDED = sizeof forwarded / sizeof *forwarded };

struct helper {
	uv_loop_t loop;
	const char *name; /* of the node */
	uint32_t generation;
	struct voucher munge;
	struct line *line;
	json_t *body; /* of helper_start, which `start` borrows from; NULL: it has not come */
	struct helper_start start;
	struct node *node;  /* NULL: there are no agents */
	bool gone;          /* no agent runs, and none will be started */
	int64_t fence;      /* the next one that this node's ranks enter */
	struct parts parts; /* what all ranks have put before the open fence */
	uv_signal_t signals[FORWARDED];
	struct err failure; /* why the agents could not be started */
};

static void end_agents(struct helper *h)
{
	if (h->node)
		helper_node_kill(h->node); /* all_gone follows */
	else
		h->gone = true;
}

static void fail(struct helper *h, const struct err *why)
{
	h->failure = *why;
	log_error("%s", why->text);
	helper_line_send(h->line, MSG_FAILED,
			 msg_failed_json(&(struct msg_failed){ .code = err_word(why->code),
							       .text = why->text }));
	end_agents(h);
}

static void on_put(void *arg, const struct buf *data)
{
	struct helper *h = arg;
	struct err e = ERR_INIT;
	int parts = parts_count(data->len);
	if (parts < 0) {
		err_set(&e, ERR_UNSUPPORTED,
			"the agents have published %zu bytes, which is too "
			"much",
			data->len);
		fail(h, &e);
	}
	for (int i = 0; i < parts; i++)
		helper_line_send(h->line, MSG_HELPER_PART, parts_json(h->fence, data, i));
	h->fence++;
}

static void on_exited(void *arg, int rank, int status)
{
	struct helper *h = arg;
	helper_line_send(h->line, MSG_HELPER_EXITED,
			 msg_helper_exited_json(
				 &(struct msg_helper_exited){ .rank = rank, .status = status }));
}

static void on_all_gone(void *arg)
{
	struct helper *h = arg;
	h->gone = true;
}

static int start_node(struct helper *h, const struct msg *m, struct err *e)
{
	if (h->body || h->gone)
		return err_set(e, ERR_PROTO, "the message helper_start has come twice or too late");
	h->body = json_incref(m->body);
	if (helper_start_read(h->body, &h->start, e))
		return -1;
	const struct node_options o = {
		.loop = &h->loop,
		.start = &h->start,
		.generation = h->generation,
		.put = on_put,
		.exited = on_exited,
		.all_gone = on_all_gone,
		.arg = h,
	};
	return helper_node_open(&o, &h->node, e);
}

static int take_part(struct helper *h, const struct msg *m, struct err *e)
{
	struct msg_helper_part part;
	if (!h->node)
		return err_set(e, ERR_PROTO, "the message helper_part has come before its time");
	if (msg_helper_part_read(m->body, &part, e))
		return -1;
	int got = parts_add(&h->parts, &part, e);
	if (got < 0)
		return -1;
	helper_line_send(h->line, MSG_HELPER_NEXT,
			 msg_helper_next_json(&(struct msg_helper_next){ .fence = part.fence,
									 .part = part.part }));
	if (got == 1) {
		helper_node_answer(h->node, &h->parts.data);
		parts_renew(&h->parts);
	}
	return 0;
}

static void on_message(void *arg, const struct msg *m)
{
	struct helper *h = arg;
	struct err e = ERR_INIT;
	int rc = 0;
	if (m->type == MSG_HELPER_START)
		rc = start_node(h, m, &e);
	else if (m->type == MSG_HELPER_PART)
		rc = take_part(h, m, &e);
	else if (m->type == MSG_ABORT)
		end_agents(h);
	else
		rc = err_set(&e, ERR_PROTO, "the supervisor sent the message %s to a helper",
			     msg_word(m->type));
	if (rc)
		fail(h, &e);
}

static void on_lost(void *arg, const struct err *why)
{
	struct helper *h = arg;
	if (h->gone)
		return;
	log_warn("%s; the agents of this node are killed", why->text);
	end_agents(h);
}

static void on_signal(uv_signal_t *s, int number)
{
	struct helper *h = s->data;
	if (h->node)
		helper_node_signal(h->node, number);
	else
		end_agents(h); /* it has none: it ends itself */
}

static int watch_signals(struct helper *h, struct err *e)
{
	for (int i = 0; i < FORWARDED; i++) {
		h->signals[i].data = h;
		if (uv_signal_init(&h->loop, &h->signals[i]) ||
		    uv_signal_start(&h->signals[i], on_signal, forwarded[i]))
			return err_set(e, ERR_NOMEM, "cannot watch signals");
	}
	return 0;
}

static int connect_line(struct helper *h, const char *address, const char *secret, bool vouched,
			struct err *e)
{
	const struct line_options o = {
		.loop = &h->loop,
		.address = address,
		.secret = secret,
		.generation = h->generation,
		.voucher = vouched ? &h->munge : NULL,
		.message = on_message,
		.lost = on_lost,
		.arg = h,
	};
	if (helper_line_open(&o, &h->line, e))
		return -1;
	helper_line_send(h->line, MSG_HELPER_HELLO,
			 msg_helper_hello_json(&(struct msg_helper_hello){
				 .node = h->name, .pid = (int)getpid(), .version = MSG_VERSION }));
	return 0;
}

/* Takes what launch_slurm has put into the environment, and connects. */
static int open_line(struct helper *h, struct err *e)
{
	char *address = launcher_take_variable(AGENT_ENV_ADDRESS),
	     *secret = launcher_take_variable(AGENT_ENV_SECRET),
	     *auth = launcher_take_variable(AGENT_ENV_AUTH),
	     *generation = launcher_take_variable(AGENT_ENV_GENERATION);
	int vouched = -1, rc = -1;
	if (!address || !secret || !generation || !h->name)
		err_set(e, ERR_USAGE,
			"muster starts helpers itself, as tasks of a job step; " AGENT_ENV_ADDRESS
			", " AGENT_ENV_SECRET " or SLURMD_NODENAME is not in the environment");
	else
		vouched = munge_parse(auth, &h->munge, e);
	if (vouched >= 0) {
		h->generation = (uint32_t)strtoul(generation, NULL, 10);
		rc = connect_line(h, address, secret, vouched == 1, e);
	}
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(address);
	free(secret);
	free(auth);
	free(generation);
	return rc;
}

/* Runs the loop until the callbacks of all handles that are being closed were called. */
static void close_all(struct helper *h)
{
	helper_node_close(h->node);
	helper_line_close(h->line);
	for (int i = 0; i < FORWARDED; i++)
		if (h->signals[i].loop)
			uv_close((uv_handle_t *)&h->signals[i], NULL);
	uv_run(&h->loop, UV_RUN_DEFAULT);
	uv_loop_close(&h->loop);
	helper_start_fini(&h->start);
	parts_fini(&h->parts);
	json_decref(h->body);
}

int helper_run(struct err *e)
{
	struct helper h = { .name = getenv("SLURMD_NODENAME") };
	log_setup(STDERR_FILENO, LOG_INFO, h.name ? h.name : "helper");
	if (uv_loop_init(&h.loop))
		return err_set(e, ERR_NOMEM, "cannot open the helper's event loop");
	int rc = watch_signals(&h, e) || open_line(&h, e) ? -1 : 0;
	while (!rc && (!h.gone || !helper_line_sent(h.line)))
		uv_run(&h.loop, UV_RUN_ONCE);
	close_all(&h);
	if (!rc && h.failure.code != ERR_NONE)
		rc = err_set(e, h.failure.code, "%s", h.failure.text);
	return rc;
}
