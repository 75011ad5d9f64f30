#include "agent/engine/data/data.h"
#include "agent/tools/tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char page[] =
	"muster data show — show the contents of packed token files\n"
	"\n"
	"SYNOPSIS\n"
	"  muster data show PREFIX [--json]\n"
	"  muster data show FILE.bin\n"
	"  muster data show 'WEIGHT PATH WEIGHT PATH …'\n"
	"\n"
	"DESCRIPTION\n"
	"  Checks the files of a data.path in the same way as a run at its start, and prints "
	"their\n"
	"  documents and tokens: PREFIX.bin with PREFIX.idx (Megatron's), a file of llm.c (header\n"
	"  20240520 version 1, u16; 20240801 version 7, u32), or a blend, with the share of each\n"
	"  source. In llm.c's files a document begins with the token 50256, or 128000 in the\n"
	"  second form.\n"
	"\n"
	"OPTIONS\n"
	"  --json        print as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster data show docs\n"
	"  muster data show '0.7 docs 0.3 fineweb_000001.bin'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the files are valid\n"
	"  1  they are missing, truncated or inconsistent\n"
	"  2  usage\n";

/* Counts the documents of all sources. `each` receives the count of each source. */
static int count_documents(const struct dataset *d, int64_t *each, int64_t *all, struct err *e)
{
	*all = 0;
	for (int i = 0; i < dataset_sources(d); i++) {
		if (dataset_documents(d, i, &each[i], e))
			return -1;
		*all += each[i];
	}
	return 0;
}

/* Returns the type of all sources if it is the same. */
static const char *common_type(const struct dataset *d)
{
	const char *first = dataset_source(d, 0).type;
	for (int i = 1; i < dataset_sources(d); i++)
		if (strcmp(first, dataset_source(d, i).type))
			return "mixed";
	return first;
}

static int print_json(const char *words, const struct dataset *d, const int64_t *documents,
		      int64_t all)
{
	json_t *sources = json_array();
	for (int i = 0; i < dataset_sources(d); i++) {
		struct dataset_source s = dataset_source(d, i);
		json_array_append_new(sources,
				      json_pack("{s:s, s:s, s:s, s:f, s:I, s:I}", "path", s.path,
						"format", s.format, "type", s.type, "share",
						s.share, "documents", (json_int_t)documents[i],
						"tokens", (json_int_t)s.tokens));
	}
	return tool_print_json(&tool_data_show,
			       json_pack("{s:s, s:I, s:I, s:s, s:o}", "prefix", words, "documents",
					 (json_int_t)all, "tokens", (json_int_t)dataset_tokens(d),
					 "type", common_type(d), "sources", sources));
}

static int print_text(const char *words, const struct dataset *d, const int64_t *documents,
		      int64_t all)
{
	struct dataset_source one = dataset_source(d, 0);
	printf("%s: %" PRId64 " documents, %" PRId64 " tokens (%s%s%s)\n", words, all,
	       dataset_tokens(d), common_type(d),
	       dataset_sources(d) == 1 && strcmp(one.format, "Megatron") ? ", " : "",
	       dataset_sources(d) == 1 && strcmp(one.format, "Megatron") ? one.format : "");
	for (int i = 0; i < dataset_sources(d) && dataset_sources(d) > 1; i++) {
		struct dataset_source s = dataset_source(d, i);
		printf("  %6.2f %%  %s: %" PRId64 " documents, %" PRId64 " tokens (%s, %s)\n",
		       100 * s.share, s.path, documents[i], s.tokens, s.type, s.format);
	}
	return TOOL_OK;
}

static int show_data(const char *words, bool json)
{
	struct err e = ERR_INIT;
	struct dataset *d;
	int64_t all;
	if (dataset_open(words, 1, 0, &d, &e))
		return tool_fail(&tool_data_show, &e);
	int64_t documents[dataset_sources(d)];
	int rc;
	if (count_documents(d, documents, &all, &e))
		rc = tool_fail(&tool_data_show, &e);
	else
		rc = json ? print_json(words, d, documents, all)
			  : print_text(words, d, documents, all);
	dataset_close(d);
	return rc;
}

static int show_main(int argc, char **argv)
{
	return tool_one_word(&tool_data_show, argc, argv, "PREFIX", show_data);
}

const struct tool tool_data_show = { "data", "show", show_main,
				     "show the contents of packed token files", page };
