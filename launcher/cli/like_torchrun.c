#include "launcher/cli/like_torchrun.h"

#include "base/words.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/cli/torchrun_options.h"
#include "launcher/status.h"
#include "plan/spec/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	NAME = 64,
	MOST = 65536,                  /* nodes, and ranks on each */
	PROGRAM_MAX = JOB_PROGRAM - 1, /* bytes */
};

static const struct torchrun_option *const options = command_torchrun_options;

/* The keys that a line can decide, in the order of the file. */
static const char *const keys[] = {
	"job.name",
	"job.program",
	"job.device",
	"parallel.dp",
	"program.show",
	"program.visible",
	"program.stop_grace",
	"slurm.nodes",
	"slurm.gpus_per_node",
	"restart.max_restarts",
	"restart.shrink",
};

enum { KEYS = sizeof keys / sizeof *keys };

/* A job file that is being written. */
struct draft {
	const struct torchrun_line *line;
	struct buf values[KEYS]; /* a key without text is not written */
	struct buf *notes;
	long nodes_min, nodes_max;
	long ranks; /* per node; 0: as many as there are devices */
};

static struct buf *value_of(struct draft *d, const char *key)
{
	int i = 0;
	while (strcmp(keys[i], key))
		i++;
	return &d->values[i];
}

static int read_count(const char *name, const char *text, long least, long *out, struct err *e)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < least || n > MOST)
		return err_set(e, ERR_USAGE,
			       "%s=%s: this is not a whole number from %ld to %d; "
			       "write such as %s=%ld",
			       name, text, least, MOST, name, least + 2);
	*out = n;
	return 0;
}

/* N or MIN:MAX */
static int read_nodes(struct draft *d, const char *text, struct err *e)
{
	const char *name = options[TORCHRUN_NNODES].name, *colon = strchr(text, ':');
	char first[NAME];
	snprintf(first, sizeof first, "%.*s", (int)strcspn(text, ":"), text);
	if (read_count(name, first, 1, &d->nodes_min, e))
		return -1;
	d->nodes_max = d->nodes_min;
	if (colon && read_count(name, colon + 1, 1, &d->nodes_max, e))
		return -1;
	if (d->nodes_max < d->nodes_min)
		return err_set(e, ERR_USAGE,
			       "%s=%s begins with the larger number; write %s=%ld:%ld", name, text,
			       name, d->nodes_max, d->nodes_min);
	struct buf *nodes = value_of(d, "slurm.nodes");
	buf_printf(nodes, "%ld", d->nodes_min);
	if (d->nodes_max > d->nodes_min) {
		buf_printf(nodes, "-%ld", d->nodes_max);
		buf_puts(value_of(d, "restart.shrink"), "dp");
	}
	return 0;
}

/* N, or one of the words. */
static int read_ranks(struct draft *d, const char *text, struct err *e)
{
	const char *name = options[TORCHRUN_NPROC].name, *device = "cuda";
	if (!strcmp(text, "cpu")) {
		device = "cpu";
		buf_puts(d->notes,
			 "--nproc-per-node=cpu: set parallel.dp to the number of ranks that "
			 "the cores can carry\n");
	} else if (!strcmp(text, "gpu") || !strcmp(text, "auto")) {
		buf_printf(
			d->notes,
			"--nproc-per-node=%s: a rank runs on each GPU that is there; muster submit "
			"needs slurm.gpus_per_node%s\n",
			text, *text == 'a' ? ", and a host without GPUs job.device=cpu" : "");
	} else if (!strcmp(text, "xpu")) {
		return err_set(e, ERR_USAGE,
			       "%s=xpu: muster knows NVIDIA GPUs and the cores of CPUs; give the "
			       "number of ranks, and set job.device=cpu in the file",
			       name);
	} else if (read_count(name, text, 1, &d->ranks, e)) {
		return -1;
	}
	buf_puts(value_of(d, "job.device"), device);
	if (!d->ranks)
		return 0;
	buf_printf(value_of(d, "slurm.gpus_per_node"), "%ld", d->ranks);
	buf_puts(d->notes, "job.device=cuda is assumed: one GPU for each rank; for ranks on cores "
			   "set job.device=cpu and slurm.gpus_per_node=0\n");
	return 0;
}

/* torchrun restarts with all nodes that are there; a range leaves the number of ranks open. */
static void set_degree(struct draft *d)
{
	if (d->ranks && d->nodes_min == d->nodes_max)
		buf_printf(value_of(d, "parallel.dp"), "%ld", d->nodes_min * d->ranks);
}

