#include "agent/drill.h"

#include "base/agent_env.h"
#include "base/file.h"
#include "base/human.h"
#include "base/log.h"
#include "base/meminfo.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_STATUS = 7, BLOCK = 4 << 20 };

/* The host keeps at least so much, if no cgroup limits this process. */
#define MEMORY_SHARE 0.75

static int cause_exit(bool *poison, struct err *e)
{
	(void)poison;
	(void)e;
	_exit(EXIT_STATUS);
}

static int cause_device(bool *poison, struct err *e)
{
	(void)poison;
	return err_set(e, ERR_DEVICE, "a drill: this rank's device counts as lost");
}

static int cause_nan(bool *poison, struct err *e)
{
	(void)e;
	*poison = true;
	return 0;
}

/* The OOM killer chooses this process first. */
static void offer_itself(void)
{
	static const char score[] = "1000";
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (file_write_full(fd, score, sizeof score - 1))
			log_warn("a drill: /proc/self/oom_score_adj cannot be written");
		close(fd);
	}
}

/* The blocks stay: only the end of the process frees them. */
static int cause_memory(bool *poison, struct err *e)
{
	double most = MEMORY_SHARE * meminfo_read("MemAvailable"), taken = 0;
	char text[HUMAN];
	(void)poison;
	offer_itself();
	for (; taken < most; taken += BLOCK) {
		volatile char *block = malloc(BLOCK);
		if (!block)
			break;
		for (size_t i = 0; i < BLOCK; i += 4096)
			block[i] = 1;
	}
	return err_set(e, ERR_NOMEM,
		       "a drill: the agent has taken %s and was not ended; limit the memory of its "
		       "cgroup",
		       human_bytes(taken, text));
}

static const struct kind {
	const char *name;
	int (*cause)(bool *poison, struct err *e);
} kinds[] = {
	{ "exit", cause_exit },
	{ "device", cause_device },
	{ "nan", cause_nan },
	{ "memory", cause_memory },
};

/* What this process is to cause; cause is NULL if nothing. */
static struct {
	int (*cause)(bool *poison, struct err *e);
	int64_t step;
} wanted;

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	return NULL;
}

int agent_drill_open(const char *text, int rank, uint32_t generation, struct err *e)
{
	char name[16], rest;
	int of;
	int64_t step;
	const struct kind *kind = NULL;
	wanted.cause = NULL;
	if (!text)
		return 0;
	if (sscanf(text, "%15s %d %" SCNd64 " %c", name, &of, &step, &rest) == 3)
		kind = find_kind(name);
	if (!kind)
		return err_set(e, ERR_USAGE,
			       AGENT_ENV_DRILL
			       " is \"%.60s\", but must be \"KIND RANK STEP\" with a kind of "
			       "agent/drill.h; remove it from the environment",
			       text);
	if (of != rank || generation != 1)
		return 0;
	wanted.cause = kind->cause;
	wanted.step = step;
	return 1;
}

int agent_drill_step(void *arg, int64_t step, bool *poison, struct err *e)
{
	(void)arg;
	return wanted.cause && step == wanted.step ? wanted.cause(poison, e) : 0;
}
