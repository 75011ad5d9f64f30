/* Tests the contract of base/net.h: addresses and sockets. */
#include "base/net.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void local_address_of_nothing_is_loopback(void **state)
{
	(void)state;
	char a[NET_ADDR_MAX];
	struct err e = ERR_INIT;
	assert_int_equal(net_local_address(NULL, NULL, a, &e), 0);
	assert_string_equal(a, "127.0.0.1");
	assert_int_equal(net_local_address("", "127.0.0.3", a, &e), 0);
	assert_string_equal(a, "127.0.0.3");
	assert_int_equal(net_local_address("lo", "192.0.2.1", a, &e), 0);
	assert_string_equal(a, "127.0.0.1");
	assert_int_equal(net_local_address("", "::1", a, &e), 0);
	assert_string_equal(a, "[::1]");
}

static void unknown_interface_is_named(void **state)
{
	(void)state;
	char a[NET_ADDR_MAX] = "kept";
	struct err e = ERR_INIT;
	assert_int_equal(net_local_address("nope7", NULL, a, &e), -1);
	assert_int_equal(e.code, ERR_NET);
	assert_non_null(strstr(e.text, "nope7"));
	assert_string_equal(a, "kept");
}

static void greet(const char *address)
{
	struct err e = ERR_INIT;
	int listener, here = -1, there = -1;
	char bound[NET_ADDR_MAX];
	assert_int_equal(net_listen(address, &listener, bound, &e), 0);
	assert_int_equal(strncmp(bound, address, strlen(address)), 0);
	assert_int_equal(net_accept(listener, &there, &e), 0);
	assert_int_equal(there, -1);
	assert_int_equal(net_connect(bound, 5, &here, &e), 0);
	struct pollfd p = { .fd = listener, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(net_accept(listener, &there, &e), 0);
	assert_true(there >= 0);
	assert_true(fcntl(here, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(there, F_GETFD) & FD_CLOEXEC);
	assert_false(fcntl(here, F_GETFL) & O_NONBLOCK);
	assert_false(fcntl(there, F_GETFL) & O_NONBLOCK);
	char word[6];
	assert_int_equal(file_write_full(here, "hello", 6), 0);
	assert_int_equal(file_read_full(there, word, 6), 0);
	assert_string_equal(word, "hello");
	close(here);
	close(there);
	close(listener);
}

static void listen_connect_accept_v4(void **state)
{
	(void)state;
	greet("127.0.0.1");
}

static void listen_connect_accept_v6(void **state)
{
	(void)state;
	int listener;
	char bound[NET_ADDR_MAX];
	if (net_listen("[::1]", &listener, bound, NULL) < 0)
		skip(); /* this machine has no IPv6 */
	close(listener);
	greet("[::1]");
}

/* On many machines localhost is ::1 first, and nobody listens there. */
static void every_address_of_a_name_is_tried(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	int listener, fd;
	char bound[NET_ADDR_MAX], named[NET_ADDR_MAX + 16];
	struct addrinfo *found;
	if (getaddrinfo("localhost", NULL, NULL, &found))
		skip(); /* no such name: no /etc/hosts */
	freeaddrinfo(found);
	assert_int_equal(net_listen("127.0.0.1", &listener, bound, &e), 0);
	snprintf(named, sizeof named, "localhost%s", strchr(bound, ':'));
	assert_int_equal(net_connect(named, 5, &fd, &e), 0);
	close(fd);
	close(listener);
}

static void guarded_connection_is_asked_for_life(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	int listener, fd, value;
	char bound[NET_ADDR_MAX];
	assert_int_equal(net_listen("127.0.0.1", &listener, bound, &e), 0);
	assert_int_equal(net_connect(bound, 5, &fd, &e), 0);
	assert_int_equal(net_guard(fd, 12.5, &e), 0);
	assert_int_equal(
		getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &(socklen_t){ sizeof value }), 0);
	assert_int_equal(value, 1);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value,
				    &(socklen_t){ sizeof value }),
			 0);
	assert_int_equal(value, 12500);
	assert_int_equal(
		getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &(socklen_t){ sizeof value }), 0);
	assert_in_range(value, 1, 6);
	close(fd);
	close(listener);
	assert_int_equal(net_guard(listener, 1, &e), -1);
}

static void wildcard_is_refused(void **state)
{
	(void)state;
	static const char *const any[] = { "0.0.0.0", "[::]", "::" };
	for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
		struct err e = ERR_INIT;
		int fd = -7;
		char bound[NET_ADDR_MAX];
		assert_int_equal(net_listen(any[i], &fd, bound, &e), -1);
		assert_int_equal(fd, -7);
		assert_non_null(strstr(e.text, any[i]));
	}
}

static int listen_at(const char *address, int only_loopback, char bound[NET_ADDR_MAX],
		     struct err *e)
{
	int fd = -1;
	*e = (struct err)ERR_INIT;
	return net_listen_at(address, only_loopback, &fd, bound, e) ? -1 : fd;
}

