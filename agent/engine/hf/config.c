#include "agent/engine/hf/config.h"

#include "agent/engine/hf/balance.h"
#include "agent/engine/hf/rope.h"
#include "plan/spec/job/keys.h"
#include "plan/spec/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Families, as a set. */
enum {
	GPT2 = 1 << FAMILY_GPT2,
	LLAMA = 1 << FAMILY_LLAMA,
	MIXTRAL = 1 << FAMILY_MIXTRAL,
	ROTARY = LLAMA | MIXTRAL
};

static const struct {
	const char *type, *class;
} families[] = {
	[FAMILY_GPT2] = { "gpt2", "GPT2LMHeadModel" },
	[FAMILY_LLAMA] = { "llama", "LlamaForCausalLM" },
	[FAMILY_MIXTRAL] = { "mixtral", "MixtralForCausalLM" },
};

enum { FAMILIES = sizeof families / sizeof *families };

/* A key of theirs that is a key of [model]. */
struct row {
	int families;
	const char *theirs, *ours;
	/* what it is where the file has none, or null; NULL: it must be there */
	const char *absent;
};

static const struct row rows[] = {
	{ GPT2, "n_layer", "layers", NULL },
	{ GPT2, "n_embd", "hidden", NULL },
	{ GPT2, "n_head", "heads", NULL },
	{ GPT2, "n_inner", "ffn", "0" },
	{ GPT2, "n_positions", "seq", NULL },
	{ GPT2, "layer_norm_epsilon", "norm_eps", "1e-05" },
	{ GPT2, "resid_pdrop", "dropout", "0.1" },
	{ GPT2, "embd_pdrop", "dropout", "0.1" },
	{ GPT2, "attn_pdrop", "attn_dropout", "0.1" },
	{ GPT2, "tie_word_embeddings", "tie_head", "yes" },
	{ ROTARY, "num_hidden_layers", "layers", NULL },
	{ ROTARY, "hidden_size", "hidden", NULL },
	{ ROTARY, "num_attention_heads", "heads", NULL },
	{ LLAMA, "num_key_value_heads", "kv_heads", "0" },
	{ MIXTRAL, "num_key_value_heads", "kv_heads", "8" },
	{ ROTARY, "head_dim", "head_dim", "0" },
	{ ROTARY, "intermediate_size", "ffn", NULL },
	{ ROTARY, "max_position_embeddings", "seq", NULL },
	{ LLAMA, "rms_norm_eps", "norm_eps", "1e-06" },
	{ MIXTRAL, "rms_norm_eps", "norm_eps", "1e-05" },
	{ LLAMA, "rope_theta", "rope_theta", "10000" },
	{ MIXTRAL, "rope_theta", "rope_theta", "1e6" },
	{ ROTARY, "attention_dropout", "attn_dropout", "0" },
	{ ROTARY, "tie_word_embeddings", "tie_head", "no" },
	{ MIXTRAL, "num_local_experts", "experts", "8" },
	{ MIXTRAL, "num_experts_per_tok", "experts_per_token", "2" },
	{ GPT2 | ROTARY, "vocab_size", "vocab", NULL },
	{ GPT2 | ROTARY, "initializer_range", "init_std", "0.02" },
};

/* Keys of theirs whose value must be one of these words; the first is what we write. Absent or
 * null is right. */
static const struct must {
	int families;
	const char *theirs, *words[4];
} musts[] = {
	{ GPT2, "activation_function", { "gelu_new", "gelu_pytorch_tanh", "gelu_fast" } },
	{ GPT2, "scale_attn_weights", { "true" } },
	{ GPT2, "scale_attn_by_inverse_layer_idx", { "false" } },
	{ GPT2, "add_cross_attention", { "false" } },
	{ ROTARY, "hidden_act", { "silu", "swish" } },
	{ LLAMA, "attention_bias", { "false" } },
	{ LLAMA, "mlp_bias", { "false" } },
	{ MIXTRAL, "sliding_window", { "null" } },
	{ MIXTRAL, "router_jitter_noise", { "0" } },
	{ GPT2 | ROTARY, "quantization_config", { "null" } },
};

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

static const struct job_key *key_of(const char *ours)
{
	return &job_keys[job_key_find("model", ours)];
}

/* --- reading --- */

struct reader {
	json_t *root;
	const char *name; /* of the file */
	enum job_family family;
	struct buf ini;
	struct err *e;
};

