#include "launcher/rundir/columns.h"

#include "launcher/rundir/scan.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_ROOM = 1024 };

static const char *const keys[COLUMN_COUNT] = {
#define COLUMN_KEY(ENUM, key) [COLUMN_##ENUM] = key,
	RUNDIR_COLUMNS(COLUMN_KEY)
#undef COLUMN_KEY
#define PART_KEY(with, ENUM, member, name, transfers, doc) \
	[COLUMN_PARTS + STEP_PART_##ENUM] = #member "_s",
		STEP_PARTS(PART_KEY, )
#undef PART_KEY
};

const char *rundir_column_key(enum rundir_column column)
{
	return (unsigned)column < COLUMN_COUNT ? keys[column] : "";
}

/* Either every column grows or `room` stays. */
static bool grow(struct rundir_columns *c)
{
	size_t room = c->room ? 2 * c->room : FIRST_ROOM;
	for (int i = 0; i < COLUMN_COUNT; i++) {
		double *more = reallocarray(c->of[i], room, sizeof *more);
		if (!more)
			return false;
		c->of[i] = more;
	}
	c->room = room;
	return true;
}

bool rundir_columns_add(struct rundir_columns *c, const double row[COLUMN_COUNT])
{
	if (!isfinite(row[COLUMN_STEP]) || (c->n == c->room && !grow(c)))
		return false;
	while (c->n && c->of[COLUMN_STEP][c->n - 1] >= row[COLUMN_STEP])
		c->n--;
	for (int i = 0; i < COLUMN_COUNT; i++)
		c->of[i][c->n] = row[i];
	c->n++;
	c->lines++;
	return true;
}

struct reading {
	struct rundir_columns *out;
	rundir_columns_line each;
	void *arg;
	int64_t refused;
};

static void add_line(void *arg, const double *values)
{
	struct reading *r = arg;
	if (!rundir_columns_add(r->out, values))
		r->refused++;
	else if (r->each)
		r->each(r->arg, values);
}

int rundir_columns_read(const char *run, struct rundir_columns *out, rundir_columns_line each,
			void *arg, struct err *e)
{
	struct reading r = { out, each, arg, 0 };
	int64_t damaged = 0;
	int rc = rundir_metrics_scan(run, keys, COLUMN_COUNT, add_line, &r, &damaged, e);
	out->damaged = damaged + r.refused;
	return rc;
}

void rundir_columns_fini(struct rundir_columns *c)
{
	for (int i = 0; i < COLUMN_COUNT; i++)
		free(c->of[i]);
	*c = (struct rundir_columns){ 0 };
}
