#include "agent/ckpt/manifest.h"
#include "agent/generate/text.h"
#include "agent/state.h"
#include "agent/text/tokenizer.h"
#include "agent/text/utf8.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char page[] =
	"muster generate — text from a checkpoint\n"
	"\n"
	"SYNOPSIS\n"
	"  muster generate CHECKPOINT [--tokenizer FILE] [--prompt TEXT] [--tokens N] [--temperature T] [--top-k K]\n"
	"                  [--top-p P] [--seed S] [--end TOKEN] [--threads N] [--echo] [--json]\n"
	"  … | muster generate CHECKPOINT …\n"
	"\n"
	"DESCRIPTION\n"
	"  Goes on with a text: loads the model of a checkpoint that any layout has written into this process, reads the prompt\n"
	"  at once, and then draws one token after the other. Keys and values of what was read are kept, so that a token costs\n"
	"  one pass over the weights. The text appears as it comes.\n"
	"\n"
	"  The same checkpoint, prompt, options and threads give the same text. At temperature 0 the likeliest token is taken; else tokens\n"
	"  are drawn by their probabilities, with numbers that depend on --seed and the place in the text.\n"
	"\n"
	"  A model sees at most its model.seq tokens. When these are full it goes on from the last half of them, and says so;\n"
	"  a longer prompt is cut likewise.\n"
	"\n"
	"  CHECKPOINT is a checkpoint, or a run's folder or its ckpt folder: then the newest valid one.\n"
	"\n"
	"OPTIONS\n"
	"  --tokenizer FILE  the tokenizer.json that the training data was packed with. Without it the model's vocabulary must be\n"
	"                    256: bytes\n"
	"  --prompt TEXT     what to go on with (default: what stands on standard input, unless that is a terminal)\n"
	"  --tokens N        how many tokens to draw (default 100)\n"
	"  --temperature T   divides the logits: below 1 bolder, above 1 more varied (default 1); 0: always the likeliest\n"
	"  --top-k K         only the K likeliest tokens (default 0: all)\n"
	"  --top-p P         only the fewest likeliest tokens whose probabilities add up to P (default 1: all)\n"
	"  --seed S          of the numbers drawn with (default 1)\n"
	"  --end TOKEN       stop behind this token, such as <|endoftext|>\n"
	"  --threads N       (default: the processors that this process may use)\n"
	"  --echo            print the prompt before the text\n"
	"  --json            print as JSON: {checkpoint, step, prompt, prompt_tokens, text, ids, ended: --end's token came, unseen:\n"
	"                    tokens at the start that the last one did not see, load_s, prompt_s, tokens_per_s}. In prompt and text\n"
	"                    U+FFFD stands for bytes that are no UTF-8\n"
	"\n"
	"EXAMPLES\n"
	"  muster generate runs/demo --prompt 'This license' --tokens 200 --temperature 0.7\n"
	"  muster generate runs/llama --tokenizer llama/tokenizer.json --top-p 0.9 --seed 7 <question.txt\n"
	"\n"
	"EXIT STATUS\n"
	"  0  generated\n"
	"  1  there is no checkpoint, it is damaged, or memory is short\n"
	"  2  usage\n";

enum { BYTES = 256, PROMPT_MOST = 1 << 28, TOKENS_MOST = 100000000, NONE = -1 };

struct generate {
	const char *word, *tokenizer_path, *prompt_word, *end_word;
	int64_t tokens, threads;
	struct sample_options sample;
	bool echo, json;

	char checkpoint[PATH_MAX];
	int64_t step;
	struct lm_options model;
	struct lm *lm;
	struct tokenizer *tokenizer; /* NULL: bytes */
	struct decoder *decoder;
	int64_t usable;              /* tokens below this may come */
	int32_t end;                 /* NONE: none */
	struct buf prompt, ids, out; /* text; int32_t, the prompt's and then those drawn; text that is not printed yet */
	struct buf said;             /* for --json: all of it */
	int64_t n_prompt, n;         /* ids */
	bool ended, warned;
	int64_t unseen;
	double load_s, prompt_s, text_s;
};

/* --- what to load -------------------------------------------------------------------------- */

static int find_checkpoint(struct generate *g, struct err *e)
{
	struct ckpt_dir d;
	char *path = NULL;
	if (ckpt_dir_open(g->word, &d, e))
		return -1;
	int rc = 0;
	if (d.one)
		ckpt_dir_path(&d, 0, g->checkpoint);
	else if (!(rc = ckpt_latest(d.dir, NULL, &path, NULL, NULL, e)) && !path)
		rc = err_set(e, ERR_NOTFOUND, "%s: no checkpoints", d.dir);
	if (path)
		snprintf(g->checkpoint, sizeof g->checkpoint, "%s", path);
	free(path);
	ckpt_dir_close(&d);
	return rc;
}

