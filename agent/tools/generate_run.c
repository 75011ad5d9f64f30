#include "agent/tools/generate.h"

#include "agent/engine/generate/text.h"
#include "agent/engine/hf/side.h"
#include "agent/engine/text/locate.h"
#include "agent/engine/text/utf8.h"
#include "agent/tools/gen_model.h"
#include "agent/tools/tools.h"
#include "base/clock.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 256, PROMPT_MAX = 1 << 28 };

struct generate {
	const struct generate_options *opt;
	struct gen_model model;
	struct lm *lm;
	int64_t context;                    /* the most tokens that the model can see */
	char tokenizer_name[PATH_MAX + 32]; /* for messages */
	struct tokenizer *tokenizer;        /* NULL: bytes */
	struct decoder *decoder;
	int64_t usable;             /* only tokens below this are drawn */
	int32_t ends[HF_SIDE_ENDS]; /* each of these ends the text */
	int n_ends;
	/* prompt: text; ids: int32_t, of the prompt and then those drawn; out: text not printed yet
	 */
	struct buf prompt, ids, out;
	struct buf said;     /* the whole text, for --json */
	int64_t n_prompt, n; /* ids */
	bool ended, warned;
	int64_t unseen;
	double load_s, prompt_s, text_s;
};

/* --- what to load --- */

/* Opens the tokenizer that was named, otherwise the model's own. A model of bytes needs none. */
static int open_tokenizer(struct generate *g, struct err *e)
{
	const struct attached_file *own = ckpt_attached_find(&g->model.attached, "tokenizer.json");
	char name[PATH_MAX + 32];
	if (g->opt->tokenizer) {
		snprintf(g->tokenizer_name, sizeof g->tokenizer_name, "%s", g->opt->tokenizer);
		return tokenizer_open_named(g->opt->tokenizer, &g->tokenizer, e);
	}
	snprintf(name, sizeof name, "%s/tokenizer.json", g->model.path);
	snprintf(g->tokenizer_name, sizeof g->tokenizer_name, "%s", name);
	if (own)
		return tokenizer_parse(own->data, own->size, name, &g->tokenizer, e);
	if (g->model.shape.vocab == BYTES)
		return 0;
	if (g->model.folder)
		return tokenizer_lacking(g->model.path, e);
	return err_set(e, ERR_USAGE,
		       "%s: a vocabulary of %" PRId64
		       " tokens is not one of bytes; name its tokenizer.json with --tokenizer",
		       g->model.path, g->model.shape.vocab);
}

/* Finds the ids that end a text: those of --end, otherwise the model's own. */
static int find_ends(struct generate *g, struct err *e)
{
	g->n_ends = hf_side_ends(&g->model.attached, g->model.shape.vocab, g->ends);
	if (!g->opt->end)
		return 0;
	if (!g->tokenizer)
		return err_set(e, ERR_USAGE,
			       "--end names a token of a --tokenizer, and there is none");
	g->n_ends = 1;
	g->ends[0] = tokenizer_id(g->tokenizer, g->opt->end);
	if (g->ends[0] < 0)
		return err_set(
			e, ERR_USAGE,
			"--end %s: %s has no such token; its added_tokens list those for this",
			g->opt->end, g->tokenizer_name);
	return 0;
}

static int load_tokenizer(struct generate *g, struct err *e)
{
	int64_t vocab = g->model.shape.vocab;
	g->usable = vocab;
	if (open_tokenizer(g, e) || find_ends(g, e))
		return -1;
	if (!g->tokenizer)
		return 0;
	if (tokenizer_vocab(g->tokenizer) > vocab)
		return err_set(e, ERR_USAGE,
			       "%s has %" PRId32 " tokens, the model of %s only %" PRId64
			       "; name the tokenizer.json that it was "
			       "trained with",
			       g->tokenizer_name, tokenizer_vocab(g->tokenizer), g->model.path,
			       vocab);
	g->usable = tokenizer_vocab(g->tokenizer);
	return text_decoder_open(g->tokenizer, &g->decoder, e);
}

