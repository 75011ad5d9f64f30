#include "agent/tools/tools.h"
#include "agent/tools/torch_files.h"
#include "agent/tools/trace_steps.h"
#include "base/file.h"
#include "base/human.h"
#include "launcher/rundir/find.h"
#include "launcher/rundir/traces.h"
#include "libcomm/flight/diagnose.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char page[] =
	"muster trace — find the rank that held up a run's communication; record and draw steps\n"
	"\n"
	"SYNOPSIS\n"
	"  muster trace RUN|DIR|FILE … [--json]\n"
	"  muster trace RUN|DIR -o FILE [--steps FIRST-LAST] [--ranks LIST] [--json]\n"
	"  muster trace RUN --next N [-o FILE [--ranks LIST]] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Every rank records its last operations of each group of ranks. It writes them to a "
	"file\n"
	"  if an operation fails, or if the launcher asks for it because the run makes no\n"
	"  progress. This command reads the files of all ranks and prints one sentence about "
	"where\n"
	"  they disagree: ranks that called different operations at the same point (another\n"
	"  operation, size, type or root), a send and a receive of different sizes, ranks that\n"
	"  wait for each other (a deadlock), or a rank that never called an operation. A rank "
	"that\n"
	"  was killed writes no file; it is named if other ranks wait for it.\n"
	"\n"
	"  Before muster ends the ranks of a hang, it examines some of them: the one that hung\n"
	"  first, and one that waits. For each, a line follows: what its process did, and the "
	"file\n"
	"  with the states and stacks of its threads, stacks-RANK.txt. Functions are known if gdb\n"
	"  or eu-stack (elfutils) is installed on the node.\n"
	"\n"
	"  The dumps of PyTorch's flight recorder are judged in the same way: the files "
	"torch-RANK\n"
	"  of a run of a program, and nccl_trace_rank_RANK or others that end with the rank. They\n"
	"  are pickles, which are read and never executed, or JSON. PyTorch does not record\n"
	"  reductions and roots.\n"
	"\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/: the last files\n"
	"  under its trace/ are read. DIR holds the files comm-RANK.json or torch-RANK of one\n"
	"  world; FILE is one of them.\n"
	"\n"
	"  With -o, the command writes a picture of steps that were recorded in detail, because\n"
	"  the job has trace.steps=FIRST-LAST or --next asked for them: FILE is in the Trace Event "
	"Format, for Perfetto\n"
	"  (https://ui.perfetto.dev reads it in the browser, without sending it anywhere) and\n"
	"  chrome://tracing. Each rank is a process. Its first track shows the steps and their\n"
	"  phases and passes, and each group of ranks has a track with its operations. Arrows\n"
	"  lead from sent to received messages. The clocks of different hosts are aligned by the\n"
	"  operations that all ranks leave together.\n"
	"\n"
	"  With --next, a running run records its next N steps in detail. All ranks record the\n"
	"  same ones and train on while they write them. The command waits until all have done\n"
	"  so. A run records one request at a time, and steps of trace.steps before it. Each\n"
	"  recording replaces an earlier one of the same generation.\n"
	"\n"
	"OPTIONS\n"
	"  --next N              have the running run RUN record its next N steps, at most 1000;\n"
	"                        and not more operations than a rank keeps (262,144)\n"
	"  -o, --output FILE     write the picture of the steps to FILE\n"
	"  --steps FIRST-LAST    with -o: these steps, or one (default: all that were recorded)\n"
	"  --ranks LIST          with -o: these ranks, such as 0-7,12 (default: all)\n"
	"  --json                print as JSON: {finding: none|mismatch|message|deadlock|missing,\n"
	"                        text, group, op, number, ranks: the ranks at fault, world,\n"
	"                        missing: ranks without a file, stacks: [{rank, text, file}, …]};\n"
	"                        with -o: {file, ranks, others: ranks whose files hold\n"
	"                        other steps, first, last, events, lost,\n"
	"                        clocks_us: the largest difference of two hosts' clocks};\n"
	"                        with --next and without -o, or if it fails: {ok, text, and, if\n"
	"                        steps are recorded, first, last, path: the folder}\n"
	"\n"
	"EXAMPLES\n"
	"  muster trace runs/demo\n"
	"  muster trace runs/demo/trace/gen-3 --json\n"
	"  muster run job.ini trace.steps=40-44\n"
	"  muster trace runs/job --steps 41-42 -o trace.json\n"
	"  muster trace runs/job --next 5 -o trace.json\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the ranks agree; with -o: the file is written; with --next: the steps are recorded\n"
	"  1  they disagree; with -o: the file cannot be written; with --next: the steps are not\n"
	"     recorded; or the output cannot be printed\n"
	"  2  usage\n"
	"  3  there is no such run, it has no such files, or they cannot be read; with --next: it\n"
	"     does not train now, it records steps already, or its supervisor cannot be asked\n";

enum { STACKS_FILE = 16 << 20 };

/* --- Finding the files --- */

