/* Agents that must show a credential. A thread asks munged; the tests can hold it back. */
#include "base/net.h"
#include "launcher/connections.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static struct {
	uv_loop_t loop;
	struct connections *links;
	unsigned char secret[AUTH_SECRET_BYTES];
	sem_t asked, answer;
	bool refuse;
	int messages, closed;
	struct err why;
} t;

/* munged: it answers when the test lets it. A credential is good if its text is so. */
static int fake_munge(const struct voucher *by, struct vouch *v, struct err *e)
{
	(void)by;
	sem_post(&t.asked);
	while (sem_wait(&t.answer))
		;
	if (t.refuse || strcmp(v->theirs, "agent"))
		return err_set(e, ERR_AUTH, "the peer runs as another user");
	v->ours = strdup("supervisor");
	return 0;
}

static const struct voucher voucher = { .work = fake_munge };

static void on_message(void *arg, struct connection *l, const struct msg *m)
{
	(void)arg;
	assert_int_equal(m->type, MSG_HELLO);
	t.messages++;
	launcher_connection_claim(l, 0);
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	(void)arg;
	assert_int_equal(rank, -1);
	t.closed++;
	t.why = *why;
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
	struct connections_options o = { .loop = &t.loop,
					 .listener = -1,
					 .most = 8,
					 .most_per_address = 8,
					 .patience = 5,
					 .voucher = &voucher,
					 .message = on_message,
					 .closed = on_closed };
	if (uv_loop_init(&t.loop) || sem_init(&t.asked, 0, 0) || sem_init(&t.answer, 0, 0) ||
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

struct agent {
	int fd;
	struct channel *channel;
};

static struct agent agent_open(bool vouched)
{
	struct agent a;
	int fds[2];
	json_t *body = json_pack("{s:i}", "rank", 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	a.fd = fds[0];
	assert_int_equal(channel_open(AUTH_AGENT, t.secret, 1, &a.channel, NULL), 0);
	if (vouched)
		channel_require_vouch(a.channel);
	assert_int_equal(channel_send(a.channel, MSG_HELLO, body, NULL), 0);
	json_decref(body);
	assert_int_equal(launcher_connections_adopt(t.links, fds[1], NULL), 0);
	return a;
}

static void agent_close(struct agent *a)
{
	channel_close(a->channel);
	close(a->fd);
}

/* Delivers what is on its way in both directions. The agent shows its credential on request. */
static void exchange_all(struct agent *a)
{
	char chunk[4096];
	ssize_t n;
	struct vouch v;
	for (int i = 0; i < 5; i++) {
		struct buf *out = channel_out(a->channel);
		if (out->len && send(a->fd, out->data, out->len, MSG_NOSIGNAL) > 0)
			buf_clear(out);
		run_loop_once();
		while ((n = recv(a->fd, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
			assert_int_equal(channel_feed(a->channel, chunk, (size_t)n, NULL), 0);
		if (channel_wants(a->channel, &v)) {
			v.ours = v.make ? strdup("agent") : NULL;
			assert_int_equal(channel_vouched(a->channel, &v, NULL, NULL), 0);
			vouch_fini(&v);
		}
	}
}

static void let_answer(void)
{
	int before = t.messages + t.closed;
	sem_post(&t.answer);
	while (t.messages + t.closed == before)
		uv_run(&t.loop, UV_RUN_ONCE);
}

static void messages_are_delivered_after_munged_has_answered(void **state)
{
	(void)state;
	struct agent a = agent_open(true);
	exchange_all(&a);
	sem_wait(&t.asked);
	exchange_all(&a);
	assert_false(channel_ready(a.channel));
	/* The loop continues meanwhile, and the agent does not time out because munged is slow. */
	launcher_connections_tick(t.links, 1e6);
	run_loop_once();
	assert_int_equal(t.closed, 0);
	sem_post(&t.answer);
	while (!t.messages) {
		uv_run(&t.loop, UV_RUN_ONCE);
		exchange_all(&a);
	}
	assert_true(channel_ready(a.channel));
	agent_close(&a);
}

static void a_connection_that_munged_rejects_is_closed(void **state)
{
	(void)state;
	struct agent a = agent_open(true);
	t.refuse = true;
	exchange_all(&a);
	sem_wait(&t.asked);
	let_answer();
	assert_int_equal(t.closed, 1);
	assert_string_equal(t.why.text, "control channel: the peer runs as another user");
	assert_int_equal(t.messages, 0);
	agent_close(&a);
}

static void a_connection_with_the_secret_alone_is_closed(void **state)
{
	(void)state;
	struct agent a = agent_open(false);
	exchange_all(&a);
	assert_int_equal(t.closed, 1);
	assert_non_null(strstr(t.why.text, "requires the secret and a MUNGE credential"));
	assert_int_equal(t.messages, 0);
	agent_close(&a);
}

/* There are more agents than the loop has threads: some wait while munged is asked about one. */
static void a_generation_may_end_while_munged_works(void **state)
{
	(void)state;
	enum { MANY = 8 };
	struct agent agents[MANY];
	for (int i = 0; i < MANY; i++) {
		agents[i] = agent_open(true);
		exchange_all(&agents[i]);
	}
	sem_wait(&t.asked);
	launcher_connections_renew(t.links, t.secret, 2, 200);
	assert_int_equal(launcher_connections_strangers(t.links), 0);
	run_loop_once();
	for (int i = 0; i < MANY; i++) {
		sem_post(&t.answer);
		agent_close(&agents[i]);
	}
	/* Every link is released before the loop can end (teardown), and none is reported. */
	launcher_connections_close(t.links);
	t.links = NULL;
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.messages + t.closed, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(messages_are_delivered_after_munged_has_answered),
		T(a_connection_that_munged_rejects_is_closed),
		T(a_connection_with_the_secret_alone_is_closed),
		T(a_generation_may_end_while_munged_works),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
