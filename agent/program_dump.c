/* program_dump: gets the dump of PyTorch's flight recorder when the supervisor asks for it. */
#include "agent/program_inner.h"

#include "agent/task/recorder.h"
#include "base/clock.h"
#include "base/run_paths.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* PyTorch looks for a request about once per second, and writes the dump at once. */
static const double dump_s = 3;

static off_t size_of(const char *path)
{
	struct stat st;
	return stat(path, &st) ? 0 : st.st_size;
}

/* Waits until the file is there and grows no more. */
static void await_file(const char *path)
{
	const struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
	off_t before = 0;
	for (double end = clock_s() + dump_s; clock_s() < end;) {
		off_t size = size_of(path);
		if (size && size == before)
			return;
		before = size;
		nanosleep(&pause, NULL);
	}
}

int agent_program_dump(void *arg, struct err *e)
{
	const struct program *p = arg;
	char dir[RUN_PATH], prefix[RUN_PATH], path[RUN_PATH + 16];
	run_path_trace(dir, p->welcome->run, (uint32_t)p->welcome->generation);
	run_path_torch_prefix(prefix, dir);
	snprintf(path, sizeof path, "%s%d", prefix, p->welcome->rank);
	if (task_recorder_request(dir, p->welcome->rank, e))
		return e->code == ERR_NOTFOUND ? 0 : -1; /* the program does not use it */
	await_file(path);
	return 0;
}
