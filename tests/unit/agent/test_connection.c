/* Tests an agent that must verify the supervisor's credential, with its own munged. */
#include "agent/connection.h"
#include "base/auth.h"
#include "base/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static struct {
	int listener, fd;
	char address[NET_ADDR_MAX], hex[AUTH_SECRET_HEX];
	struct connection *connection;
	struct channel *channel; /* the supervisor's end */
	bool mute;
} t;

/* The agent's munged. A credential is valid if it contains "supervisor". */
static int munged(const struct voucher *by, struct vouch *v, struct err *e)
{
	(void)by;
	if (t.mute)
		return err_set(e, ERR_AUTH, "munged does not answer on this node; start it");
	if (v->theirs && strcmp(v->theirs, "supervisor"))
		return err_set(e, ERR_AUTH, "the peer runs as another user");
	if (v->make)
		v->ours = strdup("agent");
	return 0;
}

static const struct voucher voucher = { .work = munged };

static int setup(void **state)
{
	(void)state;
	unsigned char secret[AUTH_SECRET_BYTES];
	memset(&t, 0, sizeof t);
	auth_secret_new(secret);
	auth_secret_hex(secret, t.hex);
	if (net_listen("127.0.0.1", &t.listener, t.address, NULL))
		return -1;
	struct control_options opt = { .address = t.address,
				       .secret = t.hex,
				       .generation = 1,
				       .world = 1,
				       .node = "n1",
				       .voucher = &voucher };
	if (agent_connection_open(&opt, &t.connection, NULL))
		return -1;
	struct pollfd p = { t.listener, POLLIN, 0 };
	if (poll(&p, 1, -1) != 1 || net_accept(t.listener, &t.fd, NULL))
		return -1;
	return channel_open(AUTH_SUPERVISOR, secret, 1, &t.channel, NULL);
}

static int teardown(void **state)
{
	(void)state;
	agent_connection_close(t.connection);
	channel_close(t.channel);
	close(t.fd);
	close(t.listener);
	return 0;
}

/* The supervisor's turn: it reads, shows `credential` when it is asked for one, and writes. */
static void answer(const char *credential)
{
	char chunk[4096];
	struct vouch v;
	ssize_t n = recv(t.fd, chunk, sizeof chunk, MSG_DONTWAIT);
	if (n > 0)
		assert_int_equal(channel_feed(t.channel, chunk, (size_t)n, NULL), 0);
	if (channel_wants(t.channel, &v)) {
		assert_string_equal(v.theirs, "agent");
		v.ours = strdup(credential);
		assert_int_equal(channel_vouched(t.channel, &v, NULL, NULL), 0);
		vouch_fini(&v);
	}
	struct buf *out = channel_out(t.channel);
	if (out->len && send(t.fd, out->data, out->len, MSG_NOSIGNAL) > 0)
		buf_clear(out);
}

/* Takes turns until the supervisor receives hello (returns 0) or the agent refuses (returns -1). */
static int meet(const char *credential, struct err *e)
{
	struct msg m;
	for (;;) {
		int rc = agent_connection_receive(t.connection, &m, e);
		assert_int_not_equal(rc, 1);
		if (rc < 0)
			return -1;
		answer(credential);
		if (channel_next(t.channel, &m, NULL) == 1) {
			assert_int_equal(m.type, MSG_HELLO);
			msg_fini(&m);
			return 0;
		}
	}
}

static void the_supervisors_user_is_proven(void **state)
{
	(void)state;
	channel_require_vouch(t.channel);
	assert_int_equal(meet("supervisor", NULL), 0);
}

static void another_users_supervisor_hears_nothing(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	channel_require_vouch(t.channel);
	assert_int_equal(meet("impostor", &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_string_equal(e.text, "control channel: the peer runs as another user");
	assert_int_equal(agent_connection_backlog(t.connection), 0);
}

static void without_munged_the_agent_says_so(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	channel_require_vouch(t.channel);
	t.mute = true;
	assert_int_equal(meet("supervisor", &e), -1);
	assert_string_equal(e.text,
			    "control channel: munged does not answer on this node; start it");
}

/* More than the kernel holds of one connection. */
static void send_much(void)
{
	enum { ONE = 512 << 10, ALL = 64 };
	char *text = malloc(ONE + 1);
	memset(text, 'x', ONE);
	text[ONE] = '\0';
	json_t *body = msg_log_json(&(struct msg_log){ .level = "warn", .text = text });
	assert_non_null(body);
	for (int i = 0; i < ALL; i++)
		assert_int_equal(agent_connection_send(t.connection, MSG_LOG, body, NULL), 0);
	json_decref(body);
	free(text);
}

static void exchange(void)
{
	struct msg m;
	assert_int_equal(agent_connection_receive(t.connection, &m, NULL), 0);
}

/* The supervisor's host takes what has been sent. */
static void take_all(void)
{
	char chunk[1 << 16];
	while (agent_connection_backlog(t.connection)) {
		exchange();
		while (recv(t.fd, chunk, sizeof chunk, MSG_DONTWAIT) > 0)
			continue;
	}
}

static void only_what_is_acknowledged_was_heard(void **state)
{
	(void)state;
	channel_require_vouch(t.channel);
	assert_int_equal(meet("supervisor", NULL), 0);
	double before = clock_s();
	send_much();
	for (int i = 0; i < 5; i++)
		exchange();
	assert_true(agent_connection_backlog(t.connection) > 0);
	double heard = agent_connection_heard(t.connection);
	assert_true(heard > 0 && heard < before);
	take_all();
	while (agent_connection_heard(t.connection) < before)
		exchange();
	assert_true(agent_connection_heard(t.connection) <= clock_s());
}

/* Its kernel may still acknowledge what is sent, but nobody reads it. */
static void a_supervisor_that_has_closed_hears_nothing(void **state)
{
	(void)state;
	struct msg m;
	channel_require_vouch(t.channel);
	assert_int_equal(meet("supervisor", NULL), 0);
	double before = clock_s();
	send_much();
	exchange();
	shutdown(t.fd, SHUT_WR);
	while (agent_connection_receive(t.connection, &m, NULL) == 0)
		continue;
	char chunk[1 << 16];
	while (recv(t.fd, chunk, sizeof chunk, MSG_DONTWAIT) > 0)
		continue;
	assert_int_equal(agent_connection_receive(t.connection, &m, NULL), -1);
	assert_true(agent_connection_heard(t.connection) < before);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_supervisors_user_is_proven),
		T(another_users_supervisor_hears_nothing),
		T(without_munged_the_agent_says_so),
		T(only_what_is_acknowledged_was_heard),
		T(a_supervisor_that_has_closed_hears_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
