#include "agent/tools/generate.h"

#include "agent/tools/tools.h"

#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static const char page[] =
	"muster generate — generate text from a checkpoint or a Hugging Face folder\n"
	"\n"
	"SYNOPSIS\n"
	"  muster generate MODEL [--tokenizer FILE] [--prompt TEXT] [--tokens N]\n"
	"                  [--temperature T] [--top-k K] [--top-p P] [--seed S] [--end TOKEN]\n"
	"                  [--threads N] [--echo] [--json]\n"
	"  … | muster generate MODEL …\n"
	"\n"
	"DESCRIPTION\n"
	"  Continues a text. It loads the model of a checkpoint of any layout, or of a Hugging\n"
	"  Face folder, reads the whole prompt at once, and then samples one token after another.\n"
	"  Keys and values are cached, so a token costs one pass over the weights. The text is\n"
	"  printed as it is generated.\n"
	"\n"
	"  The same checkpoint, prompt, options and threads generate the same text. At\n"
	"  temperature 0 the most likely token is taken; otherwise tokens are sampled with random\n"
	"  numbers that depend on --seed and the position in the text.\n"
	"\n"
	"  A model sees at most model.seq tokens. When these are used up, it continues from the\n"
	"  last half of them, and says so; a longer prompt is truncated in the same way.\n"
	"\n"
	"  MODEL is a checkpoint, or a run's folder or its ckpt folder; then the last valid\n"
	"  checkpoint is used. It may also be a Hugging Face folder with config.json and\n"
	"  model.safetensors of a GPT-2, LLaMA or Mixtral model, which is read as it is; `muster\n"
	"  ckpt import --help` lists the ones that are refused. The model's own files are used:\n"
	"  its tokenizer.json, and the ids of eos_token_id in generation_config.json or\n"
	"  config.json, which end the text. Other settings of generation_config.json are ignored.\n"
	"\n"
	"OPTIONS\n"
	"  --tokenizer FILE  the tokenizer.json that the training data was packed with, or a\n"
	"                    folder that has one (default: the model's own; without any, the\n"
	"                    vocabulary must be 256: bytes)\n"
	"  --prompt TEXT     the text to continue (default: standard input, unless it is a\n"
	"                    terminal)\n"
	"  --tokens N        tokens to generate (default 100)\n"
	"  --temperature T   divides the logits: below 1 more predictable, above 1 more varied\n"
	"                    (default 1); 0: always the most likely token\n"
	"  --top-k K         sample from the K most likely tokens (default 0: all)\n"
	"  --top-p P         sample from the fewest most likely tokens whose probabilities add up\n"
	"                    to P (default 1: all)\n"
	"  --seed S          of the random numbers (default 1)\n"
	"  --end TOKEN       stop after this token, such as <|endoftext|>, in place of the "
	"model's\n"
	"                    own\n"
	"  --threads N       threads (default: the processors that this process may use)\n"
	"  --echo            print the prompt before the text\n"
	"  --json            print as JSON: {checkpoint, step, prompt, prompt_tokens, text, ids,\n"
	"                    ended: a token ended the text, unseen: tokens at the start that the\n"
	"                    last one did not see, load_s, prompt_s, tokens_per_s}. In prompt and\n"
	"                    text U+FFFD replaces bytes that are not UTF-8\n"
	"\n"
	"EXAMPLES\n"
	"  muster generate runs/demo --prompt 'This license' --tokens 200 --temperature 0.7\n"
	"  muster generate gpt2/ --prompt 'This license' --temperature 0\n"
	"  muster generate runs/llama --tokenizer llama/tokenizer.json --top-p 0.9 --seed 7 "
	"<question.txt\n"
	"\n"
	"EXIT STATUS\n"
	"  0  generated\n"
	"  1  there is no checkpoint, it is damaged, or memory is short\n"
	"  2  usage\n";

enum { TOKENS_MAX = 100000000 };

/* The numbers of the command line. Errors state their range. */
/* clang-format off */
static const struct number {
	int option;
	const char *name;
	double least, most;
	bool whole;
} numbers[] = {
	{ 'n', "--tokens", 1, TOKENS_MAX, true },   { 'T', "--temperature", 0, 1000, false },
	{ 'k', "--top-k", 0, TOKENS_MAX, true },    { 'p', "--top-p", 1e-9, 1, false },
	{ 'j', "--threads", 1, 1024, true },         { 's', "--seed", 0, 9007199254740992.0, true },
};
/* clang-format on */

static int read_number(int option, const char *text, double *out)
{
	const struct number *n = numbers;
	char *end;
	while (n->option != option)
		n++;
	double v = strtod(text, &end);
	if (!*text || *end || !(v >= n->least && v <= n->most) || (n->whole && v != floor(v)))
		return tool_usage(&tool_generate, "%s %s: a %snumber from %g to %.16g is needed",
				  n->name, text, n->whole ? "whole " : "", n->least, n->most);
	*out = v;
	return 0;
}

static int take_number(struct generate_options *o, int option, const char *text)
{
	double v = 0;
	int rc = read_number(option, text, &v);
	if (rc)
		return rc;
	switch (option) {
	case 'n':
		o->tokens = (int64_t)v;
		break;
	case 'T':
		o->sample.temperature = v;
		break;
	case 'k':
		o->sample.top_k = (int64_t)v;
		break;
	case 'p':
		o->sample.top_p = v;
		break;
	case 'j':
		o->threads = (int64_t)v;
		break;
	default:
		o->sample.seed = (uint64_t)v;
		break;
	}
	return 0;
}

/* Returns -1 if the option was accepted, otherwise the exit status. */
static int take_option(struct generate_options *o, int c, char **argv)
{
	int rc;
	switch (c) {
	case 't':
		o->tokenizer = optarg;
		return -1;
	case 'q':
		o->prompt = optarg;
		return -1;
	case 'e':
		o->end = optarg;
		return -1;
	case 'E':
		o->echo = true;
		return -1;
	case 'J':
		o->json = true;
		return -1;
	case 'n':
	case 'T':
	case 'k':
	case 'p':
	case 'j':
	case 's':
		rc = take_number(o, c, optarg);
		return rc ? rc : -1;
	default:
		return tool_option(&tool_generate, c, argv);
	}
}

static int64_t processors(void)
{
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static int generate_main(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "tokenizer", required_argument, NULL, 't' }, { "prompt", required_argument, NULL, 'q' },
		{ "tokens", required_argument, NULL, 'n' }, { "temperature", required_argument, NULL, 'T' },
		{ "top-k", required_argument, NULL, 'k' }, { "top-p", required_argument, NULL, 'p' },
		{ "seed", required_argument, NULL, 's' }, { "end", required_argument, NULL, 'e' },
		{ "threads", required_argument, NULL, 'j' }, { "echo", no_argument, NULL, 'E' },
		{ "json", no_argument, NULL, 'J' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	static struct generate_options o = {
		.tokens = 100, .sample = { .temperature = 1, .top_p = 1, .seed = 1 }
	};
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		int rc = take_option(&o, c, argv);
		if (rc >= 0)
			return rc;
	}
	if (argc - optind != 1)
		return tool_usage(&tool_generate, "one MODEL is needed: a checkpoint, a run's "
						  "folder, or a Hugging Face folder");
	o.word = argv[optind];
	if (!o.threads)
		o.threads = processors();
	return tool_generate_run(&o);
}

const struct tool tool_generate = { "generate", NULL, generate_main, "text from a checkpoint",
				    page };