/* A model that is larger than what was saved would take memory before the first tensor is missed. */
static int check_size(const struct generate *g, const struct manifest *m, struct err *e)
{
	double need = (double)model_params(&g->model.shape) * sizeof(float);
	if (need <= (double)manifest_bytes(m))
		return 0;
	return err_set(e, ERR_CORRUPT, "%s: its files hold %" PRId64 " bytes, its model needs %.0f", g->checkpoint, manifest_bytes(m), need);
}

static int read_shape(struct generate *g, const struct manifest *m, struct err *e)
{
	struct job job;
	if (state_model_job(m->model, &job, e))
		return err_prefix(e, "%s", g->checkpoint);
	model_shape(&job, &g->model.shape);
	return check_size(g, m, e);
}

static int load_model(struct generate *g, struct err *e)
{
	struct manifest m;
	double since = clock_s();
	if (find_checkpoint(g, e) || manifest_load(g->checkpoint, &m, e))
		return -1;
	g->step = m.state.step;
	int rc = read_shape(g, &m, e);
	manifest_fini(&m);
	g->model.backend = "cpu";
	g->model.threads = (int)g->threads;
	if (rc || lm_open(&g->model, &g->lm, e))
		return -1;
	if (lm_load(g->lm, g->checkpoint, e))
		return err_prefix(e, "%s", g->checkpoint);
	g->load_s = clock_s() - since;
	return 0;
}

static int load_tokenizer(struct generate *g, struct err *e)
{
	int64_t vocab = g->model.shape.vocab;
	g->usable = vocab;
	g->end = NONE;
	if (!g->tokenizer_path)
		return vocab == BYTES ? 0 : err_set(e, ERR_USAGE, "%s: a vocabulary of %" PRId64 " tokens is not one of bytes; name its "
						    "tokenizer.json with --tokenizer", g->checkpoint, vocab);
	if (tokenizer_open(g->tokenizer_path, &g->tokenizer, e) || decoder_open(g->tokenizer, &g->decoder, e))
		return -1;
	if (tokenizer_vocab(g->tokenizer) > vocab)
		return err_set(e, ERR_USAGE, "%s has %" PRId32 " tokens, the model of %s only %" PRId64 "; name the tokenizer.json that it was "
			       "trained with", g->tokenizer_path, tokenizer_vocab(g->tokenizer), g->checkpoint, vocab);
	g->usable = tokenizer_vocab(g->tokenizer);
	g->end = g->end_word ? tokenizer_id(g->tokenizer, g->end_word) : NONE;
	if (g->end_word && g->end < 0)
		return err_set(e, ERR_USAGE, "--end %s: %s has no such token; its added_tokens list those for this", g->end_word, g->tokenizer_path);
	return 0;
}

/* --- the prompt ---------------------------------------------------------------------------- */

static int add_ids(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	(void)e;
	buf_add(arg, ids, n * sizeof *ids);
	return 0;
}

static void encode_bytes(struct generate *g)
{
	for (size_t i = 0; i < g->prompt.len; i++) {
		int32_t id = (unsigned char)g->prompt.data[i];
		buf_add(&g->ids, &id, sizeof id);
	}
}

static int encode_text(struct generate *g, struct err *e)
{
	struct encoder *c;
	size_t n;
	const int32_t *before = tokenizer_before(g->tokenizer, &n);
	buf_add(&g->ids, before, n * sizeof *before);
	if (encoder_open(g->tokenizer, &c, e))
		return -1;
	int rc = encoder_encode(c, buf_str(&g->prompt), g->prompt.len, add_ids, &g->ids, e);
	encoder_close(c);
	return rc ? err_prefix(e, "the prompt") : 0;
}

static int read_prompt(struct generate *g, struct err *e)
{
	if (g->prompt_word)
		buf_puts(&g->prompt, g->prompt_word);
	else if (!isatty(STDIN_FILENO) && file_slurp("/dev/stdin", PROMPT_MOST, &g->prompt, e))
		return -1;
	if (g->tokenizer && encode_text(g, e))
		return -1;
	if (!g->tokenizer)
		encode_bytes(g);
	if (buf_failed(&g->prompt) || buf_failed(&g->ids))
		return err_set(e, ERR_NOMEM, "no memory for a prompt of %zu bytes", g->prompt.len);
	g->n_prompt = (int64_t)(g->ids.len / sizeof(int32_t));
	return g->n_prompt ? 0 : err_set(e, ERR_USAGE, "the prompt is empty, and there is nothing to go on with; give --prompt TEXT");
}