static void put_note(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "muster generate: note: %s\n", text);
}

/* With rotary positions, keys and values need memory only for the longest text of this run. */
static int load_weights(struct generate *g, struct err *e)
{
	struct lm_options opt = { .shape = g->model.shape,
				  .backend_name = "cpu",
				  .threads = (int)g->opt->threads };
	double since = clock_s();
	if (opt.shape.rope && g->n_prompt + g->opt->tokens < opt.shape.seq)
		opt.shape.seq = g->n_prompt + g->opt->tokens;
	g->context = opt.shape.seq;
	if (generate_lm_open(&opt, &g->lm, e) ||
	    tool_gen_model_load(&g->model, g->lm, put_note, NULL, e))
		return -1;
	g->load_s += clock_s() - since;
	return 0;
}

static int open_model(struct generate *g, struct err *e)
{
	double since = clock_s();
	int rc = tool_gen_model_open(g->opt->word, &g->model, e);
	g->load_s = clock_s() - since;
	return rc;
}

/* --- the prompt --- */

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
	if (text_encoder_open(g->tokenizer, &c, e))
		return -1;
	char note[ENCODER_NOTE];
	int rc = text_encoder_encode(c, buf_str(&g->prompt), g->prompt.len, add_ids, &g->ids, e);
	if (text_encoder_unassigned(c, note) && !g->opt->json)
		fprintf(stderr, "muster generate: the prompt: %s\n", note);
	text_encoder_close(c);
	return rc ? err_prefix(e, "the prompt") : 0;
}

static int read_prompt(struct generate *g, struct err *e)
{
	if (g->opt->prompt)
		buf_puts(&g->prompt, g->opt->prompt);
	else if (!isatty(STDIN_FILENO) && file_slurp("/dev/stdin", PROMPT_MAX, &g->prompt, e))
		return -1;
	if (g->tokenizer && encode_text(g, e))
		return -1;
	if (!g->tokenizer)
		encode_bytes(g);
	if (buf_failed(&g->prompt) || buf_failed(&g->ids))
		return err_set(e, ERR_NOMEM, "no memory for a prompt of %zu bytes", g->prompt.len);
	g->n_prompt = (int64_t)(g->ids.len / sizeof(int32_t));
	return g->n_prompt ? 0
			   : err_set(e, ERR_USAGE,
				     "the prompt is empty, and there is nothing to go on with; "
				     "give --prompt TEXT");
}

/* --- the text --- */

/* Prints the text so far at once. */
static int print_out(struct generate *g, struct err *e)
{
	if (buf_failed(&g->out))
		return err_set(e, ERR_NOMEM, "no memory for the text");
	if (g->opt->json)
		buf_add(&g->said, g->out.data, g->out.len);
	else if (file_write_full(STDOUT_FILENO, g->out.data, g->out.len))
		return err_errno(e, ERR_IO, "cannot print");
	buf_clear(&g->out);
	return 0;
}

static int print_token(struct generate *g, int32_t id, struct err *e)
{
	if (g->decoder) {
		if (text_decoder_put(g->decoder, id, &g->out, e))
			return -1;
	} else {
		buf_add(&g->out, &(char){ (char)id }, 1);
	}
	return print_out(g, e);
}

/* JSON has a field for this instead of a warning. */
static void warn_unseen(struct generate *g, const struct generated_text *t)
{
	g->unseen = generate_text_unseen(t);
	if (!g->unseen || g->warned || g->opt->json)
		return;
	g->warned = true;
	fprintf(stderr,
		"muster generate: the context of %" PRId64
		" tokens (model.seq) is full: from here on, the model sees only the second "
		"half of the context and the tokens after it\n",
		g->model.shape.seq);
}

static bool is_end(const struct generate *g, int32_t id)
{
	for (int i = 0; i < g->n_ends; i++)
		if (g->ends[i] == id)
			return true;
	return false;
}