/* What --redirects and --tee say of all ranks: 0 to 3. Other forms name single ranks. */
static int streams(const char *text)
{
	return text && *text >= '0' && *text <= '3' && !text[1] ? *text - '0' : -1;
}

static void set_show(struct draft *d)
{
	const char *const *value = d->line->value;
	if (streams(value[TORCHRUN_TEE]) > 0)
		buf_puts(value_of(d, "program.show"), "all");
	else if (streams(value[TORCHRUN_REDIRECTS]) == 3)
		buf_puts(value_of(d, "program.show"), "none");
}

/* Names the run after the script, /x/train.py, or the module, lab.train. */
static void set_name(struct draft *d)
{
	static const char in_names[] =
		"._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	const char *script = d->line->script[0], *slash = strrchr(script, '/');
	struct buf *name = value_of(d, "job.name");
	char text[NAME];
	snprintf(text, sizeof text, "%s", slash ? slash + 1 : script);
	size_t n = strlen(text);
	if (n > 3 && !d->line->value[TORCHRUN_MODULE] && !strcmp(text + n - 3, ".py"))
		text[n - 3] = '\0';
	for (char *c = text; *c; c++)
		if (!strchr(in_names, *c))
			*c = '-';
	const char *from = text + strspn(text, "._-");
	buf_puts(name, *from ? from : "program");
}

/* The interpreter: the one that the line names, or that of torchrun's folder. */
static void name_python(const struct torchrun_line *l, char *path, size_t size)
{
	if (l->python)
		snprintf(path, size, "%s", l->python);
	else
		snprintf(path, size, "%.*spython3", l->folder_n, l->folder);
}

/* torch.distributed.launch without --use-env gives each script an argument of its own: $0 is python, $1
 * the script. */
static char shell_for_script[] = "python=$0 script=$1; shift; exec \"$python\" -u \"$script\" "
				 "--local-rank=\"$LOCAL_RANK\" \"$@\"";
static char shell_for_module[] = "python=$0 module=$1; shift; exec \"$python\" -u -m \"$module\" "
				 "--local-rank=\"$LOCAL_RANK\" \"$@\"";

/* What comes before the script. Returns the number of words. */
static size_t put_head(const struct torchrun_line *l, char *python, char **words)
{
	static char sh[] = "sh", c[] = "-c", u[] = "-u", m[] = "-m";
	bool module = l->value[TORCHRUN_MODULE];
	size_t n = 0;
	if (l->value[TORCHRUN_NO_PYTHON] && !l->value[TORCHRUN_RUN_PATH])
		return 0;
	if (l->launch && !l->value[TORCHRUN_USE_ENV]) {
		words[n++] = sh;
		words[n++] = c;
		words[n++] = module ? shell_for_module : shell_for_script;
		words[n++] = python;
		return n;
	}
	words[n++] = python;
	words[n++] = u;
	if (module)
		words[n++] = m;
	return n;
}

static int check_program(const struct torchrun_line *l, struct err *e)
{
	if (!l->value[TORCHRUN_NO_PYTHON])
		return 0;
	if (l->value[TORCHRUN_MODULE])
		return err_set(
			e, ERR_USAGE,
			"--no-python and --module exclude each other; leave one of them out");
	if (l->launch && !l->value[TORCHRUN_USE_ENV])
		return err_set(e, ERR_USAGE,
			       "torch.distributed.launch --no-python needs --use-env; add it");
	return 0;
}

static int set_program(struct draft *d, struct err *e)
{
	const struct torchrun_line *l = d->line;
	enum { HEAD = 4 };
	char python[4096];
	size_t args = 0;
	if (check_program(l, e))
		return -1;
	while (l->script[args])
		args++;
	char **words = calloc(args + HEAD + 1, sizeof *words);
	if (!words)
		return err_set(e, ERR_NOMEM, "no memory for a command line");
	name_python(l, python, sizeof python);
	memcpy(words + put_head(l, python, words), l->script, args * sizeof *words);
	struct buf *program = value_of(d, "job.program");
	words_write(words, program);
	free(words);
	if (program->len > PROGRAM_MAX)
		return err_set(e, ERR_USAGE,
			       "the program with its arguments takes %zu bytes, and job.program "
			       "holds %d; put the arguments into a script",
			       program->len, PROGRAM_MAX);
	return 0;
}

/* The options whose row is enough. */
static int set_simple_keys(struct draft *d, struct err *e)
{
	for (int i = 0; i < TORCHRUN_N; i++) {
		const char *value = d->line->value[i];
		long n;
		if (!value)
			continue;
		if (options[i].use == TORCHRUN_WORD)
			buf_puts(value_of(d, options[i].key), options[i].text);
		if (options[i].use != TORCHRUN_COUNT)
			continue;
		if (read_count(options[i].name, value, 0, &n, e))
			return -1;
		buf_printf(value_of(d, options[i].key), "%ld", n);
	}
	return 0;
}

