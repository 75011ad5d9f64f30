#include "agent/engine/data/pack.h"
#include "agent/engine/data/pack_ids.h"
#include "agent/tools/pack_tokens.h"
#include "agent/tools/tools.h"
#include "base/file.h"
#include "base/human.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char page[] =
	"muster data pack — pack text files into tokens\n"
	"\n"
	"SYNOPSIS\n"
	"  muster data pack FILE… -o PREFIX [--field NAME] [--skip-bad] [--raw]\n"
	"                   [--tokenizer FILE [--begin TOKEN] [--end TOKEN]]\n"
	"  muster data pack FILE… -o PREFIX --dtype TYPE [--end-id ID] [--vocab N]\n"
	"  muster data pack @LIST -o PREFIX …\n"
	"  find … -print0 | muster data pack - -o PREFIX …\n"
	"\n"
	"DESCRIPTION\n"
	"  Writes PREFIX.bin and PREFIX.idx in Megatron's format. Without --tokenizer each\n"
	"  byte is a token (u8, a vocabulary of 256). Documents keep the order of the files;\n"
	"  empty ones are left out. Files are streamed, so their size does not matter. Both\n"
	"  files appear completely or not at all. data.path=PREFIX trains on them.\n"
	"\n"
	"  A text file is one document. In .jsonl, .ndjson and .json files each line is a JSON\n"
	"  object, and the string in its field --field is a document. Both may be compressed by\n"
	"  gzip or zstd (.txt.gz, .jsonl.zst, …): the first bytes decide. A line that is not an\n"
	"  object or has no string in the field is an error, which names its file and number.\n"
	"  Files in other formats (Parquet, Arrow, NumPy, xz, zip, PDF, UTF-16, …) are refused;\n"
	"  the error names the format and the command that converts it. A file with 16 NULs or\n"
	"  more in its first 64 KiB is not text and is refused, too.\n"
	"\n"
	"  With --tokenizer the tokens are those of a Hugging Face tokenizer.json with byte-level\n"
	"  BPE (GPT-2, LLaMA-3) or BPE of characters with byte fallback (LLaMA-2, Mixtral): u16\n"
	"  if the vocabulary fits, otherwise i32. model.vocab must be at least the vocabulary's\n"
	"  largest id + 1. Normalizers are NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip,\n"
	"  Replace and Prepend. If a part of a tokenizer.json is not supported, the error names\n"
	"  it. Bytes that are not UTF-8 become the tokens of single bytes. Text is split into\n"
	"  words by the classes of PCRE2's Unicode version (14 in Debian 12); the number of\n"
	"  characters that are newer, and the first one, are printed at the end.\n"
	"\n"
	"  With --dtype the files are arrays of token ids without a header, such as nanoGPT's\n"
	"  train.bin (u16). Each file begins a document. The largest id is printed: model.vocab\n"
	"  must be larger.\n"
	"\n"
	"OPTIONS\n"
	"  FILE          a file; folders are refused\n"
	"  @LIST         the names in the file LIST, one per line, or separated by NULs\n"
	"  -             names like those of @LIST from standard input\n"
	"  -o PREFIX     the output; its folder must exist, and neither PREFIX.bin nor PREFIX.idx\n"
	"                may be one of the files\n"
	"  --field NAME  the field with the text (default text), or a path of names with dots\n"
	"                between them. If it is given, files with any name except .txt are lines\n"
	"                of JSON, also /dev/stdin\n"
	"  --skip-bad    skip lines that are not a JSON object or have no string in the field;\n"
	"                they are counted, and the first one is printed\n"
	"  --raw         pack the bytes of each file as they are: no decompression, no JSON\n"
	"  --tokenizer FILE  a tokenizer.json, or a folder that has one\n"
	"  --begin TOKEN put this token before each document, such as <s>\n"
	"  --end TOKEN   put this token after each document, such as <|endoftext|>\n"
	"  --dtype TYPE  the files hold token ids: u16, u32, i32 or i64, little-endian\n"
	"  --end-id ID   with --dtype: a document ends after each ID (GPT-2's <|endoftext|> is\n"
	"                50256)\n"
	"  --vocab N     with --dtype: refuse ids of N and above\n"
	"  --json        print the counts as JSON: {prefix, documents, empty, tokens, type};\n"
	"                skipped with --skip-bad, with_nuls: files that hold NULs,\n"
	"                newer_characters (see above), largest with --dtype\n"
	"\n"
	"EXAMPLES\n"
	"  muster data pack /usr/share/common-licenses/GPL-3 -o gpl\n"
	"  find /usr/share/doc -name '*.txt' -print0 | muster data pack - -o docs\n"
	"  muster data pack *.txt -o corpus --tokenizer gpt2/tokenizer.json --end '<|endoftext|>'\n"
	"  muster data pack c4-*.json.gz -o c4 --field text --tokenizer gpt2/tokenizer.json\n"
	"  muster data pack owt/train.bin -o owt --dtype u16 --end-id 50256 --vocab 50257\n"
	"\n"
	"EXIT STATUS\n"
	"  0  packed\n"
	"  1  a file cannot be read or has a format that is not packed, or PREFIX cannot be\n"
	"     written\n"
	"  2  usage\n";

