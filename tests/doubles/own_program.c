/* A program that uses agent/client/muster_client.h. Its argument says what it does; status 0: all was as it should be.
 * tests/unit/agent/test_task_programs.c runs it, and own_program.py, which does the same. */
#include "agent/client/muster_client.h"

#include "tests/doubles/own_program.h"

#include <math.h>
#include <poll.h>
#include <sys/wait.h>

/* Trains until it is told to stop; returns the steps that it has done. */
static int train(int most)
{
	int n;
	for (n = 1; n <= most; n++) {
		struct muster_number numbers[6] = {
			{ "loss", 0.1 }, { "tokens", 4096 }, { "samples", 8 },
			{ "lr", 1e-4 },  { "grad_norm", 2 }, { "bad name", 1 },
		};
		if (n == 2)
			numbers[0].value = (double)NAN;
		if (n == 3)
			numbers[0].value = -(double)INFINITY;
		if (n == 4)
			numbers[4].value = (double)INFINITY;
		muster_step(n, numbers, 6);
		if (n == 3)
			muster_checkpoint_saved("ckpt/\"a\\\n\xff\xc3\xbc", n);
		if (own_program_should_stop())
			return n;
	}
	return 0;
}

/* Is told to stop, although it reports no step. */
static int wait_for_stop(void)
{
	while (!muster_should_stop())
		poll(NULL, 0, 1);
	return own_program_should_stop() ? 0 : 1;
}

static int forked(void)
{
	pid_t child;
	int status;
	muster_step(1, NULL, 0);
	if (!(fcntl(muster_client_state.fd, F_GETFD) & FD_CLOEXEC))
		return 1;
	child = fork();
	if (child == 0) {
		muster_step(99, NULL, 0);
		muster_checkpoint_saved("/never", 99);
		_exit(muster_should_stop() || !muster_plan() ? 1 : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	muster_step(2, NULL, 0);
	return status;
}

/* Fills the socket, says so, waits until it has room again, and asks whether to stop. */
static int fill(void)
{
	char byte = '.';
	int n;
	for (n = 1; n <= 5000; n++)
		muster_step(n, NULL, 0);
	muster_checkpoint_saved("/kept", 5000);
	if (write(1, &byte, 1) != 1 || read(0, &byte, 1) != 1)
		return 1;
	return muster_should_stop();
}

static int lost(void)
{
	int n;
	errno = EDOM;
	for (n = 1; n <= 100; n++) {
		muster_step(n, NULL, 0);
		muster_checkpoint_saved("a", n);
		if (muster_should_stop())
			return 1;
	}
	return errno == EDOM ? 0 : 1;
}

static int alone(void)
{
	return lost() || muster_plan() ? 1 : 0;
}

static int placed(void)
{
	return muster_plan() && !strcmp(muster_plan(), "{\"rank\":3}") ? 0 : 1;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	if (!strcmp(mode, "train"))
		return train(1000) == 20 ? 0 : 1;
	if (!strcmp(mode, "wait"))
		return wait_for_stop();
	if (!strcmp(mode, "fork"))
		return forked();
	if (!strcmp(mode, "fill"))
		return fill();
	if (!strcmp(mode, "lost"))
		return lost();
	if (!strcmp(mode, "alone"))
		return alone();
	if (!strcmp(mode, "plan"))
		return placed();
	return 2;
}
