/* What the relay of a node refuses: other users, too many connections, and packets that no rank sends. */
#include "tests/unit/agent/node_play.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* A socket that is connected to the relay; -1: it is not. */
static int connect_stranger(void)
{
	struct sockaddr_un address;
	socklen_t len;
	struct msg_welcome w = welcome_of(FIRST);
	assert_int_equal(agent_node_address(&w, &address, &len, NULL), 0);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	if (!connect(fd, (struct sockaddr *)&address, len))
		return fd;
	close(fd);
	return -1;
}

/* Whether the relay has closed its end. */
static bool is_closed(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN);
}

static void more_connections_than_ranks_are_refused(void **state)
{
	int fds[5];
	(void)state;
	open_relay();
	for (int i = 0; i < 5; i++)
		fds[i] = connect_stranger();
	hand_on();
	for (int i = 0; i < 5; i++) {
		assert_int_equal(is_closed(fds[i]), i >= 2);
		close(fds[i]);
	}
	hand_on();
	join(t.first, 1); /* there is room again */
}

static struct node_packet packet_of(int rank)
{
	struct node_packet p;
	const struct msg_progress m = { .step = 1, .phase = "forward" };
	agent_node_packet_fill(&p, rank, &m, &(struct train_times){ .step = 1 });
	p.head.number = 1;
	return p;
}

/* Sends a stranger's packet. Whether the relay has kept the connection. */
static bool is_kept(const void *data, size_t len)
{
	int fd = connect_stranger();
	assert_true(fd >= 0);
	hand_on();
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
	int rows = hand_on();
	uint64_t number;
	bool kept = recv(fd, &number, sizeof number, MSG_DONTWAIT) == sizeof number;
	assert_int_equal(rows, kept ? 2 : 0);
	close(fd);
	hand_on();
	return kept;
}

static bool packet_is_kept(const struct node_packet *p)
{
	return is_kept(p, sizeof *p);
}

static void a_packet_that_no_rank_sends_ends_its_connection(void **state)
{
	(void)state;
	const struct node_packet good = packet_of(FIRST);
	char longer[sizeof good + 100];
	open_relay();
	join(t.second, 1);
	assert_true(packet_is_kept(&good));
	memset(longer, 0, sizeof longer);
	memcpy(longer, &good, sizeof good);
	assert_false(is_kept(longer, sizeof longer));
	assert_false(is_kept(longer, sizeof good + 1));
	assert_false(is_kept(longer, sizeof good - 1));
	assert_false(is_kept(longer, 1));
#define REFUSES(change) \
	do { \
		struct node_packet p = good; \
		change; \
		assert_false(packet_is_kept(&p)); \
	} while (0)
	REFUSES(p.head.version++);
	REFUSES(p.head.rank = 6); /* of another node */
	REFUSES(p.head.rank = LEADER);
	REFUSES(p.head.rank = -1);
	REFUSES(p.head.rank = SECOND);              /* it reports itself */
	REFUSES(p.head.report = REPORT_MSG_HEALTH); /* it is no text */
	REFUSES(p.head.report = REPORTS_COUNT);
	REFUSES(p.head.report = -2);
	REFUSES(p.step = -2);
	REFUSES(p.step = INT64_MAX);
	REFUSES(p.count = -1);
	REFUSES(p.active = INT64_MIN);
	REFUSES(p.done = INT64_MAX);
	REFUSES(p.own_s = NAN);
	REFUSES(p.delay_s = -1);
	REFUSES(p.stalled_s = INFINITY);
	REFUSES(memset(p.phase, 'x', sizeof p.phase));
	REFUSES(p.phase[0] = '\xff');
	REFUSES(p.phase[0] = '\n');
	REFUSES(p.has_times = 2);
	REFUSES(p.times_step = -1);
	REFUSES(p.peak_bytes = -1);
	REFUSES(p.us[TIME_REPORTED - 1] = -1);
	REFUSES(p.us[0] = INT64_MAX);
	assert_true(report(t.second, 2));
	assert_int_equal(hand_on(), 2);
	assert_int_equal(step_of(SECOND), 2);
}

/* Sends a stranger's report of this text. Whether the relay has kept the connection. */
static bool text_is_kept(const char *text, size_t len)
{
	static struct node_report p;
	int fd = connect_stranger();
	assert_true(fd >= 0);
	hand_on();
	p.head = (struct node_head){ .version = MSG_VERSION, .rank = FIRST, .number = 1 };
	memcpy(p.text, text, len);
	assert_int_equal(send(fd, &p, sizeof p.head + len, MSG_NOSIGNAL), sizeof p.head + len);
	hand_on();
	uint64_t number;
	bool kept = recv(fd, &number, sizeof number, MSG_DONTWAIT) == sizeof number;
	assert_int_equal(json_array_size(json_object_get(t.body, "reports")), kept);
	close(fd);
	hand_on();
	return kept;
}

