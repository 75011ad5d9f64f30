#include "base/human.h"
#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/cli/command.h"
#include "launcher/cli/event_text.h"
#include "launcher/cli/output.h"
#include "launcher/cli/run_words.h"
#include "launcher/console/look.h"
#include "launcher/rundir/agents.h"
#include "launcher/rundir/find.h"
#include "launcher/rundir/output.h"
#include "launcher/rundir/split.h"
#include "launcher/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"muster events — print what happened to a run\n"
	"\n"
	"SYNOPSIS\n"
	"  muster events RUN [--follow] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/. The run may have\n"
	"  ended or go on.\n"
	"\n"
	"  Each event of events.jsonl and its earlier parts has a line with its time, its\n"
	"  generation, its name and what it says. The agents that connect to a generation have\n"
	"  one line together. doc/reference/run-files.md describes every event and its fields.\n"
	"  Damaged lines are left out and counted on stderr, also a last line that the end of\n"
	"  the supervisor has cut.\n"
	"\n"
	"OPTIONS\n"
	"  --follow  go on with new events until interrupted\n"
	"  --json    print the lines of the file, one JSON object each\n"
	"\n"
	"EXAMPLES\n"
	"  muster events runs/mine\n"
	"  muster events mine --json | jq 'select(.event == \"restart\")'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done\n"
	"  1  the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, or its events cannot be read\n";

enum { READ_BYTES = 1 << 16 };

struct printing {
	bool json, failed;
	struct segments_reader reader;
	struct rundir_split split;
	int64_t damaged, lines;
	int newer; /* the version of a newer muster; 0: none */
	/* agents that have connected and are not printed yet */
	int64_t agents, generation;
	double time;
};

static void print_row(struct printing *p, double time, int64_t generation, const char *event,
		      const char *what)
{
	char when[32];
	if (!p->lines++)
		p->failed |= printf("%-19s  %3s  %-16s  %s\n", "TIME", "GEN", "EVENT", "WHAT") < 0;
	p->failed |= printf("%-19s  %3lld  %-16s  %s\n", command_time_text(time, when),
			    (long long)generation, event, what) < 0;
}

static void print_agents(struct printing *p)
{
	char what[64];
	if (!p->agents)
		return;
	snprintf(what, sizeof what, "%lld agent%s connected", (long long)p->agents,
		 p->agents == 1 ? " has" : "s have");
	print_row(p, p->time, p->generation, "hello", what);
	p->agents = 0;
}

static void print_event(struct printing *p, const json_t *o)
{
	char name[64];
	const json_t *number = json_object_get(o, "generation");
	int64_t generation = json_integer_value(number);
	double time = json_number_value(json_object_get(o, "time"));
	snprintf(name, sizeof name, "%s", json_string_value(json_object_get(o, "event")));
	human_plain(name);
	bool agent = !strcmp(name, "hello");
	if (!agent || generation != p->generation)
		print_agents(p);
	if (agent) {
		p->agents += rundir_agents_of(o, NULL, NULL);
		p->generation = generation;
		p->time = time;
		return;
	}
	struct buf what = BUF_INIT;
	command_event_text(o, &what);
	char *text = buf_take(&what);
	if (text)
		human_plain(text);
	print_row(p, time, generation, name, text ? text : "");
	free(text);
}

/* Every event has a name, a time and a generation. */
static bool is_event(const json_t *o)
{
	const json_t *generation = json_object_get(o, "generation");
	return json_is_string(json_object_get(o, "event")) &&
	       json_is_number(json_object_get(o, "time")) && json_is_integer(generation) &&
	       json_integer_value(generation) >= 0;
}

static void take_line(void *printing, const char *line, size_t n)
{
	struct printing *p = printing;
	struct rundir_head head;
	json_t *o;
	if (!n)
		return;
	if (rundir_head_read(line, n, &head, &o)) {
		p->newer = head.version > RUNDIR_VERSION ? head.version : p->newer;
		json_decref(o);
		return;
	}
	o = json_loadb(line, n, 0, NULL);
	if (!is_event(o))
		p->damaged++;
	else if (p->json)
		p->failed |= command_print_json_text(line, n) != 0;
	else
		print_event(p, o);
	json_decref(o);
}

/* Whether a supervisor may be at work. */
static bool is_written(const char *run)
{
	struct look l;
	if (console_look(run, LOOK_QUICK, &l, NULL))
		return false;
	bool active = rundir_state_active(l.id);
	console_look_fini(&l);
	return active;
}

/* What follows the last newline: an event whose newline is missing, a line that a supervisor has begun
 * and goes on with, or one that it could not finish. */
static void take_rest(struct printing *p)
{
	const struct buf *rest = &p->split.part;
	if (!rest->len || p->split.skipping)
		return;
	json_t *o = json_loadb(rest->data, rest->len, 0, NULL);
	if (o || !is_written(p->reader.folder))
		take_line(p, rest->data, rest->len);
	json_decref(o);
}

/* Prints what there is by now; `last`: no more is read. */
static int print_more(struct printing *p, char *data, bool last, struct err *e)
{
	ssize_t n = 0;
	while (!p->failed && !p->newer && (n = segments_read(&p->reader, data, READ_BYTES, e)) > 0)
		rundir_split_feed(&p->split, data, (size_t)n, take_line, p);
	if (last && !n && !p->failed && !p->newer)
		take_rest(p);
	print_agents(p);
	p->failed |= fflush(stdout) != 0;
	if (p->newer)
		return rundir_head_check(&(struct rundir_head){ .format = RUN_EVENTS,
								.version = p->newer },
					 p->reader.folder, e);
	return n < 0 ? -1 : 0;
}

static int print_all(struct printing *p, bool follow, struct err *e)
{
	char *data = malloc(READ_BYTES);
	int rc = data ? 0 : err_set(e, ERR_NOMEM, "no memory to read the events");
	if (follow)
		command_follow_begin();
	while (!rc && !(rc = print_more(p, data, !follow, e)) && follow && !p->failed)
		if (!command_follow_wait())
			break;
	free(data);
	int64_t damaged = p->damaged + p->split.too_long;
	if (damaged)
		fprintf(stderr, "muster: %s/" RUN_EVENTS ": %lld damaged line%s skipped\n",
			p->reader.folder, (long long)damaged, damaged == 1 ? " was" : "s were");
	return rc;
}

int cmd_events(int argc, char **argv)
{
	bool follow = false;
	const char *word;
	char run[RUN_PATH];
	struct err e = ERR_INIT;
	struct printing *p = calloc(1, sizeof *p);
	const struct command_option options[] = {
		{ "--follow", &follow, NULL },
		{ "--json", p ? &p->json : NULL, NULL },
		{ NULL, NULL, NULL },
	};
	int status = STATUS_CANNOT_START;
	if (command_wants_help(argc, argv))
		status = command_help(help);
	else if (!p)
		err_set(&e, ERR_NOMEM, "no memory to read the events");
	else if (!(status = command_runs(argc, argv, options, &word, 1))) {
		if (rundir_find(word, run, &e)) {
			status = command_fail(&e);
		} else {
			segments_reader_init(&p->reader, run, RUN_EVENTS);
			status = print_all(p, follow, &e)
					 ? command_fail(&e)
					 : command_output_end(p->failed ? STATUS_FAILED
									: STATUS_DONE);
			segments_reader_fini(&p->reader);
			rundir_split_fini(&p->split);
		}
	}
	free(p);
	return status;
}
