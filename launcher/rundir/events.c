#include "launcher/rundir/events.h"

/* clang-format off */

/* <table>_rows(): the rows of a table. */
#define EVENT_ROWS(table, FIELDS) \
	static const struct fields_row *table##_rows(void) \
	{ \
		typedef struct rundir_##table fields_struct; \
		static const struct fields_row rows[] = { FIELDS(FIELDS_ROW) FIELDS_END }; \
		return rows; \
	}
RUNDIR_TABLES(EVENT_ROWS)

#define EVENT_READER(table, FIELDS) \
	int rundir_read_##table(const json_t *line, struct rundir_##table *fields, struct err *e) \
	{ \
		return fields_read(table##_rows(), line, "event", fields, e); \
	}
RUNDIR_TABLES(EVENT_READER)

#define EVENT_FUNCTION(id, name, table, doc) \
	void rundir_event_##id(struct rundir *r, uint32_t generation, const struct rundir_##table *fields) \
	{ \
		rundir_append_event(r, generation, name, table##_rows(), fields); \
	}
RUNDIR_EVENTS(EVENT_FUNCTION)

/* clang-format on */

void rundir_health(struct rundir *r, uint32_t generation, const struct rundir_health *fields)
{
	rundir_append(r, RUNDIR_HEALTH, generation, health_rows(), fields);
}

json_t *rundir_agent_json(const struct rundir_agent *a)
{
	return fields_json(agent_rows(), a);
}

int rundir_verdict_read(const json_t *o, struct rundir_verdict *v, struct err *e)
{
	return fields_read(verdict_rows(), o, "muster trace --json", v, e);
}
