/* Why Slurm stops a job, from what scontrol says about it. */
#include "launcher/slurm/stop_cause.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The fields that Slurm 22.05 prints, the signal coming at 18:27:00. */
static const struct {
	enum stop_cause cause;
	const char *state;
} scenes[] = {
	{ STOP_TIME_LIMIT, "JobState=RUNNING Reason=None Restarts=0 EndTime=2026-11-22T18:28:30 "
			   "PreemptTime=None" },
	{ STOP_TIME_LIMIT, "JobState=COMPLETING Reason=TimeLimit Restarts=0 "
			   "EndTime=2026-11-22T18:26:59 PreemptTime=None" },
	{ STOP_PREEMPTED, "JobState=RUNNING Reason=None Restarts=0 EndTime=Unknown "
			  "PreemptTime=2026-11-22T18:26:59" },
	{ STOP_PREEMPTED, "JobState=SIGNALING Reason=None Restarts=0 EndTime=Unknown "
			  "PreemptTime=2026-11-22T18:26:59" },
	/* its grace time ends before its time limit */
	{ STOP_PREEMPTED, "JobState=RUNNING Reason=None Restarts=0 EndTime=2026-11-22T18:27:20 "
			  "PreemptTime=2026-11-22T18:26:59" },
	{ STOP_REQUEUED, "JobState=COMPLETING Reason=None Restarts=1 EndTime=Unknown" },
	{ STOP_REQUEUED, "JobState=PENDING Reason=BeginTime Restarts=1 EndTime=Unknown" },
	{ STOP_CANCELLED, "JobState=COMPLETING Reason=None Restarts=0 "
			  "EndTime=2026-11-22T18:27:00 PreemptTime=None" },
	{ STOP_CANCELLED, "JobState=CANCELLED Reason=None Restarts=0 PreemptTime=None" },
	{ STOP_PREEMPTED, "JobState=PREEMPTED Reason=None Restarts=0 EndTime=2026-11-22T18:27:20 "
			  "PreemptTime=2026-11-22T18:27:20" },
	{ STOP_PREEMPTED, "JobState=COMPLETING Reason=None Restarts=0 EndTime=2026-11-22T18:27:20 "
			  "PreemptTime=2026-11-22T18:27:20" },
	{ STOP_CANCELLED, "JobState=COMPLETING Reason=None Restarts=0 EndTime=2026-11-22T18:27:20 "
			  "PreemptTime=2026-11-22T17:27:20" },
	{ STOP_BY_PERSON, "JobState=RUNNING Reason=None Restarts=0 EndTime=Unknown "
			  "PreemptTime=None" },
	{ STOP_BY_PERSON, "JobState=RUNNING Reason=None Restarts=0 EndTime=2026-11-22T22:00:00 "
			  "PreemptTime=None" },
	/* times in a format that is not known say nothing */
	{ STOP_BY_PERSON, "JobState=RUNNING Reason=None Restarts=0 EndTime=18:28 "
			  "PreemptTime=(null)" },
};

static enum stop_cause cause_of(const char *state, int restarts, int64_t signal_before)
{
	char line[512];
	struct job_record r;
	struct tm tm = { .tm_isdst = -1 };
	snprintf(line, sizeof line, "JobId=8 %s\n", state);
	assert_int_equal(slurm_job_record_parse(line, "8", &r, NULL), 0);
	assert_non_null(strptime("2026-11-22T18:27:00", "%Y-%m-%dT%H:%M:%S", &tm));
	enum stop_cause c = slurm_stop_cause_of(&r, mktime(&tm), restarts, signal_before);
	slurm_job_record_free(&r);
	return c;
}

static void each_state_has_its_cause(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		if (cause_of(scenes[i].state, 0, 60) != scenes[i].cause)
			fail_msg("%s: %s", scenes[i].state,
				 launcher_stop_cause_word(cause_of(scenes[i].state, 0, 60)));
}

static void only_a_new_restart_is_a_requeue(void **state)
{
	(void)state;
	assert_int_equal(cause_of("JobState=COMPLETING Reason=None Restarts=3", 3, 60),
			 STOP_CANCELLED);
	assert_int_equal(cause_of("JobState=COMPLETING Reason=None Restarts=4", 3, 60),
			 STOP_REQUEUED);
}

static void the_time_limit_is_near_as_far_as_the_signal_is_early(void **state)
{
	static const char *text = "JobState=RUNNING Reason=None EndTime=2026-11-22T18:37:00";
	(void)state;
	assert_int_equal(cause_of(text, 0, 120), STOP_BY_PERSON);
	assert_int_equal(cause_of(text, 0, 600), STOP_TIME_LIMIT);
}

static void every_cause_has_words(void **state)
{
	(void)state;
	for (int c = 0; c < STOP_CAUSES; c++) {
		assert_true(*launcher_stop_cause_word((enum stop_cause)c));
		assert_true(*launcher_stop_cause_text((enum stop_cause)c));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_has_its_cause),
		cmocka_unit_test(only_a_new_restart_is_a_requeue),
		cmocka_unit_test(the_time_limit_is_near_as_far_as_the_signal_is_early),
		cmocka_unit_test(every_cause_has_words),
	};
	setenv("TZ", "UTC", 1);
	return cmocka_run_group_tests_name("why Slurm stops a job", tests, NULL, NULL);
}