static void a_report_that_no_rank_sends_ends_its_connection(void **state)
{
	static const char *const bad[] = {
		"", "7", "[1]", "{\"number\":1", "{} {}", "{\"\xff\":1}", "{\"a\":\"\\u0000\"}"
	};
	(void)state;
	open_relay();
	assert_true(text_is_kept("{\"a\":1}", 7));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(text_is_kept(bad[i], strlen(bad[i])));
}

static void a_rank_cannot_become_another_one(void **state)
{
	(void)state;
	struct node_packet p = packet_of(FIRST);
	open_relay();
	int fd = connect_stranger();
	hand_on();
	assert_int_equal(send(fd, &p, sizeof p, 0), sizeof p);
	assert_int_equal(hand_on(), 2);
	p.head.rank = SECOND;
	assert_int_equal(send(fd, &p, sizeof p, 0), sizeof p);
	assert_int_equal(hand_on(), 0);
	close(fd);
}

static void expect_valid_rows(void)
{
	struct msg_progress m;
	struct msg_times times;
	int64_t us[TIME_REPORTED];
	int rank;
	const json_t *row = json_array_get(json_object_get(t.body, "progress"), 1);
	assert_int_equal(msg_progress_row_read(row, &rank, &m, NULL), 0);
	assert_int_equal(rank, FIRST);
	row = json_array_get(json_object_get(t.body, "times"), 0);
	assert_true(!row || (!msg_times_row_read(row, &rank, &times, NULL) &&
			     !time_reported_read(times.us, us, NULL)));
}

/* Whatever the relay hands on is what the supervisor takes, so no rank can make it refuse the relay. */
static void packets_with_random_bytes_give_valid_rows_or_none(void **state)
{
	const size_t from = offsetof(struct node_packet, step);
	unsigned seed = 7;
	int kept = 0;
	(void)state;
	open_relay();
	for (int i = 0; i < 3000; i++) {
		struct node_packet p = packet_of(FIRST);
		for (int n = rand_r(&seed) % 3; n >= 0; n--)
			((unsigned char *)&p)[from + (size_t)rand_r(&seed) % (sizeof p - from)] =
				(unsigned char)rand_r(&seed);
		int fd = connect_stranger();
		hand_on();
		assert_int_equal(send(fd, &p, sizeof p, MSG_NOSIGNAL), sizeof p);
		if (hand_on()) {
			kept++;
			expect_valid_rows();
		}
		close(fd);
		hand_on();
	}
	assert_in_range(kept, 100, 2900);
}

/* The kernel names the user of the other end. */
static void a_process_of_another_user_is_refused(void **state)
{
	int status;
	(void)state;
	if (geteuid() != 0)
		skip();
	open_relay();
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		struct node_packet p = packet_of(FIRST);
		if (setresuid(65534, 65534, 65534))
			_exit(2);
		int fd = connect_stranger();
		send(fd, &p, sizeof p, MSG_NOSIGNAL);
		_exit(recv(fd, &p, sizeof p, 0) > 0 ? 1 : 0); /* the acknowledgement, or the end */
	}
	while (waitpid(child, &status, WNOHANG) == 0) {
		hand_on();
		poll(NULL, 0, 1);
	}
	assert_int_equal(status, 0);
}

/* A process of another user that has taken the name: the rank tells it nothing. */
static void a_relay_of_another_user_is_not_used(void **state)
{
	struct sockaddr_un address;
	socklen_t len;
	int status, ready[2];
	char byte;
	(void)state;
	if (geteuid() != 0)
		skip();
	struct msg_welcome w = welcome_of(FIRST);
	assert_int_equal(agent_node_address(&w, &address, &len, NULL), 0);
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (setresuid(65534, 65534, 65534) || bind(fd, (struct sockaddr *)&address, len) ||
		    listen(fd, 1) || write(ready[1], "", 1) != 1)
			_exit(2);
		_exit(recv(accept(fd, NULL, NULL), &byte, 1, 0) == 0 ? 0 : 1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_false(look(t.first));
	assert_false(report(t.first, 1));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define RELAY_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		RELAY_TEST(more_connections_than_ranks_are_refused),
		RELAY_TEST(a_packet_that_no_rank_sends_ends_its_connection),
		RELAY_TEST(a_report_that_no_rank_sends_ends_its_connection),
		RELAY_TEST(a_rank_cannot_become_another_one),
		RELAY_TEST(packets_with_random_bytes_give_valid_rows_or_none),
		RELAY_TEST(a_process_of_another_user_is_refused),
		RELAY_TEST(a_relay_of_another_user_is_not_used),
	};
	alarm(PATIENCE_S);
	return cmocka_run_group_tests_name("strangers at the relay of a node", tests, NULL, NULL);
}
