#include "agent/data/data.h"
#include "agent/tools/tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char page[] =
	"muster data show — what packed token files hold\n"
	"\n"
	"SYNOPSIS\n"
	"  muster data show PREFIX [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Checks PREFIX.idx and PREFIX.bin as a run does when it starts, and prints their counts.\n"
	"\n"
	"OPTIONS\n"
	"  --json        print as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster data show docs\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the files are sound\n"
	"  1  they are missing, cut or inconsistent\n"
	"  2  usage\n";

static int show(const char *prefix, bool json)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	int rc = TOOL_OK;
	if (dataset_open(prefix, 1, 0, &d, &e))
		return tool_fail(&tool_data_show, &e);
	if (json)
		rc = tool_print_json(&tool_data_show, json_pack("{s:s, s:I, s:I, s:s}", "prefix", prefix, "documents",
				     (json_int_t)dataset_documents(d), "tokens", (json_int_t)dataset_tokens(d), "type", dataset_type(d)));
	else
		printf("%s: %" PRId64 " documents, %" PRId64 " tokens (%s)\n", prefix, dataset_documents(d), dataset_tokens(d),
		       dataset_type(d));
	dataset_close(d);
	return rc;
}

static int run(int argc, char **argv)
{
	return tool_one_word(&tool_data_show, argc, argv, "PREFIX", show);
}

const struct tool tool_data_show = { "data", "show", run, "what packed token files hold", page };
