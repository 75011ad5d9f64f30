/* Whether the last lines of a task say that another rank is gone. */
#include "agent/task/blame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void the_loss_of_a_peer_is_recognized(void **state)
{
	static const char *const lines[] = {
		"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
		"closed "
		"by peer [127.0.0.1]:41725\n",
		"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, "
		"remote "
		"process exited or there was a network error\n",
		"ConnectionResetError: [Errno 104] Connection reset by peer\n",
		"torch.distributed.DistNetworkError: failed to recv, recvValue failed on "
		"SocketImpl(fd=3)\n",
		"jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: failed to connect to all "
		"addresses\n",
		"BrokenPipeError: [Errno 32] Broken pipe\n",
		"Traceback\nlost connection to the server", /* the last line may lack its end */
	};
	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (!task_blames_peer(lines[i]))
			fail_msg("%s", lines[i]);
}

static void an_error_of_its_own_is_not(void **state)
{
	static const char *const lines[] = {
		"",
		"\n",
		"ValueError: bad shape\n",
		"torch.OutOfMemoryError: CUDA out of memory\n",
		"AssertionError: connection\n",
		"Segmentation fault\n",
	};
	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (task_blames_peer(lines[i]))
			fail_msg("%s", lines[i]);
}

/* A warning of long ago, such as that of a retry, explains nothing. */
static void only_the_last_lines_count(void **state)
{
	char text[4000] = "Connection refused; trying again\n";
	(void)state;
	for (int i = 0; i < 11; i++)
		strcat(text, "step\n");
	assert_true(task_blames_peer(text));
	strcat(text, "step\n");
	assert_false(task_blames_peer(text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loss_of_a_peer_is_recognized),
		cmocka_unit_test(an_error_of_its_own_is_not),
		cmocka_unit_test(only_the_last_lines_count),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