static bool is_folder(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Those that were found. They are read last. */
static struct torch_files torch;

/* own: the file is in a folder of the run; otherwise the user named it. */
static int add_file(struct trace *t, const char *path, bool own, struct err *e)
{
	struct buf text = BUF_INIT;
	int rank = own ? -1 : tool_torch_file_rank(path);
	if (rank >= 0)
		return tool_torch_files_add(&torch, path, rank, false, e);
	int rc = (own ? file_slurp_own : file_slurp)(path, TRACE_FILE, &text, e);
	if (!rc)
		rc = comm_trace_add(t, buf_str(&text), text.len, path, e);
	buf_fini(&text);
	return rc;
}

/* The ranks that were examined; NULL: no folder was read. */
static json_t *stacks;

/* Keeps the order of the ranks. */
static void add_examined(long rank, const char *text, const char *path)
{
	size_t at = 0;
	stacks = stacks ? stacks : json_array();
	while (at < json_array_size(stacks) &&
	       json_integer_value(json_object_get(json_array_get(stacks, at), "rank")) < rank)
		at++;
	json_array_insert_new(stacks, at,
			      json_pack("{s:I, s:s, s:s}", "rank", (json_int_t)rank, "text", text,
					"file", path));
}

/* Adds the first line of a file of stacks: "rank 2, process 4711: its process is stopped by a
 * signal". */
static void add_stacks(const char *path, long rank)
{
	struct buf text = BUF_INIT;
	if (!file_slurp_own(path, STACKS_FILE, &text, NULL)) {
		const char *all = buf_str(&text), *at = strchr(all, ',');
		size_t line = strcspn(all, "\n");
		char *first = strndup(at && at < all + line ? at + 2 : all, line);
		if (first) {
			first[strcspn(first, "\n")] = '\0';
			human_plain(first);
			add_examined(rank, first, path);
		}
		free(first);
	}
	buf_fini(&text);
}

/* The rank of a recorder's file, muster's or PyTorch's. */
static long recorder_rank(const char *name)
{
	long rank = run_recorder_rank(name);
	return rank >= 0 ? rank : run_torch_rank(name);
}

static int add_recorder(struct trace *t, const char *name, const char *path, struct err *e)
{
	return run_recorder_rank(name) >= 0
		       ? add_file(t, path, true, e)
		       : tool_torch_files_add(&torch, path, (int)run_torch_rank(name), true, e);
}

/* Adds all files of the folder. Sets *found to their number. */
static int add_folder(struct trace *t, const char *dir, int *found, struct err *e)
{
	char path[RUN_PATH];
	int rc = 0;
	DIR *d = opendir(dir);
	if (!d)
		return err_errno(e, ERR_IO, "%s: cannot read the folder", dir);
	*found = 0;
	for (struct dirent *at; !rc && (at = readdir(d));) {
		snprintf(path, sizeof path, "%.3000s/%.255s", dir, at->d_name);
		if (run_stacks_rank(at->d_name) >= 0)
			add_stacks(path, run_stacks_rank(at->d_name));
		if (recorder_rank(at->d_name) < 0)
			continue;
		rc = add_recorder(t, at->d_name, path, e);
		++*found;
	}
	closedir(d);
	return rc;
}

/* A word that is no path may be the name of a run. */
static const char *find_word(const char *word, char run[RUN_PATH])
{
	return access(word, F_OK) && !rundir_find(word, run, NULL) ? run : word;
}

static int add_word(struct trace *t, const char *name, struct err *e)
{
	char newest[RUN_PATH], run[RUN_PATH];
	const char *word = find_word(name, run);
	int found;
	if (!is_folder(word))
		return add_file(t, word, false, e);
	if (add_folder(t, word, &found, e))
		return -1;
	if (!found && rundir_last_trace(word, recorder_rank, newest) &&
	    add_folder(t, newest, &found, e))
		return -1;
	return found ? 0
		     : err_set(e, ERR_NOTFOUND,
			       "%s: neither the folder nor its trace/gen-N holds files "
			       "comm-RANK.json or torch-RANK: no "
			       "operation of a run there has failed",
			       word);
}

/* --- Printing --- */

static json_t *as_json(const struct trace *t, struct diagnosis *d)
{
	json_t *ranks = json_array(), *missing = json_array();
	for (int i = 0; i < d->n; i++)
		json_array_append_new(ranks, json_integer(d->ranks[i]));
	for (int r = 0; r < t->size; r++)
		if (!t->ranks[r].there)
			json_array_append_new(missing, json_integer(r));
	return json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:o, s:i, s:o, s:O}", "finding",
			 comm_finding_word(d->finding), "text", buf_str(&d->text), "group",
			 d->group ? d->group->name : NULL, "op",
			 d->op ? comm_trace_op_word(d->op) : NULL, "number",
			 (json_int_t)(d->op ? d->op->seq : 0), "ranks", ranks, "world", t->size,
			 "missing", missing, "stacks", stacks);
}

static void print_stacks(void)
{
	size_t i;
	json_t *o;
	json_array_foreach(stacks, i, o)
	{
		printf("rank %lld, %s\n  %s\n",
		       (long long)json_integer_value(json_object_get(o, "rank")),
		       json_string_value(json_object_get(o, "text")),
		       json_string_value(json_object_get(o, "file")));
	}
}

