/* Options of sbatch as members of a job description: the table of both forms. */
#include "launcher/slurm/rest/parts.h"

#include "plan/spec/job/keys.h" /* job_time_seconds() */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GRES_SLASH = 40 }; /* since v0.0.40: gres/gpu, before: gres:gpu */

struct row;
typedef int put(struct describing *d, const struct row *row, const char *value, struct err *e);

struct row {
	const char *option;
	const char *old, *new; /* members of v0.0.38, and of later versions; NULL: it has none */
	put *put;
	bool bare; /* the option has no value */
};

int slurm_rest_set(struct describing *d, const char *key, json_t *value, struct err *e)
{
	if (json_object_set_new(d->job, key, value))
		return err_set(e, ERR_NOMEM, "no memory for the description of the job");
	return 0;
}

static const char *key_of(const struct describing *d, const struct row *row)
{
	return slurm_rest_is_old(d) ? row->old : row->new;
}

/* --- Values --- */

static int refuse_value(const struct row *row, const char *value, struct err *e)
{
	return err_set(
		e, ERR_USAGE,
		"--%s=%.200s: Slurm's REST interface cannot take this value; write another one, "
		"or submit with Slurm's commands (slurm.rest empty)",
		row->option, value);
}

/* A text that is not UTF-8 gives NULL, which is refused as no memory would be. */
static int put_text(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	json_t *text = json_string(value);
	return text ? slurm_rest_set(d, key_of(d, row), text, e) : refuse_value(row, value, e);
}

static int read_int(const char *value, int64_t *out)
{
	char *end;
	long long n = strtoll(value, &end, 10);
	*out = n;
	return *value && !*end && n > -2000000000 && n < 2000000000 ? 0 : -1;
}

static int put_int(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	int64_t n;
	if (read_int(value, &n))
		return refuse_value(row, value, e);
	return slurm_rest_set(d, key_of(d, row), json_integer(n), e);
}

int slurm_rest_set_number(struct describing *d, const char *key, int64_t n, bool infinite,
			  struct err *e)
{
	return slurm_rest_set(d, key,
			      json_pack("{s:b, s:b, s:I}", "set", true, "infinite", infinite,
					"number", (json_int_t)n),
			      e);
}

static int put_tasks(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	return put_int(d, row, value, e) || read_int(value, &d->tasks) ? -1 : 0;
}

static int put_cpus(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	return put_int(d, row, value, e) || read_int(value, &d->cpus) ? -1 : 0;
}

/* "4" or "3-4" */
static int put_nodes(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	char *end;
	long long min = strtoll(value, &end, 10);
	long long max = *end == '-' ? strtoll(end + 1, &end, 10) : min;
	if (*end || min < 1 || max < min || max > 1000000)
		return refuse_value(row, value, e);
	d->min_nodes = min;
	d->max_nodes = max;
	if (slurm_rest_is_old(d))
		return put_text(d, row, value, e); /* it ignores the maximum of a list */
	return slurm_rest_set(d, "minimum_nodes", json_integer(min), e) ||
			       slurm_rest_set(d, "maximum_nodes", json_integer(max), e)
		       ? -1
		       : 0;
}

/* Minutes, rounded up as sbatch does. */
static int put_time(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	int64_t s = job_time_seconds(value);
	if (s < 0)
		return refuse_value(row, value, e);
	if (slurm_rest_is_old(d))
		return slurm_rest_set(d, "time_limit", json_integer((s + 59) / 60), e);
	return slurm_rest_set_number(d, "time_limit", (s + 59) / 60, s == 0, e);
}

/* MB. */
static int put_memory(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	static const char units[] = "KMGT";
	char *end;
	double mb = strtod(value, &end);
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : units + 1;
	if (end == value || !unit || (*end && end[1]) || !(mb >= 0 && mb < 1e12))
		return refuse_value(row, value, e);
	if (slurm_rest_is_old(d))
		return put_text(d, row, value, e);
	for (const char *at = units + 1; at < unit; at++)
		mb *= 1024;
	if (unit == units)
		mb /= 1024;
	return slurm_rest_set_number(d, row->new, (int64_t)(mb + (mb < 1 && mb > 0)), false, e);
}

static int put_bool(struct describing *d, const struct row *row, bool value, struct err *e)
{
	return slurm_rest_set(d, key_of(d, row), json_boolean(value), e);
}

static int put_yes(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	(void)value;
	return put_bool(d, row, true, e);
}

/* v0.0.38 has a member of its own for "no". */
static int put_no(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	(void)value;
	return put_bool(d, row, slurm_rest_is_old(d), e);
}

static int put_no_kill(struct describing *d, const struct row *row, const char *value,
		       struct err *e)
{
	return slurm_rest_is_old(d) ? put_text(d, row, "set", e) : put_no(d, row, value, e);
}

