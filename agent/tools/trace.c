#include "agent/tools/tools.h"
#include "base/file.h"
#include "base/human.h"
#include "launcher/rundir/traces.h"
#include "libcomm/flight/diagnose.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char page[] =
	"muster trace — find the rank that held up a run's communication\n"
	"\n"
	"SYNOPSIS\n"
	"  muster trace RUN|DIR|FILE … [--json]\n"
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
	"  RUN is a run's folder: the last files under RUN/trace are read. DIR holds the files\n"
	"  comm-RANK.json of one world; FILE is one of them.\n"
	"\n"
	"OPTIONS\n"
	"  --json        print as JSON: {finding: none|mismatch|message|deadlock|missing, text,\n"
	"                group, op, number, ranks: the ranks at fault, world, missing: ranks\n"
	"                without a file, stacks: [{rank, text, file}, …]}\n"
	"\n"
	"EXAMPLES\n"
	"  muster trace runs/demo\n"
	"  muster trace runs/demo/trace/gen-3 --json\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the ranks agree\n"
	"  1  they disagree\n"
	"  2  usage, or the files cannot be read\n";

enum { STACKS_FILE = 16 << 20 };

/* --- Finding the files --- */

static bool is_folder(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* own: the file is in a folder of the run; otherwise the user named it. */
static int add_file(struct trace *t, const char *path, bool own, struct err *e)
{
	struct buf text = BUF_INIT;
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
		if (run_recorder_rank(at->d_name) < 0)
			continue;
		rc = add_file(t, path, true, e);
		++*found;
	}
	closedir(d);
	return rc;
}

static int add_word(struct trace *t, const char *word, struct err *e)
{
	char newest[RUN_PATH];
	int found;
	if (!is_folder(word))
		return add_file(t, word, false, e);
	if (add_folder(t, word, &found, e))
		return -1;
	if (!found && rundir_last_trace(word, run_recorder_rank, newest) &&
	    add_folder(t, newest, &found, e))
		return -1;
	return found ? 0
		     : err_set(e, ERR_NOTFOUND,
			       "%s: neither the folder nor its trace/gen-N holds files "
			       "comm-RANK.json: no "
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
			 d->op ? comm_op_word(d->op->kind) : NULL, "number",
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
	if (json && tool_print_json(&tool_trace, as_json(t, d)))
		return TOOL_USAGE;
	if (!json)
		printf("%s\n", buf_str(&d->text));
	if (!json)
		print_stacks();
	return d->finding == COMM_FINDING_NONE ? TOOL_OK : TOOL_FAILED;
}

static int diagnose_files(char **words, int n, bool json)
{
	struct err e = ERR_INIT;
	struct trace t = { 0 };
	struct diagnosis d;
	int status = TOOL_USAGE, rc = 0;
	for (int i = 0; i < n && !rc; i++)
		rc = add_word(&t, words[i], &e);
	if (!rc && !comm_diagnose(&t, &d, &e)) {
		status = print_diagnosis(&t, &d, json);
		comm_diagnosis_fini(&d);
	} else {
		tool_fail(&tool_trace, &e);
	}
	comm_trace_fini(&t);
	json_decref(stacks);
	stacks = NULL;
	return status;
}

static int trace_main(int argc, char **argv)
{
	return tool_words(&tool_trace, argc, argv,
			  "name a run's folder, a folder of comm-RANK.json files, or such files",
			  diagnose_files);
}

const struct tool tool_trace = { "trace", NULL, trace_main,
				 "find the rank that held up a run's communication", page };
