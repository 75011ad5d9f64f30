/* The agent's end of the client channel. The test plays the program, with bare packets. */
#include "agent/task/client.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static struct {
	struct task_client *client;
	int program; /* its end */
	int hellos, steps, checkpoints;
	struct task_hello hello;
	struct task_step step;
	char path[TASK_PATH_MAX + 1];
	int64_t saved;
} t;

static void on_hello(void *arg, const struct task_hello *m)
{
	assert_ptr_equal(arg, &t);
	t.hellos++;
	t.hello = *m;
}

static void on_step(void *arg, const struct task_step *m)
{
	assert_ptr_equal(arg, &t);
	t.steps++;
	t.step = *m;
}

static void on_checkpoint(void *arg, const struct task_checkpoint *m)
{
	assert_ptr_equal(arg, &t);
	t.checkpoints++;
	snprintf(t.path, sizeof t.path, "%s", m->path);
	t.saved = m->step;
}

static const struct task_client_handlers handlers = { on_hello, on_step, on_checkpoint };

static void say_bytes(const void *data, size_t len)
{
	assert_int_equal(send(t.program, data, len, MSG_DONTWAIT | MSG_NOSIGNAL), len);
}

static void say(const char *packet)
{
	say_bytes(packet, strlen(packet));
}

static void serve(void)
{
	struct err e = ERR_INIT;
	assert_int_equal(task_client_serve(t.client, &e), 0);
	assert_int_equal(e.code, ERR_NONE);
}

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	if (task_client_open(&handlers, &t, &t.client, &t.program, NULL))
		return -1;
	say("{\"hello\":{\"version\":1,\"pid\":77}}");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	task_client_close(t.client);
	if (t.program >= 0)
		close(t.program);
	return 0;
}

static void leave(void)
{
	close(t.program);
	t.program = -1;
}

/* The next packet that the program gets; "": none is there. */
static const char *hear(void)
{
	static char packet[TASK_PACKET_MAX + 1];
	ssize_t n = recv(t.program, packet, sizeof packet - 1, MSG_DONTWAIT);
	packet[n > 0 ? n : 0] = '\0';
	return packet;
}

/* --- What the program says ------------------------------------------------------------------ */

static void the_handlers_get_what_the_program_says(void **state)
{
	(void)state;
	say("{\"step\":{\"n\":501,\"loss\":2.5,\"tokens\":65536,\"samples\":32,\"lr\":1e-4,\"grad_"
	    "norm\":3}}");
	say("{\"checkpoint\":{\"path\":\"/runs/a b/\\u00fc\",\"step\":500}}");
	serve();
	assert_int_equal(t.hellos, 1);
	assert_int_equal(t.hello.version, 1);
	assert_int_equal(t.hello.pid, 77);
	assert_int_equal(t.steps, 1);
	assert_int_equal(t.step.n, 501);
	assert_true(t.step.has_loss && t.step.loss == 2.5);
	assert_true(t.step.has_tokens && t.step.tokens == 65536);
	assert_true(t.step.has_samples && t.step.samples == 32);
	assert_true(t.step.has_lr && t.step.lr == 1e-4);
	assert_true(t.step.has_grad_norm && t.step.grad_norm == 3);
	assert_int_equal(t.checkpoints, 1);
	assert_string_equal(t.path, "/runs/a b/ü");
	assert_int_equal(t.saved, 500);
	say("{\"step\":{\"n\":502}}");
	serve();
	assert_int_equal(t.step.n, 502);
	assert_false(t.step.has_loss || t.step.has_tokens || t.step.has_samples || t.step.has_lr ||
		     t.step.has_grad_norm);
}

static void numbers_that_are_not_finite_arrive(void **state)
{
	(void)state;
	say("{\"step\":{\"n\":1,\"loss\":\"nan\",\"grad_norm\":\"inf\",\"lr\":\"-inf\"}}");
	serve();
	assert_true(t.step.has_loss && isnan(t.step.loss));
	assert_true(t.step.has_grad_norm && isinf(t.step.grad_norm) && t.step.grad_norm > 0);
	assert_true(t.step.has_lr && isinf(t.step.lr) && t.step.lr < 0);
}