static int draw(struct generate *g, struct generated_text *t, struct err *e)
{
	const int32_t *prompt = (const int32_t *)(const void *)g->ids.data;
	double since = clock_s();
	if (generate_text_prompt(t, prompt, g->n_prompt, e))
		return -1;
	g->prompt_s = clock_s() - since;
	since = clock_s();
	while (g->n < g->opt->tokens && !g->ended) {
		int32_t id;
		warn_unseen(g, t);
		if (generate_text_next(t, &id, e))
			return -1;
		g->n++;
		g->ended = is_end(g, id);
		buf_add(&g->ids, &id, sizeof id);
		if (!g->ended && print_token(g, id, e))
			return -1;
	}
	g->text_s = clock_s() - since;
	return 0;
}

static int write_text(struct generate *g, struct err *e)
{
	struct generated_text *t;
	struct generated_text_options opt = { .lm = g->lm,
					      .context = g->context,
					      .vocab = g->model.shape.vocab,
					      .usable = g->usable,
					      .sample = g->opt->sample };
	if (generate_text_open(&opt, &t, e))
		return -1;
	if (g->opt->echo)
		buf_add(&g->out, g->prompt.data, g->prompt.len);
	int rc = g->decoder ? text_decoder_begin(g->decoder,
						 (const int32_t *)(const void *)g->ids.data,
						 (size_t)g->n_prompt, e)
			    : 0;
	rc = rc || print_out(g, e) || draw(g, t, e) ? -1 : 0;
	if (!rc && g->decoder)
		text_decoder_end(g->decoder, &g->out);
	if (!rc && !g->opt->json)
		buf_puts(&g->out, "\n");
	generate_text_close(t);
	return rc || print_out(g, e) ? -1 : 0;
}

/* --- the report --- */

/* JSON text must be UTF-8. */
static json_t *json_text(const struct buf *text)
{
	struct buf out = BUF_INIT;
	for (size_t at = 0; at < text->len;) {
		size_t run = text_utf8_run(text->data + at, text->len - at);
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
	return tool_print_json(&tool_generate,
			       json_pack("{s:s, s:I, s:o, s:I, s:o, s:o, s:b, s:I, s:f, s:f, s:f}",
					 "checkpoint", g->model.path, "step",
					 (json_int_t)g->model.step, "prompt", json_text(&g->prompt),
					 "prompt_tokens", (json_int_t)g->n_prompt, "text",
					 json_text(&g->said), "ids", ids, "ended", g->ended,
					 "unseen", (json_int_t)g->unseen, "load_s", g->load_s,
					 "prompt_s", g->prompt_s, "tokens_per_s", rate(g)));
}

/* Prints the report as text. Programs use --json. */
static int print_report(const struct generate *g)
{
	if (g->opt->json)
		return print_json(g);
	if (isatty(STDERR_FILENO))
		fprintf(stderr,
			"muster generate: %" PRId64 " tokens of prompt in %.2f s, %" PRId64
			" drawn at %.1f a second (loaded in %.2f s)\n",
			g->n_prompt, g->prompt_s, g->n, rate(g), g->load_s);
	return TOOL_OK;
}

int tool_generate_run(const struct generate_options *opt)
{
	struct err e = ERR_INIT;
	static struct generate here; /* too large for a small stack; a program calls this once */
	struct generate *g = &here;
	*g = (struct generate){ .opt = opt };
	int rc = open_model(g, &e) || load_tokenizer(g, &e) || read_prompt(g, &e) ||
				 load_weights(g, &e) || write_text(g, &e)
			 ? -1
			 : 0;
	rc = rc ? tool_fail(&tool_generate, &e) : print_report(g);
	generate_lm_close(g->lm);
	tool_gen_model_close(&g->model);
	text_decoder_close(g->decoder);
	tokenizer_close(g->tokenizer);
	buf_fini(&g->prompt);
	buf_fini(&g->ids);
	buf_fini(&g->out);
	buf_fini(&g->said);
	return rc;
}