/* A scalar as one word, for comparing and for errors. */
static const char *word_of(const json_t *v, char out[80])
{
	switch (v ? json_typeof(v) : JSON_NULL) {
	case JSON_STRING:
		snprintf(out, 80, "%s", json_string_value(v));
		for (char *c = out; *c; c++)
			if ((unsigned char)*c < 0x20 || *c == 0x7f)
				*c = '?';
		return out;
	case JSON_INTEGER:
		snprintf(out, 80, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		return out;
	case JSON_REAL:
		snprintf(out, 80, "%.17g", json_real_value(v));
		return out;
	case JSON_TRUE:
		return "true";
	case JSON_FALSE:
		return "false";
	case JSON_NULL:
		return "null";
	default:
		return "an object or array";
	}
}

/* The value of one key as a job file would have it, into `out`; false: it is of another type. */
static bool text_of(const struct job_key *key, const json_t *v, char out[80])
{
	if (key->type == JOB_ENUM && json_is_boolean(v)) {
		strcpy(out, json_is_true(v) ? "yes" : "no");
		return true;
	}
	if (key->type == JOB_REAL && json_is_number(v) && isfinite(json_number_value(v))) {
		word_of(v, out);
		return true;
	}
	if (key->type == JOB_INT && json_is_integer(v)) {
		word_of(v, out);
		return true;
	}
	return false;
}

static int refuse(struct reader *r, const char *theirs, const json_t *v, const char *why)
{
	char word[80];
	const char *quote = json_is_string(v) ? "\"" : ""; /* a number between quotes is none */
	return err_set(r->e, ERR_CORRUPT, "%s: %s is %s%s%s, %s", r->name, theirs, quote,
		       word_of(v, word), quote, why);
}

static int put(struct reader *r, const char *theirs, const json_t *v, const char *ours,
	       const char *absent)
{
	char text[80];
	if (!v || json_is_null(v)) {
		if (!absent)
			return err_set(r->e, ERR_CORRUPT,
				       "%s: %s is missing, and a %s model has one; take the file "
				       "that belongs to the weights",
				       r->name, theirs, families[r->family].type);
		snprintf(text, sizeof text, "%s", absent);
	} else if (!text_of(key_of(ours), v, text)) {
		return refuse(r, theirs, v,
			      key_of(ours)->type == JOB_INT    ? "not a whole number"
			      : key_of(ours)->type == JOB_REAL ? "not a number"
							       : "neither true nor false");
	}
	buf_printf(&r->ini, "%s = %s\n", ours, text);
	return 0;
}

static int read_family(struct reader *r)
{
	const json_t *v = json_object_get(r->root, "model_type");
	char word[80];
	for (int i = 0; i < FAMILIES; i++)
		if (json_is_string(v) && !strcmp(json_string_value(v), families[i].type)) {
			r->family = (enum job_family)i;
			buf_printf(&r->ini, "[model]\nfamily = %s\n", families[i].type);
			return 0;
		}
	return err_set(r->e, ERR_UNSUPPORTED,
		       "%s: model_type is %s; gpt2, llama and mixtral can be imported", r->name,
		       word_of(v, word));
}

static int check_musts(struct reader *r)
{
	for (int i = 0; i < LENGTH(musts); i++) {
		const struct must *m = &musts[i];
		const json_t *v = json_object_get(r->root, m->theirs);
		char word[80];
		bool right = !v || json_is_null(v) || !(m->families & 1 << r->family);
		for (int j = 0; j < LENGTH(m->words) && m->words[j] && !right; j++)
			right = !strcmp(word_of(v, word), m->words[j]);
		if (!right)
			return err_set(r->e, ERR_UNSUPPORTED,
				       "%s: %s is %s; muster's %s has %s alone, and would compute "
				       "something else",
				       r->name, m->theirs, word_of(v, word),
				       families[r->family].type, m->words[0]);
	}
	return 0;
}

/* The family's row before this one for the same key of ours, or NULL. */
static const struct row *twin_of(const struct row *row, enum job_family family)
{
	for (const struct row *other = rows; other < row; other++)
		if (other->families & 1 << family && !strcmp(other->ours, row->ours))
			return other;
	return NULL;
}

static double number_of(const struct reader *r, const struct row *row)
{
	const json_t *v = json_object_get(r->root, row->theirs);
	return json_is_number(v) ? json_number_value(v) : strtod(row->absent, NULL);
}

/* Two keys of theirs that are one of ours must agree. */
static int check_twin(struct reader *r, const struct row *row, const struct row *twin)
{
	double a = number_of(r, twin), b = number_of(r, row);
	if (a == b)
		return 0;
	return err_set(r->e, ERR_UNSUPPORTED,
		       "%s: %s is %g and %s is %g, and [model] %s is one for both; make them equal "
		       "in a copy of the "
		       "folder (the weights do not depend on them)",
		       r->name, twin->theirs, a, row->theirs, b, row->ours);
}

static int read_rows(struct reader *r, int64_t seq)
{
	for (const struct row *row = rows; row < rows + LENGTH(rows); row++) {
		const json_t *v = json_object_get(r->root, row->theirs);
		if (!(row->families & 1 << r->family) || !strcmp(row->ours, "rope_theta"))
			continue; /* read_rope's */
		const struct row *twin = twin_of(row, r->family);
		if (twin && check_twin(r, row, twin))
			return -1;
		if (twin)
			continue;
		bool context = seq && !strcmp(row->ours, "seq");
		if (context && r->family == FAMILY_GPT2 && json_integer_value(v) != seq)
			return refuse(
				r, row->theirs, v,
				"and its positions are learned: no other context can be asked for");
		if (context)
			buf_printf(&r->ini, "seq = %" PRId64 "\n", seq);
		else if (put(r, row->theirs, v, row->ours, row->absent))
			return -1;
	}
	return 0;
}

/* The family's default of a key of ours. */
static double default_of(enum job_family family, const char *ours)
{
	for (int i = 0; i < LENGTH(rows); i++)
		if (rows[i].families & 1 << family && !strcmp(rows[i].ours, ours))
			return strtod(rows[i].absent, NULL);
	return 0;
}

static int read_rope(struct reader *r)
{
	struct hf_rope rope;
	if (!(1 << r->family & ROTARY))
		return 0;
	if (hf_rope_read(r->root, r->name, default_of(r->family, "rope_theta"), &rope, r->e))
		return -1;
	if (rope.type != ROPE_PLAIN)
		buf_printf(&r->ini, "rope_scaling = %s\n", hf_rope_word(rope.type));
	for (int i = 0; i < HF_ROPE_KEYS; i++)
		if (hf_rope_keys[i].types & 1 << rope.type)
			buf_printf(&r->ini,
				   key_of(hf_rope_keys[i].ours)->type == JOB_INT ? "%s = %.0f\n"
										 : "%s = %.17g\n",
				   hf_rope_keys[i].ours, rope.value[i]);
	return 0;
}

static int64_t whole_of(const struct reader *r, const char *theirs, int64_t absent)
{
	const json_t *v = json_object_get(r->root, theirs);
	return v && !json_is_null(v) ? json_integer_value(v) : absent;
}

/* After the rows: sizes that are none have been refused as words, or are when the section is
 * parsed. */
static int read_balance(struct reader *r)
{
	int64_t layers = whole_of(r, "num_hidden_layers", 0),
		top = whole_of(r, "num_experts_per_tok", 2);
	double aux = 0;
	if (r->family != FAMILY_MIXTRAL)
		return 0;
	if (layers > 0 && top > 0 && hf_balance_read(r->root, r->name, layers, top, &aux, r->e))
		return -1;
	buf_printf(&r->ini, "aux_loss = %.17g\n", aux);
	return 0;
}

/* The section as a job, with all its checks. */
static int parse(struct buf *ini, const char *name, struct job *out, struct err *e)
{
	char place[JOB_PATH];
	if (buf_failed(ini))
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", name);
	snprintf(place, sizeof place, "%s as a job", name);
	if (!job_parse(buf_str(ini), place, out, e))
		return 0;
	if (e)
		e->code = ERR_UNSUPPORTED;
	return -1;
}

int hf_config_read(const char *text, size_t n, const char *name, int64_t seq, struct job *out,
		   struct err *e)
{
	json_error_t je;
	struct reader r = { .root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je),
			    .name = name,
			    .ini = BUF_INIT,
			    .e = e };
	int rc = -1;
	if (!r.root)
		err_set(e, ERR_CORRUPT, "%s: is not JSON: %s at line %d", name, je.text, je.line);
	else if (!json_is_object(r.root))
		err_set(e, ERR_CORRUPT, "%s: is no JSON object", name);
	else if (!read_family(&r) && !check_musts(&r) && !read_rows(&r, seq) && !read_rope(&r) &&
		 !read_balance(&r))
		rc = parse(&r.ini, name, out, e);
	buf_fini(&r.ini);
	json_decref(r.root);
	return rc;
}

