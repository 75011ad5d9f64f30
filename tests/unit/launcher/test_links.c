/* Strangers at the control channel's door: few at a time, and not for long. */
#include "base/net.h"
#include "launcher/supervise/links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST = 2, CROWD = 6 };

static struct {
	uv_loop_t loop;
	struct links *links;
	char address[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	int messages, closed, troubles;
} t;

static void on_message(void *arg, struct link *l, const struct msg *m)
{
	(void)arg;
	assert_int_equal(m->type, MSG_HELLO);
	t.messages++;
	link_claim(l, 0);
	assert_int_equal(link_send(l, MSG_STOP, m->body, NULL), 0);
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

static void turn(void)
{
	for (int i = 0; i < 10; i++)
		uv_run(&t.loop, UV_RUN_NOWAIT);
}

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	char host[NET_ADDR_MAX];
	struct links_options o = { .loop = &t.loop, .most = MOST, .patience = 5, .message = on_message, .closed = on_closed,
				   .trouble = on_trouble };
	if (uv_loop_init(&t.loop) || net_local_address(NULL, NULL, host, NULL) || net_listen(host, &o.listener, t.address, NULL) ||
	    links_open(&o, &t.links, NULL))
		return -1;
	auth_secret_new(t.secret);
	links_renew(t.links, t.secret, 1, 100);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	links_close(t.links);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	return uv_loop_close(&t.loop);
}

/* An agent's side of one connection, up to the answer to its hello. */
static bool greet(int fd)
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
		turn();
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

static void a_crowd_of_strangers_holds_few_descriptors_and_not_for_long(void **state)
{
	(void)state;
	int crowd[CROWD], mine;
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(net_connect(t.address, 5, &crowd[i], NULL), 0);
	turn();
	assert_int_equal(links_strangers(t.links), MOST);
	assert_int_equal(net_connect(t.address, 5, &mine, NULL), 0); /* waits in the kernel's queue */
	for (int round = 1; round <= CROWD / MOST; round++) {
		links_tick(t.links, 100 + 6 * round);
		turn();
		assert_true(links_strangers(t.links) <= MOST);
	}
	assert_int_equal(t.closed, CROWD);
	assert_true(greet(mine));
	assert_int_equal(t.messages, 1);
	assert_int_equal(links_strangers(t.links), 0);
	for (int i = 0; i < CROWD; i++)
		close(crowd[i]);
	close(mine);
}

static void a_claimed_link_may_be_quiet(void **state)
{
	(void)state;
	int fd;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_true(greet(fd));
	links_tick(t.links, 1e6);
	turn();
	assert_int_equal(t.closed, 0);
	close(fd);
	turn();
	assert_int_equal(t.closed, 1);
}

static void a_new_generation_closes_every_door(void **state)
{
	(void)state;
	int fd;
	char byte;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_true(greet(fd));
	auth_secret_new(t.secret);
	links_renew(t.links, t.secret, 2, 200);
	turn();
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	assert_int_equal(t.closed, 0); /* our own doing is not told */
	close(fd);
}

static void without_descriptors_it_says_so_once_and_tries_again(void **state)
{
	(void)state;
	struct rlimit was, none;
	int fd;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 1;
	assert_int_equal(net_connect(t.address, 5, &fd, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	turn();
	assert_int_equal(t.troubles, 1);
	assert_false(uv_loop_alive(&t.loop)); /* it rests */
	links_tick(t.links, 101);
	turn();
	assert_int_equal(t.troubles, 1);
	links_renew(t.links, t.secret, 1, 101);
	links_tick(t.links, 102);
	turn();
	assert_int_equal(t.troubles, 2);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	links_tick(t.links, 103);
	assert_true(greet(fd));
	close(fd);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_crowd_of_strangers_holds_few_descriptors_and_not_for_long),
		T(a_claimed_link_may_be_quiet),
		T(without_descriptors_it_says_so_once_and_tries_again),
		T(a_new_generation_closes_every_door),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