static void listens_on_the_port_that_is_asked_for(void **state)
{
	(void)state;
	char bound[NET_ADDR_MAX], again[NET_ADDR_MAX];
	struct err e;
	int fd = listen_at("127.0.0.1:0", 1, bound, &e);
	assert_true(fd >= 0);
	assert_int_not_equal(strcmp(bound, "127.0.0.1:0"), 0);
	assert_int_equal(listen_at(bound, 1, again, &e), -1);
	assert_int_equal(e.code, ERR_NET);
	assert_non_null(strstr(e.text, bound));
	close(fd);
	fd = listen_at(bound, 1, again, &e);
	for (int i = 0; fd < 0 && i < 20; i++) { /* another process has taken the port */
		close(listen_at("127.0.0.1:0", 1, bound, &e));
		fd = listen_at(bound, 1, again, &e);
	}
	assert_true(fd >= 0);
	assert_string_equal(again, bound);
	close(fd);
	fd = listen_at("lo:0", 1, bound, &e); /* an interface */
	assert_true(fd >= 0);
	assert_memory_equal(bound, "127.", 4);
	close(fd);
}

static void listens_no_wider_than_asked(void **state)
{
	(void)state;
	char bound[NET_ADDR_MAX];
	struct err e;
	static const char *const wide[] = { "0.0.0.0:0", "[::]:0" };
	for (size_t i = 0; i < 2; i++)
		for (int only = 0; only < 2; only++) {
			assert_int_equal(listen_at(wide[i], only, bound, &e), -1);
			assert_int_equal(e.code, ERR_DENIED);
		}
	assert_int_equal(listen_at("192.0.2.1:0", 1, bound, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_int_equal(listen_at("192.0.2.1:0", 0, bound, &e), -1);
	assert_int_equal(e.code, ERR_NET); /* no address of this machine */
}

static void an_address_without_a_port_is_not_listened_on(void **state)
{
	(void)state;
	char bound[NET_ADDR_MAX];
	struct err e;
	static const char *const bad[] = { "",    "9400",         "127.0.0.1", ":0", "127.0.0.1:x",
					   "::1", "127.0.0.1:0:0" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(listen_at(bad[i], 1, bound, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
	}
}

static void malformed_addresses_are_refused(void **state)
{
	(void)state;
	static const char *const bad[] = { "",
					   ":",
					   "127.0.0.1",
					   "127.0.0.1:",
					   "127.0.0.1:x1",
					   "[::1:9",
					   "[::1]9",
					   "127.0.0.1:1234567890",
					   "[]:1",
					   ":80",
					   "127.0.0.1:0",
					   "127.0.0.1:65536" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct err e = ERR_INIT;
		int fd = -7;
		assert_int_equal(net_connect(bad[i], 1, &fd, &e), -1);
		assert_int_equal(e.code, ERR_NET);
		assert_int_equal(fd, -7);
	}
}

static void refused_connection_is_retried_until_the_timeout(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	int listener, fd = -7;
	char bound[NET_ADDR_MAX];
	assert_int_equal(net_listen("127.0.0.1", &listener, bound, &e), 0);
	close(listener);
	double start = clock_s();
	assert_int_equal(net_connect(bound, 0.2, &fd, &e), -1);
	assert_true(clock_s() - start > 0.1);
	assert_int_equal(fd, -7);
	assert_non_null(strstr(e.text, bound));
	assert_non_null(strstr(e.text, strerror(ECONNREFUSED)));
}

static void started_connection_tells_how_it_ended(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	int listener, fd;
	char bound[NET_ADDR_MAX];
	assert_int_equal(net_listen("127.0.0.1", &listener, bound, &e), 0);
	assert_int_equal(net_connect_start(bound, &fd, &e), 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(net_connect_done(fd, bound, &e), 0);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	close(fd);
	close(listener);
	if (net_connect_start(bound, &fd, &e) == 0) {
		p.fd = fd;
		assert_int_equal(poll(&p, 1, 5000), 1);
		assert_int_equal(net_connect_done(fd, bound, &e), -1);
		close(fd);
	}
	assert_int_equal(e.code, ERR_NET);
	assert_non_null(strstr(e.text, bound));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_address_of_nothing_is_loopback),
		cmocka_unit_test(unknown_interface_is_named),
		cmocka_unit_test(listen_connect_accept_v4),
		cmocka_unit_test(listen_connect_accept_v6),
		cmocka_unit_test(every_address_of_a_name_is_tried),
		cmocka_unit_test(guarded_connection_is_asked_for_life),
		cmocka_unit_test(wildcard_is_refused),
		cmocka_unit_test(listens_on_the_port_that_is_asked_for),
		cmocka_unit_test(listens_no_wider_than_asked),
		cmocka_unit_test(an_address_without_a_port_is_not_listened_on),
		cmocka_unit_test(malformed_addresses_are_refused),
		cmocka_unit_test(started_connection_tells_how_it_ended),
		cmocka_unit_test(refused_connection_is_retried_until_the_timeout),
	};
	return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