/* --- the text ------------------------------------------------------------------------------ */

/* What has come so far goes out at once. */
static int print_out(struct generate *g, struct err *e)
{
	if (buf_failed(&g->out))
		return err_set(e, ERR_NOMEM, "no memory for the text");
	if (g->json)
		buf_add(&g->said, g->out.data, g->out.len);
	else if (file_write_full(STDOUT_FILENO, g->out.data, g->out.len))
		return err_errno(e, ERR_IO, "cannot print");
	buf_clear(&g->out);
	return 0;
}

static int print_token(struct generate *g, int32_t id, struct err *e)
{
	if (g->decoder) {
		if (decoder_put(g->decoder, id, &g->out, e))
			return -1;
	} else {
		buf_add(&g->out, &(char){ (char)id }, 1);
	}
	return print_out(g, e);
}

/* In JSON it is a field. */
static void warn_unseen(struct generate *g, const struct text *t)
{
	g->unseen = text_unseen(t);
	if (!g->unseen || g->warned || g->json)
		return;
	g->warned = true;
	fprintf(stderr, "muster generate: the context of %" PRId64 " tokens (model.seq) is full: what follows sees its last half, and what "
		"comes behind that\n", g->model.shape.seq);
}

static int draw(struct generate *g, struct text *t, struct err *e)
{
	const int32_t *prompt = (const int32_t *)(const void *)g->ids.data;
	double since = clock_s();
	if (text_prompt(t, prompt, g->n_prompt, e))
		return -1;
	g->prompt_s = clock_s() - since;
	since = clock_s();
	while (g->n < g->tokens && !g->ended) {
		int32_t id;
		warn_unseen(g, t);
		if (text_next(t, &id, e))
			return -1;
		g->n++;
		g->ended = id == g->end;
		buf_add(&g->ids, &id, sizeof id);
		if (!g->ended && print_token(g, id, e))
			return -1;
	}
	g->text_s = clock_s() - since;
	return 0;
}

static int write_text(struct generate *g, struct err *e)
{
	struct text *t;
	struct text_options opt = { .lm = g->lm, .context = g->model.shape.seq, .vocab = g->model.shape.vocab, .usable = g->usable,
				    .sample = g->sample };
	if (text_open(&opt, &t, e))
		return -1;
	if (g->echo)
		buf_add(&g->out, g->prompt.data, g->prompt.len);
	int rc = print_out(g, e) || draw(g, t, e) ? -1 : 0;
	if (!rc && g->decoder)
		decoder_end(g->decoder, &g->out);
	if (!rc && !g->json)
		buf_puts(&g->out, "\n");
	text_close(t);
	return rc || print_out(g, e) ? -1 : 0;
}

/* --- the report ---------------------------------------------------------------------------- */

/* JSON holds only UTF-8. */
static json_t *json_text(const struct buf *text)
{
	struct buf out = BUF_INIT;
	for (size_t at = 0; at < text->len;) {
		size_t run = utf8_run(text->data + at, text->len - at);
		buf_add(&out, text->data + at, run);
		at += run;
		if (at < text->len) {
			buf_puts(&out, "\xef\xbf\xbd");
			at++;
		}
	}
	json_t *v = buf_failed(&out) ? NULL : json_stringn(buf_str(&out), out.len);
	buf_fini(&out);
	return v;
}

static double rate(const struct generate *g)
{
	return g->text_s > 0 ? (double)g->n / g->text_s : 0;
}

static int print_json(const struct generate *g)
{
	json_t *ids = json_array();
	for (int64_t i = 0; i < g->n; i++) {
		int32_t id;
		memcpy(&id, g->ids.data + (size_t)(g->n_prompt + i) * sizeof id, sizeof id);
		json_array_append_new(ids, json_integer(id));
	}
	return tool_print_json(&tool_generate, json_pack("{s:s, s:I, s:o, s:I, s:o, s:o, s:b, s:I, s:f, s:f, s:f}", "checkpoint", g->checkpoint,
			       "step", (json_int_t)g->step, "prompt", json_text(&g->prompt), "prompt_tokens", (json_int_t)g->n_prompt,
			       "text", json_text(&g->said), "ids", ids, "ended", g->ended, "unseen", (json_int_t)g->unseen,
			       "load_s", g->load_s, "prompt_s", g->prompt_s, "tokens_per_s", rate(g)));
}