/* A host list, which has commas inside its brackets. */
static int put_hosts(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	return slurm_rest_is_old(d) ? put_text(d, row, value, e)
				    : slurm_rest_set(d, row->new, json_pack("[s]", value), e);
}

/* Adds to a list that begins empty. */
static int add_word(struct describing *d, const char *key, const char *word, struct err *e)
{
	json_t *list = json_object_get(d->job, key);
	if (!list && slurm_rest_set(d, key, list = json_array(), e))
		return -1;
	return json_array_append_new(list, json_string(word))
		       ? err_set(e, ERR_NOMEM, "no memory for the description of the job")
		       : 0;
}

static int put_exclusive(struct describing *d, const struct row *row, const char *value,
			 struct err *e)
{
	if (slurm_rest_is_old(d))
		return put_text(d, row, *value ? value : "exclusive", e);
	return add_word(d, "shared", *value ? value : "none", e);
}

/* Calls `each` for the words of a list with commas. */
static int split(const char *value, struct describing *d, const struct row *row,
		 int (*each)(struct describing *d, const struct row *row, const char *word,
			     struct err *e),
		 struct err *e)
{
	char word[REST_VALUE];
	for (; *value; value += strcspn(value, ","), value += *value == ',') {
		size_t n = strcspn(value, ",");
		if (n >= sizeof word)
			return refuse_value(row, value, e);
		snprintf(word, sizeof word, "%.*s", (int)n, value);
		if (n && each(d, row, word, e))
			return -1;
	}
	return 0;
}

static int add_gres(struct describing *d, const struct row *row, const char *word, struct err *e)
{
	struct buf all = BUF_INIT;
	const char *before = slurm_rest_text(d->job, "tres_per_node");
	const char *prefix = d->version < GRES_SLASH ? "gres:" : "gres/";
	buf_printf(&all, "%s%s", before, *before ? "," : "");
	if (!strncmp(word, "gres/", 5) || !strncmp(word, "gres:", 5))
		word += 5;
	buf_printf(&all, "%s%s%s", prefix, !strcmp(row->option, "gpus-per-node") ? "gpu:" : "",
		   word);
	json_t *text = json_string(buf_str(&all));
	buf_fini(&all);
	return text ? slurm_rest_set(d, "tres_per_node", text, e) : refuse_value(row, word, e);
}

static int put_gres(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	return slurm_rest_is_old(d) ? put_text(d, row, value, e)
				    : split(value, d, row, add_gres, e);
}

/* clang-format off */
/* sbatch's words for mail, and those of the fields. */
static const struct {
	const char *word, *flags[7];
} mails[] = {
	{ "NONE",           { NULL } },
	{ "BEGIN",          { "BEGIN" } },
	{ "END",            { "END" } },
	{ "FAIL",           { "FAIL" } },
	{ "REQUEUE",        { "REQUEUE" } },
	{ "STAGE_OUT",      { "STAGE_OUT" } },
	{ "INVALID_DEPEND", { "INVALID_DEPENDENCY" } },
	{ "ALL",            { "BEGIN", "END", "FAIL", "INVALID_DEPENDENCY", "REQUEUE", "STAGE_OUT" } },
	{ "TIME_LIMIT",     { "TIME=100%" } },
	{ "TIME_LIMIT_90",  { "TIME=90%" } },
	{ "TIME_LIMIT_80",  { "TIME=80%" } },
	{ "TIME_LIMIT_50",  { "TIME=50%" } },
	{ "ARRAY_TASKS",    { "ARRAY_TASKS" } },
};
/* clang-format on */

static int add_mail(struct describing *d, const struct row *row, const char *word, struct err *e)
{
	for (size_t i = 0; i < sizeof mails / sizeof *mails; i++) {
		if (strcasecmp(mails[i].word, word))
			continue;
		for (int k = 0; mails[i].flags[k]; k++)
			if (add_word(d, row->new, mails[i].flags[k], e))
				return -1;
		return 0;
	}
	return refuse_value(row, word, e);
}

static int put_mail(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	return slurm_rest_is_old(d) ? put_text(d, row, value, e)
				    : split(value, d, row, add_mail, e);
}

static int put_mode(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	if (slurm_rest_is_old(d))
		return put_text(d, row, value, e);
	return add_word(d, row->new, *value == 'a' || *value == 'A' ? "APPEND" : "TRUNCATE", e);
}

/* "2" or "2@1:00:00" */
static int put_switches(struct describing *d, const struct row *row, const char *value,
			struct err *e)
{
	char *end;
	long long n = strtoll(value, &end, 10);
	int64_t wait = *end == '@' ? job_time_seconds(end + 1) : 0;
	if (end == value || n < 0 || n > 1000000 || (*end && *end != '@') || wait < 0)
		return refuse_value(row, value, e);
	return slurm_rest_set_number(d, row->new, n, false, e) ||
			       (wait && slurm_rest_set(d, "wait_for_switch", json_integer(wait), e))
		       ? -1
		       : 0;
}

