#include "agent/tools/tools.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOL_ROW(name) &tool_##name,
static const struct tool *const tools[] = { TOOLS(TOOL_ROW) };
#undef TOOL_ROW

enum { N_TOOLS = sizeof tools / sizeof *tools };

static void print_group(FILE *to, const char *group)
{
	fprintf(to, "usage: muster %s NAME …\n\n", group);
	for (int i = 0; i < N_TOOLS; i++)
		if (!strcmp(tools[i]->group, group) && tools[i]->summary)
			fprintf(to, "  %-8s %s\n", tools[i]->name, tools[i]->summary);
	fprintf(to, "\n`muster %s NAME --help` has the page of each.\n", group);
}

static bool is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-h");
}

int tool_main(int argc, char **argv)
{
	const char *group = NULL;
	for (int i = 0; i < N_TOOLS && argc > 1; i++) {
		if (strcmp(tools[i]->group, argv[1]))
			continue;
		if (!tools[i]->name)
			return tools[i]->main(argc - 1, argv + 1);
		group = tools[i]->group;
		if (argc > 2 && !strcmp(tools[i]->name, argv[2]))
			return tools[i]->main(argc - 2, argv + 2);
	}
	if (!group)
		return TOOL_UNKNOWN;
	if (argc > 2 && is_help(argv[2])) {
		print_group(stdout, group);
		return TOOL_OK;
	}
	if (argc > 2)
		fprintf(stderr, "muster %s: there is no %s\n", group, argv[2]);
	print_group(stderr, group);
	return TOOL_USAGE;
}

/* "data pack", "trace" */
static const char *command_of(const struct tool *t, char out[64])
{
	snprintf(out, 64, "%s%s%s", t->group, t->name ? " " : "", t->name ? t->name : "");
	return out;
}

int tool_usage(const struct tool *t, const char *fmt, ...)
{
	va_list ap;
	char command[64];
	fprintf(stderr, "muster %s: ", command_of(t, command));
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; see `muster %s --help`\n", command);
	return TOOL_USAGE;
}

int tool_fail(const struct tool *t, const struct err *e)
{
	char command[64];
	fprintf(stderr, "muster %s: %s\n", command_of(t, command), e->text);
	return e->code == ERR_USAGE ? TOOL_USAGE : TOOL_FAILED;
}

static int report_unprinted(const struct tool *t, const char *why)
{
	char command[64];
	fprintf(stderr, "muster %s: cannot print: %s\n", command_of(t, command), why);
	return TOOL_FAILED;
}

int tool_flush(const struct tool *t)
{
	bool failed = ferror(stdout);
	errno = 0;
	if (!fflush(stdout) && !failed)
		return TOOL_OK;
	return report_unprinted(t, errno ? strerror(errno) : "a part of the output was lost");
}

int tool_print_json(const struct tool *t, json_t *value)
{
	int rc = value ? json_dumpf(value, stdout, JSON_INDENT(2)) : -1;
	json_decref(value);
	if (!value)
		return report_unprinted(t, "no memory");
	if (!rc)
		putchar('\n');
	int status = tool_flush(t);
	return rc && !status ? report_unprinted(t, "a text is not UTF-8") : status;
}

int tool_option(const struct tool *t, int c, char **argv)
{
	if (c == TOOL_HELP) {
		fputs(t->page, stdout);
		return tool_flush(t);
	}
	return tool_usage(t, c == ':' ? "%s needs a value" : "%s is not an option",
			  argv[optind - 1]);
}

int tool_read_bytes(const char *name, const char *text, size_t *out, struct err *e)
{
	static const char units[] = "KMG";
	char *end;
	errno = 0;
	unsigned long long n = strtoull(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;
	int shift = unit ? 10 * (int)(unit - units + 1) : 0;
	if (*text < '0' || *text > '9' || errno || (*end && (!unit || end[1])) ||
	    n > (1ull << 40) >> shift)
		return err_set(e, ERR_USAGE,
			       "%s: \"%s\" is not a size; use one such as 512, 64K, 16M, 1G", name,
			       text);
	*out = (size_t)n << shift;
	return 0;
}

void tool_nearest_folder(char *dir)
{
	while (*dir && access(dir, F_OK) && errno == ENOENT) {
		char *slash = strrchr(dir, '/');
		if (!slash)
			strcpy(dir, ".");
		else if (slash == dir)
			slash[1] = '\0';
		else
			*slash = '\0';
	}
}

/* Reads the options of a tool that has only --json. Returns -1 if the words follow at optind,
 * otherwise the exit status. */
static int json_alone(const struct tool *t, int argc, char **argv, bool *json)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	*json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c != 'j')
			return tool_option(t, c, argv);
		*json = true;
	}
	return -1;
}

int tool_one_word(const struct tool *t, int argc, char **argv, const char *what,
		  int (*body)(const char *word, bool json))
{
	bool json;
	int status = json_alone(t, argc, argv, &json);
	if (status >= 0)
		return status;
	if (argc - optind != 1)
		return tool_usage(t, "one %s is needed", what);
	return body(argv[optind], json);
}

int tool_words(const struct tool *t, int argc, char **argv, const char *none,
	       int (*body)(char **words, int n, bool json))
{
	bool json;
	int status = json_alone(t, argc, argv, &json);
	if (status >= 0)
		return status;
	if (optind == argc)
		return tool_usage(t, "%s", none);
	return body(argv + optind, argc - optind, json);
}

void tool_print_layout(const json_t *layout)
{
	const char *key, *between = "";
	json_t *degree;
	json_object_foreach((json_t *)layout, key, degree)
	{
		printf("%s%s %" JSON_INTEGER_FORMAT, between, key, json_integer_value(degree));
		between = " × ";
	}
}