/* --- writing --- */

/* With the sizes that the job left to be derived. */
static struct job resolved(const struct job *job)
{
	struct job out = *job;
	struct model_shape m;
	shape_of_job(job, &m);
	out.model.kv_heads = m.kv_heads;
	out.model.head_dim = m.head_dim;
	out.model.ffn = m.ffn;
	out.model.tie_head = m.tied ? TIE_YES : TIE_NO;
	return out;
}

/* A field of the job, by the table's key. */
static json_t *value_of(const struct job *job, const char *ours)
{
	const struct job_key *key = key_of(ours);
	const char *field = (const char *)job + key->offset;
	int64_t whole;
	double real;
	enum job_tie tie;
	switch (key->type) {
	case JOB_INT:
		memcpy(&whole, field, sizeof whole);
		return json_integer(whole);
	case JOB_REAL:
		memcpy(&real, field, sizeof real);
		return json_real(real);
	default:
		memcpy(&tie, field, sizeof tie);
		return json_boolean(tie == TIE_YES);
	}
}

static json_t *must_of(const struct must *m)
{
	const char *word = m->words[0];
	return !strcmp(word, "true")    ? json_true()
	       : !strcmp(word, "false") ? json_false()
	       : !strcmp(word, "null")  ? json_null()
	       : !strcmp(word, "0")     ? json_real(0)
					: json_string(word);
}

