/* control_play — an agent in a process of its own, and the supervisor that a test plays for its end
 * of the control channel. */
#ifndef MUSTER_TESTS_UNIT_AGENT_CONTROL_PLAY_H
#define MUSTER_TESTS_UNIT_AGENT_CONTROL_PLAY_H

#include "agent/control.h"
#include "base/auth.h"
#include "base/net.h"
#include "tests/unit/patience.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { GENERATION = 3 };

/* An agent's scenario returns this if everything was correct. */
enum { AS_IT_MUST = 42 };

struct stage { /* what both sides know */
	char address[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	char hex[AUTH_SECRET_HEX];
	int listener;
	int told[2]; /* a pipe to which the agent's on_abort writes the reason */
};

struct supervisor {
	struct stage s;
	pid_t agent;
	int fd;
	struct channel *channel;
};

typedef int scenario(struct stage *s, struct control *c, const struct msg_welcome *welcome);

static inline int open_control(const struct stage *s, struct control **c,
			       const struct msg_welcome **welcome, struct err *e)
{
	struct control_options opt = {
		.address = s->address,
		.secret = s->hex,
		.generation = GENERATION,
		.rank = 5,
		.world = 8,
		.node = "n1",
	};
	return agent_control_open(&opt, c, welcome, e);
}

static inline int agent_main(struct stage *s, scenario *play)
{
	struct control *c;
	const struct msg_welcome *welcome;
	struct err e = ERR_INIT;
	agent_control_block_signals();
	if (open_control(s, &c, &welcome, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	/* When the supervisor hangs up, an agent ends by itself, however late it gets a core. A
	 * test of a stuck agent sets a shorter time. */
	agent_control_allow_to_leave(c, PATIENT_WAIT_S);
	int rc = play(s, c, welcome);
	agent_control_close(c);
	return rc;
}

static inline void start_agent(struct supervisor *v, int (*agent)(struct stage *, scenario *),
			       scenario *play)
{
	memset(v, 0, sizeof *v);
	auth_secret_new(v->s.secret);
	auth_secret_hex(v->s.secret, v->s.hex);
	assert_int_equal(net_listen("127.0.0.1", &v->s.listener, v->s.address, NULL), 0);
	assert_int_equal(pipe(v->s.told), 0);
	v->agent = fork();
	assert_true(v->agent >= 0);
	if (!v->agent) {
		close(v->s.told[0]);
		_exit(agent(&v->s, play));
	}
	close(v->s.told[1]);
	struct pollfd p = { v->s.listener, POLLIN, 0 };
	assert_int_equal(poll(&p, 1, -1), 1);
	assert_int_equal(net_accept(v->s.listener, &v->fd, NULL), 0);
	assert_int_equal(channel_open(AUTH_SUPERVISOR, v->s.secret, GENERATION, &v->channel, NULL),
			 0);
}

static inline void flush(struct supervisor *v)
{
	struct buf *b = channel_out(v->channel);
	while (b->len) {
		ssize_t n = send(v->fd, b->data, b->len, MSG_NOSIGNAL);
		assert_true(n > 0);
		buf_drop(b, (size_t)n);
	}
}

/* Receives the next message. Returns 0 if the agent has closed the connection, otherwise 1. */
static inline int receive_message(struct supervisor *v, struct msg *m)
{
	char data[4096];
	for (;;) {
		int rc = channel_next(v->channel, m, NULL);
		assert_true(rc >= 0);
		if (rc)
			return 1;
		ssize_t n = recv(v->fd, data, sizeof data, 0);
		if (n <= 0)
			return 0;
		assert_int_equal(channel_feed(v->channel, data, (size_t)n, NULL), 0);
		flush(v);
	}
}

/* Skips heartbeats. */
static inline struct msg expect(struct supervisor *v, enum msg_type type)
{
	struct msg m;
	assert_int_equal(receive_message(v, &m), 1);
	while (m.type == MSG_PROGRESS && type != MSG_PROGRESS) {
		msg_fini(&m);
		assert_int_equal(receive_message(v, &m), 1);
	}
	assert_string_equal(msg_word(m.type), msg_word(type));
	return m;
}

static inline void send_message(struct supervisor *v, enum msg_type type, json_t *body)
{
	assert_int_equal(channel_send(v->channel, type, body, NULL), 0);
	json_decref(body);
	flush(v);
}

static inline json_t *welcome_json(uint32_t generation, int rank, int world, double heartbeat_s)
{
	struct msg_welcome w = { .generation = generation,
				 .rank = rank,
				 .world = world,
				 .job = "",
				 .run = "",
				 .resume = "none",
				 .coords = json_object(),
				 .node = "n1",
				 .heartbeat_s = heartbeat_s,
				 .silent_s = 15,
				 .group_secret = "",
				 .bus = "",
				 .cpus = "" };
	json_t *body = msg_welcome_json(&w);
	json_decref(w.coords);
	return body;
}

static inline void let_in_with(struct supervisor *v, double heartbeat_s)
{
	struct msg hello = expect(v, MSG_HELLO);
	assert_int_equal(json_integer_value(json_object_get(hello.body, "rank")), 5);
	assert_int_equal(json_integer_value(json_object_get(hello.body, "world")), 8);
	assert_string_equal(json_string_value(json_object_get(hello.body, "node")), "n1");
	assert_int_equal(json_integer_value(json_object_get(hello.body, "pid")), v->agent);
	assert_true(json_string_length(json_object_get(hello.body, "cpus")) > 0);
	msg_fini(&hello);
	send_message(v, MSG_WELCOME, welcome_json(GENERATION, 5, 8, heartbeat_s));
}

static inline void let_in(struct supervisor *v)
{
	let_in_with(v, 0.02);
}

static inline int status_of(struct supervisor *v)
{
	int status;
	assert_int_equal(waitpid(v->agent, &status, 0), v->agent);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static inline void hang_up(struct supervisor *v)
{
	close(v->fd);
	v->fd = -1;
}

static inline void end_agent(struct supervisor *v)
{
	if (v->fd >= 0)
		close(v->fd);
	close(v->s.listener);
	close(v->s.told[0]);
	channel_close(v->channel);
}

/* Returns the reason passed to on_abort, or "" if it was not called before the agent's end. */
static inline const char *reason_told(struct supervisor *v)
{
	static char reason[400];
	size_t have = 0;
	ssize_t n;
	while ((n = read(v->s.told[0], reason + have, sizeof reason - 1 - have)) > 0)
		have += (size_t)n;
	reason[have] = '\0';
	return reason;
}

static inline void pass_on(const char *reason, void *arg)
{
	struct stage *s = arg;
	if (write(s->told[1], reason, strlen(reason)) < 0)
		abort();
}

static inline void __attribute__((noreturn)) stay(void)
{
	for (;;)
		pause();
}

#endif
