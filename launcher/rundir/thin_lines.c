/* Which lines of an old segment stay when it is thinned. */
#include "launcher/rundir/scan.h"
#include "launcher/rundir/thin.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Each thinning leaves one line of so many. */
enum { LEAVES = 8, NAMES_MAX = 96, NAME_BYTES = 32, STORY_LEVELS = 3 };

/* The generations whose agents may still run. */
enum { LIVE_GENERATIONS = 2 };

static const char *const dropped[] = { "hello", "log", "refused", NULL };

/* What a person needs to see how a run has gone. */
#define RUNDIR_THIN_STORY(X) \
	X("plan") \
	X("generation-start") \
	X("first-step") \
	X("rank-lost") \
	X("fault") \
	X("verdict") \
	X("decision") \
	X("restart") \
	X("rollback") \
	X("stop") \
	X("contract") \
	X("finished") \
	X("done") \
	X("stopped") \
	X("failed") \
	X("gave-up")
#define STORY_WORD(word) word,
static const char *const story[] = { RUNDIR_THIN_STORY(STORY_WORD) NULL };

/* Agents of generations that have just been are found by these. */
static const char *const agents[] = { "hello", "ready", NULL };

enum column { STEP, GENERATION, COLUMNS };

struct rundir_thin_filter {
	enum rundir_file file;
	int level;
	double live; /* the first generation whose agents may still run */
	struct rundir_scan scan;
	double before; /* the generation of the line before; NAN: none */
	bool began;    /* the line before was the first of its generation */
	double next[COLUMNS];
	bool peeked; /* `next` holds the values of the line that comes */
	int64_t lines;
	struct {
		char name[NAME_BYTES];
		int64_t lines;
	} events[NAMES_MAX];
	int n_events;
};

int rundir_thin_filter_open(enum rundir_file file, int level, uint32_t generation,
			    struct rundir_thin_filter **out, struct err *e)
{
	static const char *const keys[COLUMNS] = { [STEP] = "step", [GENERATION] = "generation" };
	struct rundir_thin_filter *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "no memory to thin old lines");
	f->file = file;
	f->level = level;
	f->before = NAN;
	f->live = (double)generation - (LIVE_GENERATIONS - 1);
	rundir_scan_init(&f->scan, keys, COLUMNS);
	*out = f;
	return 0;
}

void rundir_thin_filter_close(struct rundir_thin_filter *f)
{
	free(f);
}

static bool is_one_of(const char *const *list, const char *name)
{
	while (*list && strcmp(*list, name))
		list++;
	return *list != NULL;
}

/* The event's name. A line of another form has the name "". */
static void event_name(const char *line, size_t n, char out[NAME_BYTES])
{
	static const char begin[] = "{\"event\":\"";
	const char *from = line + sizeof begin - 1;
	*out = '\0';
	if (n < sizeof begin || memcmp(line, begin, sizeof begin - 1))
		return;
	const char *end = memchr(from, '"', n - (sizeof begin - 1));
	if (!end || end - from >= NAME_BYTES)
		return;
	memcpy(out, from, (size_t)(end - from));
	out[end - from] = '\0';
}

/* Counts the lines of this name from 0. Names that do not fit into the table share the last place. */
static int64_t count_event(struct rundir_thin_filter *f, const char *name)
{
	int i = 0;
	while (i < f->n_events && strcmp(f->events[i].name, name))
		i++;
	if (i == NAMES_MAX)
		i--;
	else if (i == f->n_events)
		strcpy(f->events[f->n_events++].name, name);
	return f->events[i].lines++;
}

static bool keeps_event(struct rundir_thin_filter *f, const char *line, size_t n,
			const double *values)
{
	char name[NAME_BYTES];
	event_name(line, n, name);
	if (values[GENERATION] >= f->live && is_one_of(agents, name))
		return true;
	if (is_one_of(dropped, name))
		return false;
	if (f->level == 1 || (f->level <= STORY_LEVELS && is_one_of(story, name)))
		return true;
	return count_event(f, name) % LEAVES == 0;
}

static bool is_multiple(double step, int level)
{
	double of = ldexp(1, 3 * level); /* 8^level */
	return fmod(step, of) == 0;
}

bool rundir_thin_keeps(struct rundir_thin_filter *f, const char *line, size_t n, const char *next,
		       size_t next_n)
{
	double values[COLUMNS];
	bool whole = true;
	if (f->peeked)
		memcpy(values, f->next, sizeof values);
	else
		whole = rundir_scan_line(&f->scan, line, n, values);
	f->peeked = next && rundir_scan_line(&f->scan, next, next_n, f->next);
	if (!whole)
		return false;
	if (f->file == RUNDIR_EVENTS)
		return keeps_event(f, line, n, values);
	/* NAN differs from each number, and so does a line that is missing. */
	bool begins = !(values[GENERATION] == f->before);
	bool edge = begins || !(f->peeked && f->next[GENERATION] == values[GENERATION]) ||
		    (f->began && f->file == RUNDIR_TIME);
	f->before = values[GENERATION];
	f->began = begins;
	if (f->file == RUNDIR_METRICS)
		return edge || is_multiple(values[STEP], f->level);
	return edge || f->lines++ % LEAVES == 0;
}
