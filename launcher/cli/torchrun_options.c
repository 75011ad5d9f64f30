#include "launcher/cli/torchrun_options.h"

#include "launcher/cli/command.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 64 };

const struct torchrun_option command_torchrun_options[TORCHRUN_N] = {
#define TORCHRUN_ROW(id, ...) [TORCHRUN_##id] = { __VA_ARGS__ },
	TORCHRUN_OPTIONS(TORCHRUN_ROW)
#undef TORCHRUN_ROW
};

static const struct torchrun_option *const options = command_torchrun_options;

/* The name of an option, up to '=', with '-' for each '_'. */
static void copy_name(const char *word, char out[NAME])
{
	size_t n = strcspn(word, "=");
	snprintf(out, NAME, "%.*s", (int)(n < NAME ? n : NAME - 1), word);
	for (char *c = out; *c; c++)
		if (*c == '_')
			*c = '-';
}

static int refuse_unknown(const char *name, struct err *e)
{
	const char *names[TORCHRUN_N + 1] = { NULL };
	for (int i = 0; i < TORCHRUN_N; i++)
		names[i] = options[i].name;
	const char *near = command_nearest(name, names);
	return err_set(e, ERR_USAGE, "torchrun has no option %s; %s%s%s", name,
		       near ? "did you mean " : "options of the program come after the script",
		       near ? near : "", near ? "?" : "");
}

/* The option of that name, or the only one that begins so. */
static int find_long(const char *name, struct err *e)
{
	int found = -1, many = -1;
	for (int i = 0; i < TORCHRUN_N; i++) {
		if (!strcmp(name, options[i].name))
			return i;
		if (!strncmp(name, options[i].name, strlen(name))) {
			many = found;
			found = i;
		}
	}
	if (many >= 0)
		return err_set(e, ERR_USAGE, "%s can be %s and %s; write the option's whole name",
			       name, options[many].name, options[found].name);
	return found < 0 ? refuse_unknown(name, e) : found;
}

/* An option of one letter; its value may follow in the same word: -r3. */
static int find_short(const char *word, struct err *e)
{
	for (int i = 0; i < TORCHRUN_N; i++)
		if (options[i].brief && !strncmp(word, options[i].brief, 2) &&
		    (options[i].takes_value || !word[2]))
			return i;
	return refuse_unknown(word, e);
}

/* Where the value is inside an option's word, or NULL. */
static const char *value_inside(const char *word, bool is_short)
{
	const char *equals = strchr(word, '=');
	if (equals)
		return equals + 1;
	return is_short && word[2] ? word + 2 : NULL;
}

/* Reads the option at argv[*i], and moves *i to the last word of it. */
static int read_option(char *const *argv, int *i, struct torchrun_line *out, struct err *e)
{
	char name[NAME];
	const char *word = argv[*i];
	bool is_short = word[1] != '-';
	copy_name(word, name);
	int o = is_short ? find_short(word, e) : find_long(name, e);
	if (o < 0)
		return -1;
	const char *value = value_inside(word, is_short);
	if (!options[o].takes_value && value)
		return err_set(e, ERR_USAGE, "%s takes no value; write it without =%s",
			       options[o].name, value);
	if (options[o].takes_value && !value) {
		value = argv[*i + 1];
		if (!value)
			return err_set(e, ERR_USAGE, "%s needs a value; write %s=VALUE",
				       options[o].name, options[o].name);
		++*i;
	}
	out->value[o] = value ? value : "";
	return 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Reads the words before the first option; returns their number. */
static int read_program(char *const *argv, struct torchrun_line *out)
{
	static const char run[] = "torch.distributed.run", launch[] = "torch.distributed.launch";
	const char *name = argv[0] ? base_name(argv[0]) : "";
	if (!strcmp(name, "torchrun")) {
		out->folder = argv[0];
		out->folder_n = (int)(name - argv[0]);
		return 1;
	}
	if (strncmp(name, "python", 6) || !argv[1] || strcmp(argv[1], "-m") || !argv[2] ||
	    (strcmp(argv[2], run) && strcmp(argv[2], launch)))
		return 0;
	out->python = argv[0];
	out->launch = !strcmp(argv[2], launch);
	return 3;
}

int command_torchrun_read(char *const *argv, struct torchrun_line *out, struct err *e)
{
	struct torchrun_line line = { .folder = "" };
	int i = read_program(argv, &line);
	for (; argv[i] && argv[i][0] == '-' && argv[i][1] && strcmp(argv[i], "--"); i++)
		if (read_option(argv, &i, &line, e))
			return -1;
	if (argv[i] && !strcmp(argv[i], "--"))
		i++;
	if (!argv[i])
		return err_set(e, ERR_USAGE,
			       "the script is missing; it comes after torchrun's options, with its "
			       "own after it");
	line.script = argv + i;
	*out = line;
	return 0;
}
