/* Strangers at the control channel: only a few are accepted at a time, each for a short time, and
 * they keep no agent out. */
#include "base/net.h"
#include "launcher/connections.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST = 4, FROM_ONE_ADDRESS = 2, CROWD = 200, NOBODY = 65534 };

static struct {
	uv_loop_t loop;
	struct connections *links;
	char address[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	int messages, closed, troubles;
} t;

static void on_message(void *arg, struct connection *l, const struct msg *m)
{
	(void)arg;
	assert_int_equal(m->type, MSG_HELLO);
	t.messages++;
	launcher_connection_claim(l, 0);
	assert_int_equal(launcher_connection_send(l, MSG_STOP, m->body, NULL), 0);
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	(void)arg;
	(void)rank;
	assert_true(why->text[0]);
	t.closed++;
}

static void on_trouble(void *arg, const struct err *why)
{
	(void)arg;
	assert_int_equal(why->code, ERR_NOMEM);
	assert_non_null(strstr(why->text, "ulimit -n"));
	t.troubles++;
}

static void run_loop_once(void)
{
	for (int i = 0; i < 10; i++)
		uv_run(&t.loop, UV_RUN_NOWAIT);
}

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	char host[NET_ADDR_MAX];
	struct connections_options o = { .loop = &t.loop,
					 .most = MOST,
					 .most_per_address = FROM_ONE_ADDRESS,
					 .patience = 5,
					 .message = on_message,
					 .closed = on_closed,
					 .trouble = on_trouble };
	if (uv_loop_init(&t.loop) || net_local_address(NULL, NULL, host, NULL) ||
	    net_listen(host, &o.listener, t.address, NULL) ||
	    launcher_connections_open(&o, &t.links, NULL))
		return -1;
	auth_secret_new(t.secret);
	launcher_connections_renew(t.links, t.secret, 1, 100);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	launcher_connections_close(t.links);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	return uv_loop_close(&t.loop);
}

/* An agent's side of one connection, up to the answer to its hello. */
static bool send_greeting(int fd)
{
	struct channel *c;
	struct msg m;
	char chunk[4096];
	bool answered = false;
	json_t *body = json_pack("{s:i}", "rank", 0);
	assert_int_equal(channel_open(AUTH_AGENT, t.secret, 1, &c, NULL), 0);
	assert_int_equal(channel_send(c, MSG_HELLO, body, NULL), 0);
	for (int i = 0; i < 50 && !answered; i++) {
		struct buf *out = channel_out(c);
		if (out->len) {
			assert_int_equal(write(fd, out->data, out->len), (ssize_t)out->len);
			buf_clear(out);
		}
		run_loop_once();
		ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
		if (n > 0)
			assert_int_equal(channel_feed(c, chunk, (size_t)n, NULL), 0);
		while (channel_next(c, &m, NULL) == 1) {
			answered = true;
			msg_fini(&m);
		}
	}
	json_decref(body);
	channel_close(c);
	return answered;
}

/* A connection whose own end has the address `from` of this host. */
static int connect_from(const char *from)
{
	struct sockaddr_in here = { .sin_family = AF_INET }, there = { .sin_family = AF_INET };
	char host[NET_ADDR_MAX];
	snprintf(host, sizeof host, "%s", t.address);
	char *port = strrchr(host, ':');
	*port++ = '\0';
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(inet_pton(AF_INET, from, &here.sin_addr), 1);
	assert_int_equal(inet_pton(AF_INET, host, &there.sin_addr), 1);
	there.sin_port = htons((uint16_t)atoi(port));
	assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
	return fd;
}

