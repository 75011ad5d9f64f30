#include "agent/data/pack.h"
#include "agent/tools/pack_tokens.h"
#include "agent/tools/tools.h"
#include "base/file.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"muster data pack — text files to packed tokens\n"
	"\n"
	"SYNOPSIS\n"
	"  muster data pack FILE… -o PREFIX [--tokenizer FILE [--begin TOKEN] [--end TOKEN]]\n"
	"  muster data pack @LIST -o PREFIX\n"
	"  find … -print0 | muster data pack - -o PREFIX\n"
	"\n"
	"DESCRIPTION\n"
	"  Writes PREFIX.bin and PREFIX.idx in Megatron's format: each byte is a token (u8, a vocabulary of 256), each\n"
	"  file a document, in the order given. Empty files are left out. Files are streamed, so their size does not\n"
	"  matter. Both files appear whole or not at all. data.path=PREFIX trains on them.\n"
	"\n"
	"  With --tokenizer the tokens are those of a Hugging Face tokenizer.json with byte-level BPE (GPT-2, LLaMA-3) or BPE of\n"
	"  characters with byte fallback (LLaMA-2, Mixtral): u16 where the vocabulary fits, else i32. model.vocab must be at\n"
	"  least the vocabulary's largest id + 1. What of a tokenizer.json is not supported is refused by name. Bytes that are no\n"
	"  UTF-8 become the tokens of single bytes.\n"
	"\n"
	"OPTIONS\n"
	"  FILE          a file; folders are refused\n"
	"  @LIST         the names in the file LIST, one a line, or with NUL between them\n"
	"  -             the same from standard input\n"
	"  -o PREFIX     what to write; its folder must exist\n"
	"  --tokenizer FILE  a tokenizer.json, or a folder that has one\n"
	"  --begin TOKEN put this token before each document, such as <s>\n"
	"  --end TOKEN   put this token behind each document, such as <|endoftext|>\n"
	"  --json        print the counts as JSON\n"
	"\n"
	"EXAMPLES\n"
	"  muster data pack /usr/share/common-licenses/GPL-3 -o gpl\n"
	"  find /usr/share/doc -name '*.txt' -print0 | muster data pack - -o docs\n"
	"  muster data pack *.txt -o corpus --tokenizer gpt2/tokenizer.json --end '<|endoftext|>'\n"
	"\n"
	"EXIT STATUS\n"
	"  0  packed\n"
	"  1  a file cannot be read, or PREFIX cannot be written\n"
	"  2  usage\n";

enum { LIST_MOST = 1 << 30 };

struct names {
	char **list;   /* each to be freed */
	int64_t n;
};

static int add_name(struct names *names, const char *name, size_t len, struct err *e)
{
	if ((names->n & (names->n - 1)) == 0) {
		char **list = realloc(names->list, (size_t)(names->n ? 2 * names->n : 1) * sizeof *list);
		if (!list)
			return err_set(e, ERR_NOMEM, "no memory for %" PRId64 " names", names->n);
		names->list = list;
	}
	names->list[names->n] = strndup(name, len);
	if (!names->list[names->n])
		return err_set(e, ERR_NOMEM, "no memory for %" PRId64 " names", names->n);
	names->n++;
	return 0;
}

/* Names may hold newlines when NULs divide them. */
static int add_list(struct names *names, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(path, LIST_MOST, &text, e);
	const char *at = buf_str(&text), *end = at + text.len;
	char divider = !rc && memchr(at, '\0', text.len) ? '\0' : '\n';
	while (!rc && at < end) {
		const char *stop = memchr(at, divider, (size_t)(end - at));
		if (!stop)
			stop = end;
		if (stop > at)
			rc = add_name(names, at, (size_t)(stop - at), e);
		at = stop + 1;
	}
	buf_fini(&text);
	return rc;
}

static int add_word(struct names *names, const char *word, struct err *e)
{
	if (!strcmp(word, "-"))
		return add_list(names, "/dev/stdin", e);
	if (word[0] == '@')
		return add_list(names, word + 1, e);
	return add_name(names, word, strlen(word), e);
}

static int print_report(const char *prefix, const struct pack_report *r, enum token_type type, bool json)
{
	if (json)
		return tool_print_json(&tool_data_pack, json_pack("{s:s, s:I, s:I, s:I, s:s}", "prefix", prefix, "documents",
				       (json_int_t)(r->files - r->empty), "empty", (json_int_t)r->empty, "tokens",
				       (json_int_t)r->tokens, "type", token_word(type)));
	printf("%s: %" PRId64 " documents, %" PRId64 " tokens (%s)", prefix, r->files - r->empty, r->tokens, token_word(type));
	if (r->empty)
		printf("; empty files left out: %" PRId64, r->empty);
	printf("\n");
	return TOOL_OK;
}

/* opt->tokenizer NULL: bytes. */
static int pack(const char *prefix, char **words, int n, const struct pack_tokens_options *opt, bool json)
{
	struct err e = ERR_INIT;
	struct names names = { 0 };
	struct pack_report report;
	enum token_type type = TOKEN_U8;
	int rc = 0;
	for (int i = 0; i < n && !rc; i++)
		rc = add_word(&names, words[i], &e);
	if (!rc)
		rc = opt->tokenizer ? pack_tokens(prefix, names.list, names.n, opt, &report, &type, &e) :
				      pack_files(prefix, names.list, names.n, &report, &e);
	for (int64_t i = 0; i < names.n; i++)
		free(names.list[i]);
	free(names.list);
	return rc ? tool_fail(&tool_data_pack, &e) : print_report(prefix, &report, type, json);
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' }, { "tokenizer", required_argument, NULL, 't' },
		{ "begin", required_argument, NULL, 'b' }, { "end", required_argument, NULL, 'e' },
		{ "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	struct pack_tokens_options opt = { 0 };
	const char *prefix = NULL;
	bool json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) {
		if (c == 'o')
			prefix = optarg;
		else if (c == 't')
			opt.tokenizer = optarg;
		else if (c == 'b')
			opt.begin = optarg;
		else if (c == 'e')
			opt.end = optarg;
		else if (c == 'j')
			json = true;
		else
			return tool_option(&tool_data_pack, c, argv);
	}
	if (!prefix || !*prefix)
		return tool_usage(&tool_data_pack, "-o PREFIX is missing");
	if (optind == argc)
		return tool_usage(&tool_data_pack, "no files");
	if (!opt.tokenizer && (opt.begin || opt.end))
		return tool_usage(&tool_data_pack, "--begin and --end name tokens of a --tokenizer, and there is none");
	return pack(prefix, argv + optind, argc - optind, &opt, json);
}

const struct tool tool_data_pack = { "data", "pack", run, "text files to packed tokens", page };
