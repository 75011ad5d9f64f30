#include "agent/drill.h"

#include "base/agent_env.h"
#include "base/file.h"
#include "base/human.h"
#include "base/log.h"
#include "libcomm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_STATUS = 7, BLOCK = 4 << 20 };

static int cause_exit(const struct agent_drill *d, bool *poison, struct err *e)
{
	(void)d;
	(void)poison;
	(void)e;
	_exit(EXIT_STATUS);
}

static int cause_device(const struct agent_drill *d, bool *poison, struct err *e)
{
	(void)d;
	(void)poison;
	return err_set(e, ERR_DEVICE, "a drill: this rank's device counts as lost");
}

static int cause_nan(const struct agent_drill *d, bool *poison, struct err *e)
{
	(void)d;
	(void)e;
	*poison = true;
	return 0;
}

static int cause_collectives(const struct agent_drill *d, bool *poison, struct err *e)
{
	(void)poison;
	return comm_barrier(d->world, e);
}

static int cause_stuck(const struct agent_drill *d, bool *poison, struct err *e)
{
	int fds[2];
	char byte;
	(void)d;
	(void)poison;
	if (pipe2(fds, O_CLOEXEC))
		return err_errno(e, ERR_NOMEM, "a drill: no descriptors");
	while (read(fds[0], &byte, 1) < 0 && errno == EINTR)
		;
	return err_set(e, ERR_INTERNAL, "a drill: a pipe without data was read");
}

static int cause_spin(const struct agent_drill *d, bool *poison, struct err *e)
{
	(void)poison;
	(void)e;
	for (volatile int64_t n = d->step;; n++)
		;
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

/* The first bytes of a block point to the one before it. */
struct block {
	struct block *before;
	char rest[BLOCK - sizeof(struct block *)];
};

/* Takes a block, and writes to each page, so that the kernel has to give it. */
static bool take_block(struct block **last)
{
	struct block *b = malloc(sizeof *b);
	if (!b)
		return false;
	for (size_t i = 0; i < sizeof b->rest; i += 4096)
		((volatile char *)b->rest)[i] = 1;
	b->before = *last;
	*last = b;
	return true;
}

static int cause_memory(const struct agent_drill *d, bool *poison, struct err *e)
{
	struct block *last = NULL;
	int64_t taken = 0;
	char text[HUMAN];
	(void)poison;
	offer_itself();
	while (taken < d->bytes && take_block(&last))
		taken += BLOCK;
	while (last) {
		struct block *before = last->before;
		free(last);
		last = before;
	}
	return err_set(e, ERR_NOMEM,
		       "a drill: the agent has taken %s and was not ended; limit the memory of its "
		       "cgroup",
		       human_bytes((double)taken, text));
}

static const struct kind {
	const char *name;
	int (*cause)(const struct agent_drill *d, bool *poison, struct err *e);
	enum train_plant plant;
	bool poisons; /* the data */
} kinds[] = {
	{ .name = "exit", .cause = cause_exit },
	{ .name = "device", .cause = cause_device },
	{ .name = "nan", .cause = cause_nan },
	{ .name = "nan-input", .plant = TRAIN_PLANT_INPUT },
	{ .name = "nan-once", .plant = TRAIN_PLANT_ONCE },
	{ .name = "nan-gradient", .plant = TRAIN_PLANT_GRADIENT },
	{ .name = "nan-weight", .plant = TRAIN_PLANT_WEIGHT },
	{ .name = "flip", .plant = TRAIN_PLANT_FLIP },
	{ .name = "memory", .cause = cause_memory },
	{ .name = "collectives", .cause = cause_collectives },
	{ .name = "stuck", .cause = cause_stuck },
	{ .name = "spin", .cause = cause_spin },
	{ .name = "poison", .poisons = true },
};

/* Reads the word at *text, and moves *text behind it and a blank. NULL: it is not a kind. */
static const struct kind *read_kind(const char **text)
{
	size_t n = strcspn(*text, " ");
	const struct kind *found = NULL;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strlen(kinds[i].name) == n && !memcmp(*text, kinds[i].name, n))
			found = &kinds[i];
	*text += n + ((*text)[n] == ' ');
	return found;
}

/* Reads a number from 0 to max, and moves *text behind it and a blank. */
static bool read_number(const char **text, int64_t max, int64_t *out)
{
	char *end;
	errno = 0;
	long long n = strtoll(*text, &end, 10);
	if (errno || end == *text || n < 0 || n > max || (*end && *end != ' '))
		return false;
	*out = n;
	*text = end + (*end == ' ');
	return true;
}

bool agent_drill_armed(void)
{
	const char *text = getenv(AGENT_ENV_DRILL_FAULT);
	return text && *text && getenv(AGENT_ENV_DRILL_MARK);
}

int agent_drill_open(struct agent_drill *d, int rank, uint32_t generation, struct err *e)
{
	const char *text = getenv(AGENT_ENV_DRILL_FAULT), *at = text;
	int64_t of, step, bytes;
	*d = (struct agent_drill){ .cause = NULL };
	if (!text || !*text || !getenv(AGENT_ENV_DRILL_MARK))
		return 0;
	const struct kind *kind = read_kind(&at);
	if (!kind || !read_number(&at, INT_MAX, &of) || !read_number(&at, INT64_MAX, &step) ||
	    !read_number(&at, INT64_MAX, &bytes) || *at)
		return err_set(e, ERR_USAGE,
			       AGENT_ENV_DRILL_FAULT
			       " is \"%.60s\", but must be \"KIND RANK STEP BYTES\" with a kind "
			       "of agent/drill.h; remove it from the environment",
			       text);
	if (of != rank || (generation != 1 && !kind->poisons))
		return 0;
	*d = (struct agent_drill){ .cause = kind->cause,
				   .plant = kind->plant,
				   .poisons = kind->poisons,
				   .step = step,
				   .bytes = bytes };
	if (d->poisons) {
		log_info("a drill: sample %lld of the data makes this rank's gradients NaN",
			 (long long)step);
		return 0;
	}
	log_info("a drill: this agent causes the fault \"%s\" after step %lld", kind->name,
		 (long long)step);
	return 0;
}

int agent_drill_step(void *drill, int64_t step, bool *poison, struct err *e)
{
	struct agent_drill *d = drill;
	if (!d->cause || step != d->step)
		return 0;
	int (*cause)(const struct agent_drill *, bool *, struct err *) = d->cause;
	d->cause = NULL; /* it comes once */
	return cause(d, poison, e);
}

enum train_plant agent_drill_plant(void *drill, int64_t step)
{
	const struct agent_drill *d = drill;
	return step == d->step ? d->plant : TRAIN_PLANT_NOTHING;
}

bool agent_drill_data(void *drill, int64_t first, int64_t end)
{
	const struct agent_drill *d = drill;
	return d->poisons && first <= d->step && d->step < end;
}