enum { LIST_MAX = 1 << 30 };

struct names {
	char **list; /* the strings are freed, too */
	int64_t n;
};

static int add_name(struct names *names, const char *name, size_t len, struct err *e)
{
	if ((names->n & (names->n - 1)) == 0) {
		char **list = realloc(names->list,
				      (size_t)(names->n ? 2 * names->n : 1) * sizeof *list);
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

/* Names that are separated by NULs may contain newlines. */
static int add_list(struct names *names, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(path, LIST_MAX, &text, e);
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

struct pack_words {
	const char *prefix;
	struct document_options read;
	struct pack_tokens_options tokens; /* .tokenizer NULL: pack bytes */
	struct pack_ids_options ids;       /* .type NULL: the files are text */
	bool json;
};

/* Fields for rare cases are printed only if they apply. */
static int print_json(const struct pack_words *w, const struct pack_report *r, enum token_type type)
{
	const struct document_counts *c = &r->read;
	json_t *o = json_pack("{s:s, s:I, s:I, s:I}", "prefix", w->prefix, "documents",
			      (json_int_t)c->documents, "empty", (json_int_t)c->empty, "tokens",
			      (json_int_t)r->tokens);
	if (w->read.skip_bad)
		json_object_set_new(o, "skipped", json_integer(c->skipped));
	if (c->nuls)
		json_object_set_new(o, "with_nuls", json_integer(c->nuls));
	if (r->unassigned)
		json_object_set_new(o, "newer_characters", json_integer(r->unassigned));
	json_object_set_new(o, "type", json_string(data_token_word(type)));
	return tool_print_json(&tool_data_pack, o);
}

static int print_report(const struct pack_words *w, const struct pack_report *r,
			enum token_type type)
{
	const struct document_counts *c = &r->read;
	if (w->json)
		return print_json(w, r, type);
	if (c->skipped)
		fprintf(stderr, "muster data pack: %" PRId64 " line%s left out; the first: %s\n",
			c->skipped, human_s(c->skipped), c->first_skipped);
	if (c->nuls)
		fprintf(stderr,
			"muster data pack: %" PRId64 " file%s with NULs, packed as text (the "
			"first: %s); --raw packs them without "
			"this line\n",
			c->nuls, human_s(c->nuls), c->first_nul);
	if (r->unassigned)
		fprintf(stderr, "muster data pack: %s\n", r->note);
	printf("%s: %" PRId64 " documents, %" PRId64 " tokens (%s)", w->prefix, c->documents,
	       r->tokens, data_token_word(type));
	if (c->empty)
		printf("; empty ones left out: %" PRId64, c->empty);
	printf("\n");
	return TOOL_OK;
}

static int print_ids_report(const struct pack_words *w, const struct pack_ids_report *r)
{
	if (w->json)
		return tool_print_json(&tool_data_pack,
				       json_pack("{s:s, s:I, s:I, s:I, s:i, s:s}", "prefix",
						 w->prefix, "documents", (json_int_t)r->documents,
						 "empty", (json_int_t)r->empty, "tokens",
						 (json_int_t)r->tokens, "largest", (int)r->largest,
						 "type", data_token_word(r->type)));
	printf("%s: %" PRId64 " documents, %" PRId64 " tokens (%s); the largest id is %" PRId32
	       "\n",
	       w->prefix, r->documents, r->tokens, data_token_word(r->type), r->largest);
	return TOOL_OK;
}

static int pack_names(const struct pack_words *w, const struct names *names)
{
	struct err e = ERR_INIT;
	struct pack_report report;
	struct pack_ids_report ids;
	enum token_type type = TOKEN_U8;
	if (w->ids.type)
		return data_pack_ids(w->prefix, names->list, names->n, &w->ids, &ids, &e)
			       ? tool_fail(&tool_data_pack, &e)
			       : print_ids_report(w, &ids);
	int rc = w->tokens.tokenizer
			 ? tool_pack_tokens(w->prefix, names->list, names->n, &w->read, &w->tokens,
					    &report, &type, &e)
			 : data_pack_files(w->prefix, names->list, names->n, &w->read, &report, &e);
	return rc ? tool_fail(&tool_data_pack, &e) : print_report(w, &report, type);
}

/* The output replaces PREFIX.bin and PREFIX.idx, so neither may be an input file. */
static int check_outputs(const char *prefix, const struct names *names, struct err *e)
{
	static const char *const endings[] = { "bin", "idx" };
	for (int i = 0; i < 2; i++) {
		char path[PATH_MAX];
		struct stat out, in;
		if (snprintf(path, sizeof path, "%s.%s", prefix, endings[i]) >= (int)sizeof path ||
		    stat(path, &out))
			continue;
		for (int64_t j = 0; j < names->n; j++)
			if (!stat(names->list[j], &in) && in.st_dev == out.st_dev &&
			    in.st_ino == out.st_ino)
				return err_set(e, ERR_USAGE,
					       "%s: is to be packed, and -o %s would replace it; "
					       "name another PREFIX",
					       names->list[j], prefix);
	}
	return 0;
}

static int pack(const struct pack_words *w, char **words, int n)
{
	struct err e = ERR_INIT;
	struct names names = { 0 };
	int rc = 0;
	for (int i = 0; i < n && !rc; i++)
		rc = add_word(&names, words[i], &e);
	rc = rc || check_outputs(w->prefix, &names, &e) ? tool_fail(&tool_data_pack, &e)
							: pack_names(w, &names);
	for (int64_t i = 0; i < names.n; i++)
		free(names.list[i]);
	free(names.list);
	return rc;
}

/* Returns -1 if the number was set, otherwise the exit status. */
static int take_number(const char *name, const char *text, int64_t least, int64_t *out)
{
	char *end;
	errno = 0;
	long long v = strtoll(text, &end, 10);
	if (!*text || *end || errno || v < least || v > INT32_MAX)
		return tool_usage(&tool_data_pack,
				  "%s %s: a whole number from %" PRId64 " to %d is needed", name,
				  text, least, INT32_MAX);
	*out = v;
	return -1;
}

static int take_option(struct pack_words *w, int c, char **argv)
{
	switch (c) {
	case 'o':
		w->prefix = optarg;
		return -1;
	case 'f':
		w->read.field = optarg;
		return -1;
	case 's':
		w->read.skip_bad = true;
		return -1;
	case 'r':
		w->read.raw = true;
		return -1;
	case 't':
		w->tokens.tokenizer = optarg;
		return -1;
	case 'b':
		w->tokens.begin = optarg;
		return -1;
	case 'e':
		w->tokens.end = optarg;
		return -1;
	case 'd':
		w->ids.type = optarg;
		return -1;
	case 'i':
		return take_number("--end-id", optarg, 0, &w->ids.end);
	case 'v':
		return take_number("--vocab", optarg, 1, &w->ids.vocab);
	case 'j':
		w->json = true;
		return -1;
	default:
		return tool_option(&tool_data_pack, c, argv);
	}
}

/* Returns an error text for options that exclude each other; NULL: there are none. */
static const char *contradiction(const struct pack_words *w)
{
	bool text = w->tokens.tokenizer || w->read.field || w->read.skip_bad || w->read.raw;
	if (!w->prefix || !*w->prefix)
		return "-o PREFIX is missing";
	if (!w->tokens.tokenizer && (w->tokens.begin || w->tokens.end))
		return "--begin and --end name tokens of a --tokenizer, and there is none";
	if (w->ids.type && text)
		return "--dtype is for files of token ids, --tokenizer, --field, --skip-bad and "
		       "--raw are for text; give one or the other";
	if (!w->ids.type && (w->ids.end >= 0 || w->ids.vocab))
		return "--end-id and --vocab are for token ids; name their type with --dtype";
	if (w->read.raw && (w->read.field || w->read.skip_bad))
		return "--raw packs bytes as they are, --field and --skip-bad read JSON; give one "
		       "or the other";
	return NULL;
}

static int pack_main(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' }, { "field", required_argument, NULL, 'f' },
		{ "skip-bad", no_argument, NULL, 's' }, { "raw", no_argument, NULL, 'r' },
		{ "tokenizer", required_argument, NULL, 't' }, { "begin", required_argument, NULL, 'b' },
		{ "end", required_argument, NULL, 'e' }, { "dtype", required_argument, NULL, 'd' },
		{ "end-id", required_argument, NULL, 'i' }, { "vocab", required_argument, NULL, 'v' },
		{ "json", no_argument, NULL, 'j' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	struct pack_words w = { .ids = { .end = -1 } };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) {
		int rc = take_option(&w, c, argv);
		if (rc >= 0)
			return rc;
	}
	const char *why = contradiction(&w);
	if (why)
		return tool_usage(&tool_data_pack, "%s", why);
	if (optind == argc)
		return tool_usage(&tool_data_pack, "no files");
	return pack(&w, argv + optind, argc - optind);
}

const struct tool tool_data_pack = { "data", "pack", pack_main, "pack text files into tokens",
				     page };