static bool closed_by_peer(int fd)
{
	char byte;
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

static void many_silent_strangers_do_not_keep_an_agent_out(void **state)
{
	(void)state;
	int crowd[CROWD], mine, closed = 0;
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(net_connect(t.address, 5, &crowd[i], NULL), 0);
	assert_int_equal(net_connect(t.address, 5, &mine, NULL), 0); /* after all of them */
	/* at once: no tick passes and nothing has to time out */
	assert_true(send_greeting(mine));
	assert_int_equal(t.messages, 1);
	assert_int_equal(launcher_connections_strangers(t.links), FROM_ONE_ADDRESS - 1);
	for (int i = 0; i < CROWD; i++) {
		closed += closed_by_peer(crowd[i]);
		close(crowd[i]);
	}
	assert_int_equal(closed, CROWD - (FROM_ONE_ADDRESS - 1));
	close(mine);
}

static void a_silent_stranger_is_closed_after_the_time_limit(void **state)
{
	(void)state;
	int fd;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	run_loop_once();
	assert_int_equal(launcher_connections_strangers(t.links), 1);
	launcher_connections_tick(t.links, 104);
	assert_int_equal(launcher_connections_strangers(t.links), 1);
	launcher_connections_tick(t.links, 106);
	run_loop_once();
	assert_int_equal(launcher_connections_strangers(t.links), 0);
	assert_int_equal(t.closed, 1);
	assert_true(closed_by_peer(fd));
	close(fd);
}

static void strangers_of_one_address_replace_only_each_other(void **state)
{
	(void)state;
	int here = connect_from("127.0.0.1"), crowd[CROWD];
	for (int i = 0; i < CROWD; i++)
		crowd[i] = connect_from("127.0.0.2");
	for (int i = 0; i < CROWD; i++)
		run_loop_once();
	assert_int_equal(launcher_connections_strangers(t.links), 1 + FROM_ONE_ADDRESS);
	assert_false(closed_by_peer(here));
	assert_true(send_greeting(here));
	for (int i = 0; i < CROWD; i++)
		close(crowd[i]);
	close(here);
}

static void the_total_limit_holds_for_many_addresses(void **state)
{
	(void)state;
	int crowd[4 * MOST];
	char from[INET_ADDRSTRLEN];
	for (int i = 0; i < 4 * MOST; i++) {
		snprintf(from, sizeof from, "127.0.0.%d", 10 + i);
		crowd[i] = connect_from(from);
	}
	run_loop_once();
	assert_int_equal(launcher_connections_strangers(t.links), MOST);
	for (int i = 0; i < 4 * MOST; i++)
		close(crowd[i]);
}

/* They prove the secret, so the limits of silent strangers are not theirs. */
static void repeated_first_packets_have_a_limit_of_their_own(void **state)
{
	enum { PACKETS = 2 * MOST + 3 };
	(void)state;
	struct channel *c;
	int fds[PACKETS];
	assert_int_equal(channel_open(AUTH_AGENT, t.secret, 1, &c, NULL), 0);
	struct buf *out = channel_out(c);
	for (int i = 0; i < PACKETS; i++) {
		assert_int_equal(net_connect(t.address, 5, &fds[i], NULL), 0);
		assert_int_equal(write(fds[i], out->data, out->len), (ssize_t)out->len);
		run_loop_once();
		assert_int_equal(launcher_connections_strangers(t.links),
				 i < 2 * MOST ? i + 1 : 2 * MOST);
	}
	assert_int_equal(t.closed, PACKETS - 2 * MOST);
	for (int i = 0; i < PACKETS; i++) { /* the oldest ones are closed */
		char answer[256];
		while (recv(fds[i], answer, sizeof answer, MSG_DONTWAIT) > 0)
			;
		assert_int_equal(closed_by_peer(fds[i]), i < PACKETS - 2 * MOST);
		close(fds[i]);
	}
	channel_close(c);
}

static void a_first_packet_without_the_secret_ends_the_connection(void **state)
{
	(void)state;
	struct channel *c;
	unsigned char wrong[AUTH_SECRET_BYTES];
	int fd;
	auth_secret_new(wrong);
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_int_equal(channel_open(AUTH_AGENT, wrong, 1, &c, NULL), 0);
	struct buf *out = channel_out(c);
	assert_int_equal(write(fd, out->data, out->len), (ssize_t)out->len);
	run_loop_once();
	run_loop_once();
	assert_int_equal(t.closed, 1);
	assert_int_equal(launcher_connections_strangers(t.links), 0);
	assert_true(closed_by_peer(fd)); /* and nothing was sent to it */
	channel_close(c);
	close(fd);
}

/* Connects as another user. Returns 0 if the connection was closed without an answer. */
static int visit_as_nobody(void)
{
	char byte;
	int fd;
	if (setresuid(NOBODY, NOBODY, NOBODY) || net_connect(t.address, 5, &fd, NULL))
		return 1;
	ssize_t n = recv(fd, &byte, 1, 0);
	return n == 0 || (n < 0 && errno == ECONNRESET) ? 0 : 2;
}

static void another_user_of_this_host_is_refused(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip(); /* only root can become another user */
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(visit_as_nobody());
	while (waitpid(pid, &status, WNOHANG) == 0) {
		run_loop_once();
		assert_int_equal(launcher_connections_strangers(t.links), 0);
	}
	assert_int_equal(status, 0);
	assert_int_equal(t.closed, 0);
}

static void a_claimed_connection_may_be_silent(void **state)
{
	(void)state;
	int fd;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_true(send_greeting(fd));
	launcher_connections_tick(t.links, 1e6);
	run_loop_once();
	assert_int_equal(t.closed, 0);
	close(fd);
	run_loop_once();
	assert_int_equal(t.closed, 1);
}

static void a_new_generation_closes_every_connection(void **state)
{
	(void)state;
	int fd;
	char byte;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_true(send_greeting(fd));
	auth_secret_new(t.secret);
	launcher_connections_renew(t.links, t.secret, 2, 200);
	run_loop_once();
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	assert_int_equal(t.closed, 0); /* our own closing is not reported */
	close(fd);
}

static void missing_descriptors_are_reported_once_and_accept_is_retried(void **state)
{
	(void)state;
	struct rlimit was, none;
	int fd;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 1;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	run_loop_once();
	assert_int_equal(t.troubles, 1);
	assert_false(uv_loop_alive(&t.loop)); /* nothing is left to do */
	launcher_connections_tick(t.links, 101);
	run_loop_once();
	assert_int_equal(t.troubles, 1);
	launcher_connections_renew(t.links, t.secret, 1, 101);
	launcher_connections_tick(t.links, 102);
	run_loop_once();
	assert_int_equal(t.troubles, 2);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	launcher_connections_tick(t.links, 103);
	assert_true(send_greeting(fd));
	close(fd);
}

/* --- Without a socket ------------------------------------------------------------------------- */

struct carrier {
	int sent, closed;
	uint32_t generation; /* of the last message */
};

static void on_carried(void *arg, uint32_t generation, enum msg_type type, json_t *body)
{
	struct carrier *to = arg;
	assert_int_equal(type, MSG_STOP);
	assert_non_null(body);
	to->sent++;
	to->generation = generation;
}

static void on_dropped(void *arg)
{
	((struct carrier *)arg)->closed++;
}

static struct connection *attach(struct carrier *to, const unsigned char *secret, struct err *e)
{
	const struct connection_carrier by = { .sent = on_carried,
					       .closed = on_dropped,
					       .arg = to };
	struct connection *c = NULL;
	return launcher_connections_attach(t.links, &by, secret, &c, e) ? NULL : c;
}

static void deliver_hello(struct connection *c, uint32_t generation)
{
	struct msg m = { .type = MSG_HELLO, .generation = generation, .body = json_object() };
	launcher_connection_deliver(c, &m);
	msg_fini(&m);
}

static void an_attached_connection_carries_messages_of_its_generation_only(void **state)
{
	(void)state;
	struct carrier to = { 0 };
	struct connection *c = attach(&to, t.secret, NULL);
	assert_non_null(c);
	assert_int_equal(launcher_connections_strangers(t.links), 1);
	deliver_hello(c, 2);
	assert_int_equal(t.messages, 0);
	deliver_hello(c, 1);
	assert_int_equal(t.messages, 1);
	assert_int_equal(to.sent, 1);
	assert_int_equal(to.generation, 1);
	assert_int_equal(launcher_connections_strangers(t.links), 0);
	launcher_connection_advance(c, 2);
	launcher_connections_renew(t.links, t.secret, 2, 100);
	deliver_hello(c, 2); /* it lives on */
	assert_int_equal(to.generation, 2);
	launcher_connections_renew(t.links, t.secret, 3, 100);
	assert_int_equal(to.closed, 1);
	assert_int_equal(t.closed, 0); /* it was dropped from this side */
	deliver_hello(c, 2);
	assert_int_equal(t.messages, 2);
}

static void an_attached_connection_is_refused_with_another_secret_and_lost_once(void **state)
{
	(void)state;
	struct carrier to = { 0 };
	struct err e = ERR_INIT;
	unsigned char other[AUTH_SECRET_BYTES] = { 0 };
	assert_null(attach(&to, other, &e));
	assert_int_equal(e.code, ERR_AUTH);
	assert_int_equal(to.closed, 1);
	assert_int_equal(launcher_connections_strangers(t.links), 0);
	struct connection *c = attach(&to, t.secret, NULL);
	err_set(&e, ERR_NET, "connection closed");
	launcher_connection_lose(c, &e);
	launcher_connection_lose(c, &e);
	assert_int_equal(t.closed, 1);
	assert_int_equal(to.closed, 2);
	assert_int_equal(launcher_connection_send(c, MSG_STOP, NULL, NULL), -1);
	launcher_connections_tick(t.links, 101); /* frees it */
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_attached_connection_carries_messages_of_its_generation_only),
		T(an_attached_connection_is_refused_with_another_secret_and_lost_once),
		T(many_silent_strangers_do_not_keep_an_agent_out),
		T(a_silent_stranger_is_closed_after_the_time_limit),
		T(strangers_of_one_address_replace_only_each_other),
		T(repeated_first_packets_have_a_limit_of_their_own),
		T(the_total_limit_holds_for_many_addresses),
		T(a_first_packet_without_the_secret_ends_the_connection),
		T(another_user_of_this_host_is_refused),
		T(a_claimed_connection_may_be_silent),
		T(missing_descriptors_are_reported_once_and_accept_is_retried),
		T(a_new_generation_closes_every_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
