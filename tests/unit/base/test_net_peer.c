/* net_check_peer on two ends of a connection in a network of their own, whose line can be cut. */
#include "base/net.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const double silence_s = 0.3;

enum { NO_NAMESPACE = 77 };

static struct tcp_info look(int fd)
{
	struct tcp_info i = { 0 };
	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &(socklen_t){ sizeof i });
	return i;
}

static void nap(void)
{
	usleep(10000);
}

/* Connects two ends. */
static void connect_ends(int *ours, int *theirs)
{
	int listener;
	char bound[NET_ADDR_MAX];
	if (net_listen("127.0.0.1", &listener, bound, NULL) || net_connect(bound, 5, ours, NULL))
		_exit(10);
	do
		net_accept(listener, theirs, NULL);
	while (*theirs < 0);
}

/* Sends until the peer has no room. */
static void fill(int fd)
{
	static const char data[65536];
	for (int full = 0; full < 20;) {
		full = send(fd, data, sizeof data, MSG_DONTWAIT) < 0 ? full + 1 : 0;
		nap();
	}
}

/* The peer does not read. However long, its host answers. */
static int stay_with_stopped_peer(void)
{
	int ours, theirs = -1;
	connect_ends(&ours, &theirs);
	fill(ours);
	if (look(ours).tcpi_snd_wnd)
		return 11;
	for (int silences = 0; silences < 50; nap()) {
		silences += look(ours).tcpi_last_ack_recv > 2 * silence_s * 1e3;
		if (net_check_peer(ours, silence_s, NULL))
			return 12;
	}
	return 0;
}

static int cut_line(void)
{
	return system("ip link set lo down");
}

static int leave_dead_host(void)
{
	int ours, theirs = -1;
	struct err e = ERR_INIT;
	connect_ends(&ours, &theirs);
	if (net_check_peer(ours, silence_s, &e) || cut_line())
		return 13;
	if (send(ours, "x", 1, MSG_NOSIGNAL) < 0)
		return 14;
	while (!net_check_peer(ours, silence_s, &e))
		nap();
	return e.code == ERR_NET && strstr(e.text, "has not answered for") ? 0 : 15;
}

static int leave_dead_host_of_stopped_peer(void)
{
	int ours, theirs = -1;
	connect_ends(&ours, &theirs);
	fill(ours);
	if (cut_line())
		return 16;
	while (!net_check_peer(ours, silence_s, NULL))
		nap();
	return look(ours).tcpi_probes >= 3 ? 0 : 17;
}

static int trust_idle_line(void)
{
	int ours, theirs = -1;
	connect_ends(&ours, &theirs);
	for (int i = 0; i < 3; i++) {
		while (look(ours).tcpi_last_ack_recv < (i + 2) * silence_s * 1e3)
			nap();
		if (net_check_peer(ours, silence_s, NULL))
			return 18;
	}
	return 0;
}

/* Runs `act` in a process with a network of its own; returns its exit status. */
static void in_own_network(int (*act)(void))
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNET) || system("ip link set lo up 2>/dev/null"))
			_exit(NO_NAMESPACE);
		_exit(act());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_NAMESPACE)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define IN_OWN_NETWORK(test, act) \
	static void test(void **state) \
	{ \
		(void)state; \
		in_own_network(act); \
	}

IN_OWN_NETWORK(a_peer_that_does_not_read_is_not_lost, stay_with_stopped_peer)
IN_OWN_NETWORK(a_host_that_does_not_answer_is_lost, leave_dead_host)
IN_OWN_NETWORK(a_host_that_dies_after_its_process_was_stopped_is_lost,
	       leave_dead_host_of_stopped_peer)
IN_OWN_NETWORK(a_line_without_traffic_is_not_lost, trust_idle_line)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_does_not_read_is_not_lost),
		cmocka_unit_test(a_host_that_does_not_answer_is_lost),
		cmocka_unit_test(a_host_that_dies_after_its_process_was_stopped_is_lost),
		cmocka_unit_test(a_line_without_traffic_is_not_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