static void members_of_later_versions_are_ignored(void **state)
{
	(void)state;
	say("{\"hello\":{\"version\":9,\"pid\":78,\"language\":\"rust\"}}");
	say("{\"phase\":{\"name\":\"evaluation\"}}");
	say("{\"step\":{\"n\":1,\"accuracy\":0.5,\"more\":{\"a\":[1,2]}},\"x\":0}");
	say("{}");
	serve();
	assert_int_equal(t.hellos, 2);
	assert_int_equal(t.hello.version, 9);
	assert_int_equal(t.steps, 1);
}

/* --- What it should not say ------------------------------------------------------------------ */

/* Opens a new channel and sends the packet. */
static void refused(const void *packet, size_t len, const char *text)
{
	struct err e = ERR_INIT;
	assert_int_equal(teardown(NULL) || setup(NULL), 0);
	say_bytes(packet, len);
	say("{\"step\":{\"n\":7}}");
	assert_int_equal(task_client_serve(t.client, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	if (!strstr(e.text, text))
		fail_msg("\"%s\" is not in: %s", text, e.text);
	assert_int_equal(t.steps, 1); /* the channel goes on */
	assert_int_equal(t.step.n, 7);
	assert_int_equal(t.checkpoints, 0);
}

static void malformed_packets_are_refused_and_the_channel_goes_on(void **state)
{
	(void)state;
	static const struct {
		const char *packet, *text;
	} cases[] = {
		{ "", "not JSON" },
		{ "step", "not JSON" },
		{ "[1]", "not a JSON object" },
		{ "{\"step\":{\"n\":1}", "not JSON" },
		{ "{\"step\":{\"n\":1,\"n\":2}}", "not JSON: duplicate" },
		{ "{\"step\":{\"n\":1,\"loss\":NaN}}", "not JSON" },
		{ "{\"step\":{\"n\":1,\"loss\":\"\xff\"}}", "not JSON" },
		{ "{\"step\":7}", "step must be an object" },
		{ "{\"step\":{}}", "\"n\"" },
		{ "{\"step\":{\"n\":0}}", "step: n must be at least 1" },
		{ "{\"step\":{\"n\":-3}}", "\"n\"" },
		{ "{\"step\":{\"n\":true}}", "\"n\"" },
		{ "{\"step\":{\"n\":1.5}}", "\"n\"" },
		{ "{\"step\":{\"n\":\"1\"}}", "\"n\"" },
		{ "{\"step\":{\"n\":99999999999999999999}}", "not JSON" },
		{ "{\"checkpoint\":{\"path\":\"/a\"}}", "\"step\"" },
		{ "{\"checkpoint\":{\"path\":\"/a\",\"step\":-1}}", "\"step\"" },
		{ "{\"checkpoint\":{\"path\":\"a\",\"step\":1}}", "absolute" },
		{ "{\"checkpoint\":{\"path\":\"\",\"step\":1}}", "absolute" },
		{ "{\"checkpoint\":{\"path\":\"/a\\u0000b\",\"step\":1}}", "not JSON" },
		{ "{\"hello\":{\"version\":0,\"pid\":1}}", "version" },
		{ "{\"hello\":{\"version\":1,\"pid\":0}}", "pid" },
		{ "{\"hello\":{\"version\":1}}", "pid" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		refused(cases[i].packet, strlen(cases[i].packet), cases[i].text);
	refused("{\"step\":{\"n\":1}}\0", 17, "NUL byte");
}

static void a_step_counts_without_its_invalid_numbers(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	say("{\"step\":{\"n\":3,\"loss\":\"NaN\",\"tokens\":-1,\"lr\":0.5}}");
	assert_int_equal(task_client_serve(t.client, &e), -1);
	assert_non_null(strstr(e.text, "tokens"));
	assert_int_equal(t.step.n, 3);
	assert_false(t.step.has_loss || t.step.has_tokens);
	assert_true(t.step.has_lr && t.step.lr == 0.5);
}

static void large_packets_are_refused(void **state)
{
	(void)state;
	static char packet[4 * TASK_PACKET_MAX], path[TASK_PATH_MAX + 2];
	memset(packet, ' ', sizeof packet);
	memcpy(packet, "{\"step\":{\"n\":1}}", 16);
	refused(packet, TASK_PACKET_MAX + 1, "16385 bytes");
	refused(packet, sizeof packet, "65536 bytes");
	memset(packet, '[', TASK_PACKET_MAX);
	refused(packet, TASK_PACKET_MAX, "nested deeper");
	memset(path, 'a', sizeof path - 1);
	path[0] = '/';
	snprintf(packet, sizeof packet, "{\"checkpoint\":{\"path\":\"%s\",\"step\":1}}", path);
	refused(packet, strlen(packet), "path has 4096 bytes");
	path[TASK_PATH_MAX] = '\0';
	snprintf(packet, sizeof packet, "{\"checkpoint\":{\"path\":\"%s\",\"step\":1}}", path);
	say(packet);
	memset(packet + strlen(packet), ' ', sizeof packet - strlen(packet));
	memcpy(packet, "{\"step\":{\"n\":9}}", 16);
	say_bytes(packet, 16);
	task_client_serve(t.client, NULL);
	assert_string_equal(t.path, path);
	assert_int_equal(t.step.n, 9);
}

static void there_is_one_warning(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	for (int i = 0; i < 10; i++)
		say("{");
	say("{\"step\":{\"n\":4}}");
	assert_int_equal(task_client_serve(t.client, &e), -1);
	say("[]");
	say_bytes("", 0);
	say("{\"step\":{\"n\":5}}");
	serve();
	assert_int_equal(t.step.n, 5);
}

static void a_program_that_does_not_say_hello_is_not_heard(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	assert_int_equal(task_client_serve(t.client, NULL), 0);
	task_client_close(t.client);
	close(t.program);
	assert_int_equal(task_client_open(&handlers, &t, &t.client, &t.program, NULL), 0);
	say("{\"step\":{\"n\":1}}");
	assert_int_equal(task_client_serve(t.client, &e), -1);
	assert_non_null(strstr(e.text, "before hello"));
	assert_int_equal(t.steps, 0);
}

static void a_flood_does_not_starve_the_caller(void **state)
{
	(void)state;
	int said = 0;
	serve();
	while (send(t.program, "{\"step\":{\"n\":1}}", 16, MSG_DONTWAIT | MSG_NOSIGNAL) == 16)
		said++;
	assert_true(said > 2);
	/* A program that sends whenever there is room. */
	for (int round = 1; round <= 4; round++) {
		serve();
		assert_true(t.steps <= round * TASK_CLIENT_READS);
		while (send(t.program, "{\"step\":{\"n\":1}}", 16, MSG_DONTWAIT | MSG_NOSIGNAL) ==
		       16)
			said++;
	}
	struct pollfd p = { .fd = task_client_fd(t.client),
			    .events = task_client_events(t.client) };
	for (int rounds = 0; poll(&p, 1, 0) == 1; rounds++) {
		assert_true(rounds < said);
		serve();
	}
	assert_int_equal(t.steps, said);
}

/* --- What it is told ---------------------------------------------------------------------------- */

static void stop_reaches_the_program(void **state)
{
	(void)state;
	assert_int_equal(task_client_stop(t.client, "the \"time\" limit", 510, NULL), 0);
	assert_string_equal(hear(),
			    "{\"stop\":{\"reason\":\"the \\\"time\\\" limit\",\"at_step\":510}}");
	assert_int_equal(task_client_stop(t.client, "now", 0, NULL), 0);
	assert_string_equal(hear(), "{\"stop\":{\"reason\":\"now\"}}");
	assert_int_equal(task_client_stop(t.client, "a\xff", 0, NULL), 0);
	assert_string_equal(hear(), "{\"stop\":{\"reason\":\"a?\"}}");
	assert_int_equal(task_client_events(t.client), POLLIN);
}

static void stop_waits_until_the_socket_has_room(void **state)
{
	(void)state;
	int told = 0;
	serve();
	while (task_client_events(t.client) == POLLIN) {
		assert_int_equal(task_client_stop(t.client, "often", 0, NULL), 0);
		told++;
	}
	assert_int_equal(task_client_stop(t.client, "the last", 8, NULL), 0);
	serve();
	assert_int_equal(task_client_events(t.client), POLLIN | POLLOUT);
	for (int i = 1; i < told; i++)
		assert_string_equal(hear(), "{\"stop\":{\"reason\":\"often\"}}");
	assert_string_equal(hear(), "");
	serve();
	assert_int_equal(task_client_events(t.client), POLLIN);
	assert_string_equal(hear(), "{\"stop\":{\"reason\":\"the last\",\"at_step\":8}}");
	assert_string_equal(hear(), "");
}

/* --- The ends --------------------------------------------------------------------------------- */

static void a_program_that_leaves_is_heard_to_the_end(void **state)
{
	(void)state;
	say("{\"step\":{\"n\":8}}");
	leave();
	serve();
	assert_int_equal(t.step.n, 8);
	assert_int_equal(task_client_fd(t.client), -1);
	assert_int_equal(task_client_stop(t.client, "too late", 0, NULL), 0);
	assert_int_equal(task_client_events(t.client), POLLIN);
	serve();
}

/* The kernel then reports a connection that was reset before it gives what was sent. */
/* The socket holds more packets than one call reads. */
static void of_a_program_that_has_ended_all_is_read(void **state)
{
	(void)state;
	static const char step[] = "{\"step\":{\"n\":1}}";
	struct err e = ERR_INIT;
	int sent = 0, room = 200000; /* bytes; the kernel takes the double */
	assert_int_equal(setsockopt(t.program, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
	while (send(t.program, step, sizeof step - 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		sent++;
	assert_true(sent > TASK_CLIENT_READS);
	assert_int_equal(task_client_serve_all(t.client, &e), 0);
	assert_int_equal(t.steps, sent);
}

static void so_is_one_that_did_not_read_its_stop(void **state)
{
	(void)state;
	assert_int_equal(task_client_stop(t.client, "unread", 0, NULL), 0);
	say("{\"step\":{\"n\":8}}");
	leave();
	serve();
	assert_int_equal(t.steps, 1);
	assert_int_equal(task_client_fd(t.client), -1);
}

static void an_empty_packet_is_no_end(void **state)
{
	(void)state;
	say_bytes("", 0);
	assert_int_equal(task_client_serve(t.client, NULL), -1);
	assert_true(task_client_fd(t.client) >= 0);
	say("{\"step\":{\"n\":2}}");
	serve();
	assert_int_equal(t.step.n, 2);
}

static void descriptors_that_the_program_passes_are_not_kept(void **state)
{
	(void)state;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { .room = { 0 } };
	struct iovec text = { (char[]){ "{}" }, 2 };
	struct msghdr m = { .msg_iov = &text,
			    .msg_iovlen = 1,
			    .msg_control = control.room,
			    .msg_controllen = sizeof control.room };
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	struct cmsghdr *head = CMSG_FIRSTHDR(&m);
	*head = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(head), &ends[1], sizeof(int));
	assert_int_equal(sendmsg(t.program, &m, 0), 2);
	close(ends[1]);
	serve();
	char byte;
	assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody else holds it */
	close(ends[0]);
}

static void only_the_programs_end_is_inherited(void **state)
{
	(void)state;
	assert_int_equal(fcntl(task_client_fd(t.client), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(fcntl(t.program, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	task_client_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(the_handlers_get_what_the_program_says),
		TEST(numbers_that_are_not_finite_arrive),
		TEST(members_of_later_versions_are_ignored),
		TEST(malformed_packets_are_refused_and_the_channel_goes_on),
		TEST(a_step_counts_without_its_invalid_numbers),
		TEST(large_packets_are_refused),
		TEST(there_is_one_warning),
		TEST(a_program_that_does_not_say_hello_is_not_heard),
		TEST(a_flood_does_not_starve_the_caller),
		TEST(stop_reaches_the_program),
		TEST(stop_waits_until_the_socket_has_room),
		TEST(a_program_that_leaves_is_heard_to_the_end),
		TEST(of_a_program_that_has_ended_all_is_read),
		TEST(so_is_one_that_did_not_read_its_stop),
		TEST(an_empty_packet_is_no_end),
		TEST(descriptors_that_the_program_passes_are_not_kept),
		TEST(only_the_programs_end_is_inherited),
	};
	return cmocka_run_group_tests_name("client channel", tests, NULL, NULL);
}
