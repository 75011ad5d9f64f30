#include "launcher/stop_cause.h"

static const struct {
	const char *word, *text;
} causes[STOP_CAUSES] = {
	[STOP_BY_PERSON] = { "person", "a signal from outside of Slurm" },
	[STOP_TIME_LIMIT] = { "time-limit", "the job reaches its time limit" },
	[STOP_PREEMPTED] = { "preempted", "Slurm preempts the job" },
	[STOP_CANCELLED] = { "cancelled", "the job was cancelled" },
	[STOP_REQUEUED] = { "requeued", "Slurm has requeued the job" },
};

const char *launcher_stop_cause_word(enum stop_cause c)
{
	return causes[c].word;
}

const char *launcher_stop_cause_text(enum stop_cause c)
{
	return causes[c].text;
}
