/* muster trace: a tool of muster-agent (cmd_tool.c). With --next the supervisor of a running run is asked
 * before to have the next steps recorded. */
#include "base/ranges.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/request.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recording {
	int64_t first, last;
	char folder[RUN_PATH]; /* "": the steps are not recorded */
	bool draws;
};

static json_t *as_json(const struct msg_console_answer *a)
{
	return json_pack("{s:b, s:s, s:o*, s:o*, s:s*}", "ok", a->ok, "text", a->text, "first",
			 a->has_step ? json_integer(a->step) : NULL, "last",
			 a->has_last ? json_integer(a->last) : NULL, "path",
			 a->has_path ? a->path : NULL);
}

static int note_end(const struct command_request *r, const struct msg_console_answer *a)
{
	struct recording *to = r->arg;
	int status = a->ok ? STATUS_DONE : STATUS_FAILED;
	if (a->ok && a->has_step && a->has_last && a->has_path) {
		to->first = a->step;
		to->last = a->last;
		snprintf(to->folder, sizeof to->folder, "%s", a->path);
	}
	if (!r->as_json)
		command_request_say(a->text);
	else if (!*to->folder || !to->draws)
		status = command_output_json(as_json(a), status);
	return status;
}

static int follow_trace(const struct command_request *r, struct console_line *line)
{
	struct msg_console_answer a;
	struct err e = ERR_INIT;
	json_t *body;
	if (command_request_await(line, &body, &a, &e)) {
		err_prefix(&e, "the run ended before the steps were written");
		return note_end(r, &(struct msg_console_answer){ .text = e.text });
	}
	int status = note_end(r, &a);
	json_decref(body);
	return status;
}

/* The picture of exactly these steps. Returns only after an error. */
static int draw(const struct recording *of, const char *file, const char *ranks, bool json)
{
	char steps[64], *words[12] = { "trace", (char *)of->folder, "--steps",
				       steps,   "--output",         (char *)file };
	int n = 6;
	snprintf(steps, sizeof steps, "%" PRId64 "-%" PRId64, of->first, of->last);
	if (ranks) {
		words[n++] = "--ranks";
		words[n++] = (char *)ranks;
	}
	if (json)
		words[n++] = "--json";
	return cmd_tool(n, words);
}

struct trace_words {
	const char *next, *file, *ranks, *run;
	bool json;
};

static int read_words(int argc, char **argv, struct trace_words *w)
{
	static const struct option options[] = {
		{ "next", required_argument, NULL, 'n' },
		{ "output", required_argument, NULL, 'o' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ 0 },
	};
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":o:", options, NULL)) != -1;) {
		if (c == 'n')
			w->next = optarg;
		else if (c == 'o')
			w->file = optarg;
		else if (c == 'r')
			w->ranks = optarg;
		else if (c == 'j')
			w->json = true;
		else
			return command_misuse("trace",
					      c == ':' ? "%s needs a value"
						       : "%s cannot be used with --next",
					      argv[optind - 1]);
	}
	if (argc - optind != 1)
		return command_misuse("trace", "with --next, name one running run");
	w->run = argv[optind];
	return w->ranks && !w->file ? command_misuse("trace", "--ranks needs -o FILE") : 0;
}

/* The number of steps; 0 after an error. */
static int read_count(const char *text)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < 1 || n > TRACE_STEPS_MOST) {
		command_misuse("trace", "--next: \"%s\" is not a number of steps from 1 to %d",
			       text, TRACE_STEPS_MOST);
		return 0;
	}
	return (int)n;
}

static int record_next(int argc, char **argv)
{
	struct trace_words w = { 0 };
	struct ranges ranks;
	struct err e = ERR_INIT;
	struct recording got = { 0 };
	struct command_request r = {
		.what = "trace", .waits = true, .follow = follow_trace, .arg = &got
	};
	int status = read_words(argc, argv, &w);
	if (status)
		return status;
	if (!(r.count = read_count(w.next)))
		return STATUS_USAGE;
	r.as_json = w.json;
	if ((w.ranks && ranges_parse(w.ranks, &ranks, &e)) || rundir_find(w.run, r.run, &e))
		return command_request_fail(&r, &e);
	got.draws = w.file != NULL;
	status = command_request(&r);
	return *got.folder && w.file ? draw(&got, w.file, w.ranks, w.json) : status;
}

int cmd_trace(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if ((!strcmp(argv[i], "--next") || !strncmp(argv[i], "--next=", 7)) &&
		    !command_wants_help(argc, argv))
			return record_next(argc, argv);
	return cmd_tool(argc, argv);
}