static int fill(struct draft *d, struct err *e)
{
	const struct torchrun_line *l = d->line;
	const char *nodes = l->value[TORCHRUN_NNODES], *ranks = l->value[TORCHRUN_NPROC];
	d->nodes_min = d->nodes_max = 1;
	if (set_simple_keys(d, e) || (nodes && read_nodes(d, nodes, e)) ||
	    read_ranks(d, ranks ? ranks : "1", e) || set_program(d, e))
		return -1;
	set_name(d);
	set_degree(d);
	set_show(d);
	if (!l->value[TORCHRUN_MAX_RESTARTS])
		buf_puts(d->notes, "restart.max_restarts is 10 by default, and torchrun's "
				   "--max-restarts is 0\n");
	return 0;
}

/* "# --nnodes=2   slurm.nodes = 2" */
static void put_option(struct draft *d, int i, struct buf *out)
{
	const struct torchrun_option *o = &options[i];
	struct buf given = BUF_INIT, word = BUF_INIT;
	buf_printf(&given, "%s%s%s", o->name, o->takes_value ? "=" : "", d->line->value[i]);
	words_write((char *[]){ given.data, NULL }, &word);
	buf_printf(out, "#   %-28s ", buf_str(&word));
	if (o->key && value_of(d, o->key)->len)
		buf_printf(out, "%s = %s\n", o->key, buf_str(value_of(d, o->key)));
	else
		buf_printf(out, "%s%s\n", o->use == TORCHRUN_IGNORED ? "ignored: " : "", o->text);
	buf_fini(&given);
	buf_fini(&word);
}

static void put_comments(struct draft *d, char *const *argv, struct buf *out)
{
	buf_puts(out, "# Made from this command line of torchrun:\n#   ");
	words_write(argv, out);
	buf_puts(out, "\n#\n# What its options became:\n");
	for (int i = 0; i < TORCHRUN_N; i++)
		if (d->line->value[i])
			put_option(d, i, out);
	buf_printf(out, "#   %-28s job.program, job.name\n", "the script and its words");
	if (value_of(d, "parallel.dp")->len)
		buf_printf(out, "#   %-28s parallel.dp = %s\n", "nodes * ranks on each",
			   buf_str(value_of(d, "parallel.dp")));
}

static void put_keys(struct draft *d, struct buf *out)
{
	const char *section = "";
	for (int i = 0; i < KEYS; i++) {
		size_t n = strcspn(keys[i], ".");
		if (!d->values[i].len)
			continue;
		if (strncmp(section, keys[i], n + 1))
			buf_printf(out, "\n[%.*s]\n", (int)n, keys[i]);
		section = keys[i];
		buf_printf(out, "%s = %s\n", keys[i] + n + 1, buf_str(&d->values[i]));
	}
}

/* The options that muster does without, in one line. */
static void note_ignored(const struct torchrun_line *l, struct buf *notes)
{
	int n = 0;
	for (int i = 0; i < TORCHRUN_N; i++)
		if (l->value[i] && options[i].use == TORCHRUN_IGNORED)
			buf_printf(notes, "%s%s", n++ ? ", " : "", options[i].name);
	if (n)
		buf_printf(notes, ": ignored; the comments of the file say why\n");
}

int command_torchrun_job(char *const *argv, struct buf *job, struct buf *notes, struct err *e)
{
	struct torchrun_line line;
	if (command_torchrun_read(argv, &line, e))
		return -1;
	struct draft d = { .line = &line, .notes = notes };
	int rc = fill(&d, e);
	if (!rc) {
		put_comments(&d, argv, job);
		put_keys(&d, job);
		note_ignored(&line, notes);
	}
	for (int i = 0; i < KEYS; i++)
		buf_fini(&d.values[i]);
	if (!rc && (buf_failed(job) || buf_failed(notes)))
		return err_set(e, ERR_NOMEM, "no memory for a job file");
	return rc;
}

int command_like_torchrun(int argc, char **argv)
{
	struct buf job = BUF_INIT, notes = BUF_INIT;
	struct err e = ERR_INIT;
	int status = STATUS_DONE;
	(void)argc;
	if (command_torchrun_job(argv + 1, &job, &notes, &e)) {
		status = command_fail(&e);
	} else {
		command_lines("note: ", buf_str(&notes));
		fputs(buf_str(&job), stdout);
		status = command_output_end(STATUS_DONE);
	}
	buf_fini(&job);
	buf_fini(&notes);
	return status;
}