static json_t *rope_json(const struct job *job)
{
	enum job_rope_scaling type = job->model.rope_scaling;
	if (type == ROPE_PLAIN)
		return json_null();
	json_t *rope = json_pack("{s:s}", "rope_type", hf_rope_word(type));
	for (int i = HF_ROPE_THETA + 1; i < HF_ROPE_KEYS; i++)
		if (hf_rope_keys[i].types & 1 << type)
			json_object_set_new(rope, hf_rope_keys[i].theirs,
					    value_of(job, hf_rope_keys[i].ours));
	return rope;
}

/* What transformers has no model for. */
static int check_expressible(const struct job *job, struct err *e)
{
	if (job->model.family == FAMILY_MIXTRAL && job->model.router != ROUTER_SOFTMAX_AFTER)
		return err_set(e, ERR_UNSUPPORTED,
			       "the model's router takes the softmax before it chooses experts "
			       "(model.router = before), and "
			       "transformers' mixtral after; it cannot be exported");
	if (job->model.family != FAMILY_GPT2)
		return 0;
	if (job->model.kv_heads != job->model.heads ||
	    job->model.head_dim * job->model.heads != job->model.hidden)
		return err_set(e, ERR_UNSUPPORTED,
			       "transformers has no gpt2 with kv_heads = %" PRId64 " of %" PRId64
			       " heads and head_dim = %" PRId64 " in hidden = %" PRId64
			       "; only the family's own shape can be exported",
			       job->model.kv_heads, job->model.heads, job->model.head_dim,
			       job->model.hidden);
	return 0;
}

json_t *hf_config_write(const struct job *asked, const char *torch, struct err *e)
{
	struct job job = resolved(asked);
	int family = 1 << job.model.family;
	if (check_expressible(&job, e))
		return NULL;
	json_t *out = json_pack("{s:[s], s:s, s:s}", "architectures",
				families[job.model.family].class, "model_type",
				families[job.model.family].type, "torch_dtype", torch);
	int bad = !out;
	for (int i = 0; i < LENGTH(rows); i++)
		if (rows[i].families & family)
			bad |= json_object_set_new(out, rows[i].theirs,
						   value_of(&job, rows[i].ours));
	for (int i = 0; i < LENGTH(musts); i++)
		if (musts[i].families & family && strcmp(musts[i].words[0], "null"))
			bad |= json_object_set_new(out, musts[i].theirs, must_of(&musts[i]));
	if (family & ROTARY)
		bad |= json_object_set_new(out, "rope_scaling", rope_json(&job));
	if (family & MIXTRAL)
		bad |= hf_balance_write(&job, out);
	if (!bad)
		return out;
	json_decref(out);
	err_set(e, ERR_NOMEM, "no memory for config.json");
	return NULL;
}

static void put_key(const struct job *job, const char *ours, struct buf *out)
{
	buf_printf(out, "%s = ", ours);
	job_value_write(key_of(ours), job, out);
	buf_puts(out, "\n");
}

void hf_config_section(const struct job *asked, struct buf *out)
{
	struct job job = resolved(asked);
	int family = 1 << job.model.family, rope = 1 << job.model.rope_scaling;
	buf_puts(out, "[model]\n");
	put_key(&job, "family", out);
	for (int i = 0; i < LENGTH(rows); i++)
		if (rows[i].families & family && !twin_of(&rows[i], job.model.family))
			put_key(&job, rows[i].ours, out);
	if (family & MIXTRAL)
		put_key(&job, "aux_loss", out);
	if (rope != 1 << ROPE_PLAIN)
		put_key(&job, "rope_scaling", out);
	for (int i = HF_ROPE_THETA + 1; i < HF_ROPE_KEYS; i++)
		if (hf_rope_keys[i].types & rope)
			put_key(&job, hf_rope_keys[i].ours, out);
}