/* "B:TERM@120". v0.0.38 refuses the B:, without which the signal would go to the agents and not to
 * muster. */
static int put_signal(struct describing *d, const struct row *row, const char *value, struct err *e)
{
	char name[16];
	int before = 60, n = 0;
	if (slurm_rest_is_old(d)) {
		buf_printf(
			d->notes,
			"--%s=%.40s is left out, because version v0.0.38 of Slurm's REST interface "
			"cannot take it; the run asks Slurm for the end of its time limit and "
			"stops "
			"before it by itself\n",
			row->option, value);
		return 0;
	}
	bool batch = !strncmp(value, "B:", 2);
	if (sscanf(value + 2 * batch, "%15[A-Z0-9]%n@%d%n", name, &n, &before, &n) < 1 ||
	    value[2 * (size_t)batch + (size_t)n])
		return refuse_value(row, value, e);
	return slurm_rest_set(d, "kill_warning_signal", json_string(name), e) ||
			       slurm_rest_set_number(d, "kill_warning_delay", before, false, e) ||
			       (batch && add_word(d, "kill_warning_flags", "BATCH_JOB", e))
		       ? -1
		       : 0;
}

/* --- The options --- */

/* clang-format off */
static const struct row rows[] = {
	/* option             v0.0.38                     later versions */
	{ "job-name",         "name",                    "name",                    put_text, false },
	{ "account",          "account",                 "account",                 put_text, false },
	{ "comment",          "comment",                 "comment",                 put_text, false },
	{ "constraint",       "constraints",             "constraints",             put_text, false },
	{ "dependency",       "dependency",              "dependency",              put_text, false },
	{ "licenses",         "licenses",                "licenses",                put_text, false },
	{ "mail-user",        "mail_user",               "mail_user",               put_text, false },
	{ "partition",        "partition",               "partition",               put_text, false },
	{ "prefer",           "prefer",                  "prefer",                  put_text, false },
	{ "qos",              "qos",                     "qos",                     put_text, false },
	{ "reservation",      "reservation",             "reservation",             put_text, false },
	{ "wckey",            "wckey",                   "wckey",                   put_text, false },
	{ "output",           "standard_output",         "standard_output",         put_text, false },
	{ "error",            "standard_error",          "standard_error",          put_text, false },
	{ "open-mode",        "open_mode",               "open_mode",               put_mode, false },
	{ "nodes",            "nodes",                   "nodes",                   put_nodes, false },
	{ "ntasks-per-node",  "tasks_per_node",          "tasks_per_node",          put_tasks, false },
	{ "cpus-per-task",    "cpus_per_task",           "cpus_per_task",           put_cpus, false },
	{ "mincpus",          "minimum_cpus_per_node",   "minimum_cpus_per_node",   put_int, false },
	{ "nice",             "nice",                    "nice",                    put_int, false },
	{ "gpus-per-node",    "gpus_per_node",           "tres_per_node",           put_gres, false },
	{ "gres",             "gres",                    "tres_per_node",           put_gres, false },
	{ "mem",              "memory_per_node",         "memory_per_node",         put_memory, false },
	{ "mem-per-cpu",      "memory_per_cpu",          "memory_per_cpu",          put_memory, false },
	{ "time",             "time_limit",              "time_limit",              put_time, false },
	{ "nodelist",         "nodelist",                "required_nodes",          put_hosts, false },
	{ "exclude",          "exclude_nodes",           "excluded_nodes",          put_hosts, false },
	{ "switches",         NULL,                      "required_switches",       put_switches, false },
	{ "mail-type",        "mail_type",               "mail_type",               put_mail, false },
	{ "signal",           "signal",                  "kill_warning_signal",     put_signal, false },
	{ "exclusive",        "exclusive",               "shared",                  put_exclusive, true },
	{ "requeue",          "requeue",                 "requeue",                 put_yes, true },
	{ "no-requeue",       "no_requeue",              "requeue",                 put_no, true },
	{ "no-kill",          "no_kill",                 "kill_on_node_fail",       put_no_kill, true },
	{ "hold",             "hold",                    "hold",                    put_yes, true },
};
/* clang-format on */

int slurm_rest_put_option(struct describing *d, const char *name, const char *value, struct err *e)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (strcmp(rows[i].option, name))
			continue;
		if (!key_of(d, &rows[i]))
			break;
		if (!value && !rows[i].bare)
			return err_set(e, ERR_USAGE,
				       "--%s in the batch script has no value; write --%s=VALUE",
				       name, name);
		return rows[i].put(d, &rows[i], value ? value : "", e);
	}
	return err_set(
		e, ERR_UNSUPPORTED,
		"--%s in the batch script: Slurm's REST interface (v0.0.%d) has nothing like it; "
		"remove it from [slurm] or from your template, or submit with Slurm's commands "
		"(slurm.rest empty)",
		name, d->version);
}
