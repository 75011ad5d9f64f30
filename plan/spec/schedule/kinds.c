/* The table of schedules: one row for each line of the list in kinds.h. */
#include "plan/spec/schedule/closed_form.h"
#include "plan/spec/schedule/order.h"

#include <stddef.h>

#define X(name, row, word, doc) extern const struct schedule_kind schedule_##row;
SCHEDULE_LIST(X)
#undef X

const struct schedule_kind *const schedule_kinds[SCHEDULES] = {
#define X(name, row, word, doc) [SCHEDULE_##name] = &schedule_##row,
	SCHEDULE_LIST(X)
#undef X
};

const char *const schedule_words[SCHEDULES + 1] = {
#define X(name, row, word, doc) [SCHEDULE_##name] = word,
	SCHEDULE_LIST(X)
#undef X
		[SCHEDULES] = NULL,
};

bool schedule_splits(enum job_schedule kind)
{
	return schedule_kinds[kind]->splits;
}

int schedule_enough_micros(enum job_schedule kind, int pp, int micros)
{
	const struct schedule_kind *k = schedule_kinds[kind];
	return k->enough_micros ? k->enough_micros(pp, micros) : micros;
}

double schedule_seconds(const struct pipeline_times *p, enum job_schedule kind, int chunks,
			int micros, double hop)
{
	if (p->ranks == 1)
		return micros * p->busy;
	return schedule_kinds[kind]->seconds(p, chunks, micros, hop);
}