static int print_diagnosis(const struct trace *t, struct diagnosis *d, bool json)
{
	stacks = stacks ? stacks : json_array();
	int rc = TOOL_OK;
	if (json) {
		rc = tool_print_json(&tool_trace, as_json(t, d));
	} else {
		printf("%s\n", buf_str(&d->text));
		print_stacks();
		rc = tool_flush(&tool_trace);
	}
	return rc || d->finding != COMM_FINDING_NONE ? TOOL_FAILED : TOOL_OK;
}

static int diagnose_files(char **words, int n, bool json)
{
	struct err e = ERR_INIT;
	struct trace t = { 0 };
	struct diagnosis d;
	struct buf left_out = BUF_INIT;
	int status = TOOL_UNREADABLE, rc = 0;
	for (int i = 0; i < n && !rc; i++)
		rc = add_word(&t, words[i], &e);
	if (!rc)
		rc = tool_torch_files_read(&torch, &t, &left_out, &e);
	if (!rc && !comm_diagnose(&t, &d, &e)) {
		buf_puts(&d.text, buf_str(&left_out));
		status = print_diagnosis(&t, &d, json);
		comm_diagnosis_fini(&d);
	} else {
		tool_fail(&tool_trace, &e);
	}
	comm_trace_fini(&t);
	tool_torch_files_fini(&torch);
	buf_fini(&left_out);
	json_decref(stacks);
	stacks = NULL;
	return status;
}

/* --- A picture of steps --- */

static int print_picture(const struct trace_picture *p, const struct trace_picture_result *r,
			 bool json)
{
	if (json)
		return tool_print_json(&tool_trace,
				       json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:f}", "file",
						 p->to, "ranks", r->ranks, "others", r->others,
						 "first", (json_int_t)r->first, "last",
						 (json_int_t)r->last, "events",
						 (json_int_t)r->events, "lost", (json_int_t)r->lost,
						 "clocks_us", r->most_ahead_us));
	printf("%s: steps %lld to %lld of %d rank%s; open it in https://ui.perfetto.dev\n", p->to,
	       (long long)r->first, (long long)r->last, r->ranks, human_s(r->ranks));
	if (r->others)
		printf("%d rank%s left out: the file%s other steps, of another recording\n",
		       r->others, r->others == 1 ? " is" : "s are",
		       r->others == 1 ? " holds" : "s hold");
	if (r->lost)
		printf("%lld phases and operations are missing: the ranks had no room for them; "
		       "record fewer "
		       "steps\n",
		       (long long)r->lost);
	return tool_flush(&tool_trace);
}

static int draw_steps(struct trace_picture *p, int argc, char **argv, bool json)
{
	struct err e = ERR_INIT;
	struct trace_picture_result result;
	char run[RUN_PATH];
	if (argc - optind != 1)
		return tool_usage(&tool_trace, "with -o, name one run's folder");
	p->from = find_word(argv[optind], run);
	if (!tool_trace_steps(p, &result, &e))
		return print_picture(p, &result, json);
	tool_fail(&tool_trace, &e);
	return result.read ? TOOL_FAILED : TOOL_UNREADABLE;
}

/* "40-44", or one number for both. */
static int read_steps(const char *text, struct trace_steps *out, struct err *e)
{
	struct ranges r;
	if (ranges_parse(text, &r, e))
		return -1;
	if (r.n != 1 || r.list[0].first < 1)
		return err_set(e, ERR_USAGE,
			       "--steps: \"%s\" is not a step or FIRST-LAST, from 1 on", text);
	*out = (struct trace_steps){ r.list[0].first, r.list[0].end - 1 };
	return 0;
}

static int trace_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "output", required_argument, NULL, 'o' },
		{ "steps", required_argument, NULL, 's' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	struct ranges ranks = { 0 };
	struct trace_picture picture = { .steps = { 1, INT64_MAX }, .ranks = &ranks };
	const char *chosen = NULL; /* an option that needs -o */
	struct err e = ERR_INIT;
	bool json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":ho:", options, NULL)) != -1;) {
		int rc = 0;
		if (c == 'j')
			json = true;
		else if (c == 'o')
			picture.to = optarg;
		else if (c == 's')
			rc = read_steps(optarg, &picture.steps, &e);
		else if (c == 'r')
			rc = ranges_parse(optarg, &ranks, &e);
		else
			return tool_option(&tool_trace, c, argv);
		if (rc)
			return tool_fail(&tool_trace, &e);
		chosen = c == 's' ? "--steps" : c == 'r' ? "--ranks" : chosen;
	}
	if (picture.to)
		return draw_steps(&picture, argc, argv, json);
	if (chosen)
		return tool_usage(&tool_trace, "%s needs -o FILE", chosen);
	if (optind == argc)
		return tool_usage(&tool_trace, "name a run's folder, a folder of comm-RANK.json "
					       "files, or such files");
	return diagnose_files(argv + optind, argc - optind, json);
}

const struct tool tool_trace = { "trace", NULL, trace_main,
				 "find the rank that held up a run's communication; draw steps",
				 page };
