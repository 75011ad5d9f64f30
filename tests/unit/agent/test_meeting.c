/* Where the tasks of a program meet: the ports are free for rank 0's task, and for nobody else. */
#include "agent/meeting.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* --- doubles of the control channel: an exchange among all ranks of this process --- */

static json_t *published; /* by rank 0 */

int agent_control_exchange(struct control *c, json_t *values, const int *ranks, int n, json_t **all,
			   struct err *e)
{
	(void)c;
	assert_int_equal(n, 1);
	assert_int_equal(ranks[0], 0);
	if (values) {
		json_decref(published);
		published = json_incref(values);
	}
	if (!published)
		return err_set(e, ERR_ABORTED, "nobody is there");
	*all = json_pack("[O]", published);
	return 0;
}

const char *agent_control_local_address(const struct control *c)
{
	(void)c;
	return "[fd00::7]";
}

static int close_all(void **state)
{
	(void)state;
	json_decref(published);
	published = NULL;
	return 0;
}

/* --- sockets of others --- */

static int open_socket(int family, bool reuse)
{
	int yes = 1, no = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && reuse)
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
	if (fd >= 0 && family == AF_INET6)
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no), 0);
	return fd;
}

/* Binds the port of all addresses, and listens: 0, or errno. -1: this host has no such addresses. */
static int take(int family, bool reuse, int port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	int fd = open_socket(family, reuse);
	if (fd < 0)
		return -1;
	int rc = family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
				   : bind(fd, (struct sockaddr *)&v6, sizeof v6);
	int why = rc || listen(fd, 1) ? errno : 0;
	close(fd);
	return family == AF_INET6 && (why == EADDRNOTAVAIL || why == EAFNOSUPPORT) ? -1 : why;
}

static int port_of(int fd)
{
	struct sockaddr_in at;
	socklen_t len = sizeof at;
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	return ntohs(at.sin_port);
}

/* --- tests --- */

static void meet(int rank, bool one_host, struct meeting *m)
{
	struct err e = ERR_INIT;
	*m = (struct meeting)MEETING_INIT;
	if (agent_meeting_open(NULL, rank, one_host, "", m, &e))
		fail_msg("%s", e.text);
}

static void all_ranks_get_the_same_place(void **state)
{
	struct meeting first, second;
	(void)state;
	meet(0, false, &first);
	meet(1, false, &second);
	assert_string_equal(first.address, "[fd00::7]");
	assert_string_equal(second.address, first.address);
	assert_memory_equal(second.ports, first.ports, sizeof first.ports);
	assert_int_not_equal(first.ports[0], first.ports[1]);
	for (int i = 0; i < MEETING_PORTS; i++) {
		assert_int_equal(port_of(first.held[i]), first.ports[i]);
		assert_int_equal(second.held[i], -1);
	}
	agent_meeting_close(&second);
	agent_meeting_close(&first);
	agent_meeting_close(&first); /* it may be closed twice */
}

static void ranks_of_one_host_meet_at_its_loopback_address(void **state)
{
	struct meeting m;
	(void)state;
	meet(0, true, &m);
	assert_string_equal(m.address, "127.0.0.1");
	agent_meeting_close(&m);
}

static void a_server_with_reuseaddr_gets_the_port(void **state)
{
	struct meeting m;
	(void)state;
	meet(0, true, &m);
	for (int i = 0; i < MEETING_PORTS; i++) {
		assert_int_equal(take(AF_INET, true, m.ports[i]), 0);
		int dual = take(AF_INET6, true, m.ports[i]);
		assert_true(dual == 0 || dual == -1);
		assert_int_equal(take(AF_INET, false, m.ports[i]), EADDRINUSE);
	}
	agent_meeting_close(&m);
	assert_int_equal(take(AF_INET, false, m.ports[0]), 0);
}

/* The kernel gives the ports to nobody who asks for any port. So many sockets get most ports of the
 * host's range, and would get these, too. */
static void others_do_not_get_the_port_by_chance(void **state)
{
	enum { SOCKETS = 400, ROUNDS = 100 };
	static int fds[SOCKETS];
	struct meeting m;
	(void)state;
	meet(0, true, &m);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < SOCKETS; i++) {
			struct sockaddr_in any = { .sin_family = AF_INET };
			fds[i] = open_socket(AF_INET, i % 2);
			assert_true(fds[i] >= 0);
			assert_int_equal(bind(fds[i], (struct sockaddr *)&any, sizeof any), 0);
			for (int k = 0; k < MEETING_PORTS; k++)
				assert_int_not_equal(port_of(fds[i]), m.ports[k]);
		}
		for (int i = 0; i < SOCKETS; i++)
			close(fds[i]);
	}
	agent_meeting_close(&m);
}

static void a_meeting_point_is_checked(void **state)
{
	static const char *const bad[] = {
		"{}",
		"{\"address\": 7, \"ports\": [1, 2]}",
		"{\"address\": \"a\", \"ports\": [1]}",
		"{\"address\": \"a\", \"ports\": [0, 2]}",
		"{\"address\": \"a\", \"ports\": [1, 65536]}",
		"{\"address\": \"a\", \"ports\": [1, \"2\"]}",
		"[]",
	};
	char longest[2 * NET_ADDR_MAX];
	(void)state;
	for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
		struct meeting m = MEETING_INIT;
		struct err e = ERR_INIT;
		json_decref(published);
		memset(longest, 'a', sizeof longest);
		longest[sizeof longest - 1] = '\0';
		published = i < sizeof bad / sizeof *bad ? json_loads(bad[i], 0, NULL)
							 : json_pack("{s:s, s:[i,i]}", "address",
								     longest, "ports", 1, 2);
		assert_non_null(published);
		assert_int_equal(agent_meeting_open(NULL, 1, true, "", &m, &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
		assert_int_equal(m.held[0], -1);
	}
}

static void an_ended_generation_has_no_meeting(void **state)
{
	struct meeting m = MEETING_INIT;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(agent_meeting_open(NULL, 1, true, "", &m, &e), -1);
	assert_int_equal(e.code, ERR_ABORTED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, close_all)
	const struct CMUnitTest tests[] = {
		TEST(all_ranks_get_the_same_place),
		TEST(ranks_of_one_host_meet_at_its_loopback_address),
		TEST(a_server_with_reuseaddr_gets_the_port),
		TEST(others_do_not_get_the_port_by_chance),
		TEST(a_meeting_point_is_checked),
		TEST(an_ended_generation_has_no_meeting),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