/* For who watches; a program asks for --json. */
static int print_report(const struct generate *g)
{
	if (g->json)
		return print_json(g);
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "muster generate: %" PRId64 " tokens of prompt in %.2f s, %" PRId64 " drawn at %.1f a second (loaded in %.2f s)\n",
			g->n_prompt, g->prompt_s, g->n, rate(g), g->load_s);
	return TOOL_OK;
}

static int generate(struct generate *g)
{
	struct err e = ERR_INIT;
	int rc = load_model(g, &e) || load_tokenizer(g, &e) || read_prompt(g, &e) || write_text(g, &e) ? -1 : 0;
	rc = rc ? tool_fail(&tool_generate, &e) : print_report(g);
	lm_close(g->lm);
	decoder_close(g->decoder);
	tokenizer_close(g->tokenizer);
	buf_fini(&g->prompt);
	buf_fini(&g->ids);
	buf_fini(&g->out);
	buf_fini(&g->said);
	return rc;
}

/* --- the command line ---------------------------------------------------------------------- */

/* Numbers of the command line: their range is part of the refusal. */
static const struct number {
	int option;
	const char *name;
	double least, most;
	bool whole;
} numbers[] = {
	{ 'n', "--tokens", 1, TOKENS_MOST, true },   { 'T', "--temperature", 0, 1000, false },
	{ 'k', "--top-k", 0, TOKENS_MOST, true },    { 'p', "--top-p", 1e-9, 1, false },
	{ 'j', "--threads", 1, 1024, true },         { 's', "--seed", 0, 9007199254740992.0, true },
};

static int read_number(int option, const char *text, double *out)
{
	const struct number *n = numbers;
	char *end;
	while (n->option != option)
		n++;
	double v = strtod(text, &end);
	if (!*text || *end || !(v >= n->least && v <= n->most) || (n->whole && v != floor(v)))
		return tool_usage(&tool_generate, "%s %s: a %snumber from %g to %.16g is needed", n->name, text, n->whole ? "whole " : "",
				  n->least, n->most);
	*out = v;
	return 0;
}

static int take_number(struct generate *g, int option, const char *text)
{
	double v = 0;
	int rc = read_number(option, text, &v);
	if (rc)
		return rc;
	switch (option) {
	case 'n': g->tokens = (int64_t)v; break;
	case 'T': g->sample.temperature = v; break;
	case 'k': g->sample.top_k = (int64_t)v; break;
	case 'p': g->sample.top_p = v; break;
	case 'j': g->threads = (int64_t)v; break;
	default: g->sample.seed = (uint64_t)v; break;
	}
	return 0;
}

/* -1: taken; else the exit status. */
static int take_option(struct generate *g, int c, char **argv)
{
	int rc;
	switch (c) {
	case 't': g->tokenizer_path = optarg; return -1;
	case 'q': g->prompt_word = optarg; return -1;
	case 'e': g->end_word = optarg; return -1;
	case 'E': g->echo = true; return -1;
	case 'J': g->json = true; return -1;
	case 'n': case 'T': case 'k': case 'p': case 'j': case 's':
		rc = take_number(g, c, optarg);
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

static int run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "tokenizer", required_argument, NULL, 't' }, { "prompt", required_argument, NULL, 'q' },
		{ "tokens", required_argument, NULL, 'n' }, { "temperature", required_argument, NULL, 'T' },
		{ "top-k", required_argument, NULL, 'k' }, { "top-p", required_argument, NULL, 'p' },
		{ "seed", required_argument, NULL, 's' }, { "end", required_argument, NULL, 'e' },
		{ "threads", required_argument, NULL, 'j' }, { "echo", no_argument, NULL, 'E' },
		{ "json", no_argument, NULL, 'J' }, { "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	static struct generate g = { .tokens = 100, .sample = { .temperature = 1, .top_p = 1, .seed = 1 } };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		int rc = take_option(&g, c, argv);
		if (rc >= 0)
			return rc;
	}
	if (argc - optind != 1)
		return tool_usage(&tool_generate, "one CHECKPOINT is needed");
	if (g.end_word && !g.tokenizer_path)
		return tool_usage(&tool_generate, "--end names a token of a --tokenizer, and there is none");
	g.word = argv[optind];
	if (!g.threads)
		g.threads = processors();
	return generate(&g);
}

const struct tool tool_generate = { "generate", NULL, run, "text from a checkpoint", page };
