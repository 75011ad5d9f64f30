#include "base/run_paths.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDER "comm-"
#define TIMELINE "timeline-"
#define STACKS   "stacks-"
#define STEPS    "steps-"
#define TORCH    "torch-"
#define ERROR    "error-"

enum { DIGITS = 9 }; /* at most, of a number in a name */

void run_path(char out[RUN_PATH], const char *run, const char *name)
{
	snprintf(out, RUN_PATH, "%s/%s", run, name);
}

void run_path_submission(char out[RUN_PATH], const char *run, uint32_t number)
{
	snprintf(out, RUN_PATH, "%s/submit-%" PRIu32 ".ini", run, number);
}

void run_path_script(char out[RUN_PATH], const char *run, uint32_t number)
{
	snprintf(out, RUN_PATH, "%s/submit-%" PRIu32 ".sbatch", run, number);
}

void run_path_plan(char out[RUN_PATH], const char *run, uint32_t generation)
{
	snprintf(out, RUN_PATH, "%s/plan-%" PRIu32 ".json", run, generation);
}

void run_path_rank_log(char out[RUN_PATH], const char *run, const char *node, int rank)
{
	snprintf(out, RUN_PATH, "%s/" RUN_LOGS "/%s-%d.log", run, node, rank);
}

void run_path_launch_log(char out[RUN_PATH], const char *run, uint32_t generation)
{
	snprintf(out, RUN_PATH, "%s/" RUN_LOGS "/launch-%" PRIu32 ".log", run, generation);
}

void run_path_hosts(char out[RUN_PATH], const char *run, uint32_t generation)
{
	snprintf(out, RUN_PATH, "%s/" RUN_LOGS "/hosts-%" PRIu32, run, generation);
}

void run_path_slurm_log(char out[RUN_PATH], const char *run, const char *id)
{
	snprintf(out, RUN_PATH, "%s/" RUN_LOGS "/slurm-%s.out", run, id);
}

void run_path_guard_log(char out[RUN_PATH], const char *run)
{
	snprintf(out, RUN_PATH, "%s/" RUN_LOGS "/guard.log", run);
}

void run_path_trace(char out[RUN_PATH], const char *run, uint32_t generation)
{
	snprintf(out, RUN_PATH, "%s/" RUN_TRACES "/gen-%" PRIu32, run, generation);
}

void run_path_recorder(char out[RUN_PATH], const char *trace, int rank)
{
	snprintf(out, RUN_PATH, "%s/" RECORDER "%d.json", trace, rank);
}

void run_path_timeline(char out[RUN_PATH], const char *trace, int rank)
{
	snprintf(out, RUN_PATH, "%s/" TIMELINE "%d.json", trace, rank);
}

void run_path_stacks(char out[RUN_PATH], const char *trace, int rank)
{
	snprintf(out, RUN_PATH, "%s/" STACKS "%d.txt", trace, rank);
}

void run_path_steps(char out[RUN_PATH], const char *trace, int rank)
{
	snprintf(out, RUN_PATH, "%s/" STEPS "%d.json", trace, rank);
}

void run_path_torch_prefix(char out[RUN_PATH], const char *trace)
{
	snprintf(out, RUN_PATH, "%s/" TORCH, trace);
}

void run_path_error(char out[RUN_PATH], const char *trace, int rank)
{
	snprintf(out, RUN_PATH, "%s/" ERROR "%d.json", trace, rank);
}

void run_path_torch_pipe(char out[RUN_PATH], const char *dir, int rank)
{
	snprintf(out, RUN_PATH, "%s/" TORCH "%d.pipe", dir, rank);
}

/* The number of the name <before><number><after>; -1: the name is of another kind. */
static long number_between(const char *name, const char *before, const char *after)
{
	size_t n = strlen(before);
	if (strncmp(name, before, n))
		return -1;
	size_t digits = strspn(name + n, "0123456789");
	bool padded = digits > 1 && name[n] == '0'; /* muster writes no leading zeros */
	if (digits < 1 || digits > DIGITS || padded || strcmp(name + n + digits, after))
		return -1;
	return strtol(name + n, NULL, 10);
}

long run_submission_number(const char *name)
{
	return number_between(name, "submit-", ".ini");
}

long run_plan_generation(const char *name)
{
	return number_between(name, "plan-", ".json");
}

long run_trace_generation(const char *name)
{
	return number_between(name, "gen-", "");
}

long run_recorder_rank(const char *name)
{
	return number_between(name, RECORDER, ".json");
}

long run_timeline_rank(const char *name)
{
	return number_between(name, TIMELINE, ".json");
}

long run_stacks_rank(const char *name)
{
	return number_between(name, STACKS, ".txt");
}

long run_steps_rank(const char *name)
{
	return number_between(name, STEPS, ".json");
}

long run_torch_rank(const char *name)
{
	static const struct {
		const char *before, *after;
	} names[] = { { TORCH, "" }, { TORCH, ".json" }, { "nccl_trace_rank_", "" } };
	long rank = -1;
	for (size_t i = 0; rank < 0 && i < sizeof names / sizeof *names; i++)
		rank = number_between(name, names[i].before, names[i].after);
	return rank;
}

bool run_is_trace_file(const char *name)
{
	return !strncmp(name, RECORDER, strlen(RECORDER)) ||
	       !strncmp(name, TIMELINE, strlen(TIMELINE)) ||
	       !strncmp(name, STACKS, strlen(STACKS)) || !strncmp(name, STEPS, strlen(STEPS)) ||
	       !strncmp(name, TORCH, strlen(TORCH)) || !strncmp(name, ERROR, strlen(ERROR));
}
