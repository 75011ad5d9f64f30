#include "agent/engine/hf/config.h"

#include "agent/engine/hf/balance.h"
#include "agent/engine/hf/family.h"
#include "agent/engine/hf/rope.h"
#include "base/json_member.h"
#include "plan/spec/job/keys.h"
#include "plan/spec/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct job_key *key_of(const char *ours)
{
	return &job_keys[job_key_find("model", ours)];
}

/* --- reading --- */

struct config_reader {
	json_t *root;
	const char *name; /* the file's name */
	enum job_family family;
	struct buf ini;
	struct err *e;
};

/* Returns a scalar as one word, for comparisons and errors. */
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

/* Writes a value to `out` as a job file would have it. Returns false if its type is wrong. */
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

static int refuse_value(struct config_reader *r, const char *theirs, const json_t *v,
			const char *why)
{
	char word[80];
	/* Quotes show that the value is a string, even if it looks like a number. */
	const char *quote = json_is_string(v) ? "\"" : "";
	return err_set(r->e, ERR_CORRUPT, "%s: %s is %s%s%s, %s", r->name, theirs, quote,
		       word_of(v, word), quote, why);
}

static int read_key(struct config_reader *r, const char *theirs, const json_t *v, const char *ours,
		    const char *absent)
{
	char text[80];
	if (!json_member_given(v)) {
		if (!absent)
			return err_set(r->e, ERR_CORRUPT,
				       "%s: %s is missing, which a %s model needs; use the "
				       "config.json that belongs to the weights",
				       r->name, theirs, shape_families[r->family].word);
		snprintf(text, sizeof text, "%s", absent);
	} else if (!text_of(key_of(ours), v, text)) {
		return refuse_value(r, theirs, v,
				    key_of(ours)->type == JOB_INT    ? "not a whole number"
				    : key_of(ours)->type == JOB_REAL ? "not a number"
								     : "neither true nor false");
	}
	buf_printf(&r->ini, "%s = %s\n", ours, text);
	return 0;
}

static int read_family(struct config_reader *r)
{
	const json_t *v = json_object_get(r->root, "model_type");
	char word[80];
	struct buf known = BUF_INIT;
	for (int i = 0; i < FAMILIES; i++)
		if (json_is_string(v) && !strcmp(json_string_value(v), shape_families[i].word)) {
			r->family = (enum job_family)i;
			buf_printf(&r->ini, "[model]\nfamily = %s\n", shape_families[i].word);
			return 0;
		}
	for (int i = 0; i < FAMILIES; i++)
		buf_printf(&known, "%s%s",
			   i == 0             ? ""
			   : i + 1 < FAMILIES ? ", "
					      : " and ",
			   shape_families[i].word);
	err_set(r->e, ERR_UNSUPPORTED, "%s: model_type is %s; muster imports %s", r->name,
		word_of(v, word), buf_str(&known));
	buf_fini(&known);
	return -1;
}

static int check_fixed_keys(struct config_reader *r)
{
	for (const struct hf_fixed_key *m = hf_fixed_keys; m->families; m++) {
		const json_t *v = json_object_get(r->root, m->theirs);
		char word[80];
		bool right = !json_member_given(v) || !(m->families & 1 << r->family);
		for (int j = 0; m->words[j] && !right; j++)
			right = !strcmp(word_of(v, word), m->words[j]);
		if (!right)
			return err_set(r->e, ERR_UNSUPPORTED,
				       "%s: %s is %s; for %s, muster supports only %s", r->name,
				       m->theirs, word_of(v, word), shape_families[r->family].word,
				       m->words[0]);
	}
	return 0;
}

/* The family's earlier row for the same key of [model], or NULL. */
static const struct hf_key *twin_of(const struct hf_key *row, enum job_family family)
{
	const struct hf_key *first = hf_family_key(family, row->ours);
	return first < row ? first : NULL;
}

static double number_of(const struct config_reader *r, const struct hf_key *row)
{
	const json_t *v = json_object_get(r->root, row->theirs);
	return json_is_number(v) ? json_number_value(v) : strtod(row->absent, NULL);
}

/* Two keys of config.json that become one key of [model] must be equal. */
static int check_twin(struct config_reader *r, const struct hf_key *row, const struct hf_key *twin)
{
	double a = number_of(r, twin), b = number_of(r, row);
	if (a == b)
		return 0;
	return err_set(r->e, ERR_UNSUPPORTED,
		       "%s: %s is %g and %s is %g, but [model] %s stands for both; make them equal "
		       "in a copy of the folder (the weights do not depend on them)",
		       r->name, twin->theirs, a, row->theirs, b, row->ours);
}

static int read_rows(struct config_reader *r, int64_t seq)
{
	for (const struct hf_key *row = hf_keys; row->families; row++) {
		const json_t *v = json_object_get(r->root, row->theirs);
		if (!(row->families & 1 << r->family) || !strcmp(row->ours, "rope_theta"))
			continue; /* read_rope reads this key */
		const struct hf_key *twin = twin_of(row, r->family);
		if (twin && check_twin(r, row, twin))
			return -1;
		if (twin)
			continue;
		bool context = seq && !strcmp(row->ours, "seq");
		if (context && !shape_families[r->family].rope && json_integer_value(v) != seq)
			return refuse_value(
				r, row->theirs, v,
				"and its positions are learned: no other context can be asked for");
		if (context)
			buf_printf(&r->ini, "seq = %" PRId64 "\n", seq);
		else if (read_key(r, row->theirs, v, row->ours, row->absent))
			return -1;
	}
	return 0;
}

static int read_rope(struct config_reader *r)
{
	struct hf_rope rope;
	if (!shape_families[r->family].rope)
		return 0;
	double theta = strtod(hf_family_key(r->family, "rope_theta")->absent, NULL);
	if (hf_rope_read(r->root, r->name, theta, &rope, r->e))
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

static int64_t whole_of(const struct config_reader *r, const char *theirs, int64_t absent)
{
	const json_t *v = json_object_get(r->root, theirs);
	return json_member_given(v) ? json_integer_value(v) : absent;
}

/* Runs after the rows of the table. The rows refuse values of the wrong type, and parse_section
 * refuses invalid sizes. */
static int read_balance(struct config_reader *r)
{
	int64_t layers = whole_of(r, "num_hidden_layers", 0),
		top = whole_of(r, "num_experts_per_tok", 2);
	double aux = 0;
	if (!shape_families[r->family].experts)
		return 0;
	if (layers > 0 && top > 0 && hf_balance_read(r->root, r->name, layers, top, &aux, r->e))
		return -1;
	buf_printf(&r->ini, "aux_loss = %.17g\n", aux);
	return 0;
}

/* Parses the section as a job file, with all its checks. */
static int parse_section(struct buf *ini, const char *name, struct job *out, struct err *e)
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
	struct config_reader r = { .root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je),
				   .name = name,
				   .ini = BUF_INIT,
				   .e = e };
	int rc = -1;
	if (!r.root)
		err_set(e, ERR_CORRUPT, "%s: is not JSON: %s at line %d", name, je.text, je.line);
	else if (!json_is_object(r.root))
		err_set(e, ERR_CORRUPT, "%s: is not a JSON object", name);
	else if (!read_family(&r) && !check_fixed_keys(&r) && !read_rows(&r, seq) &&
		 !read_rope(&r) && !read_balance(&r))
		rc = parse_section(&r.ini, name, out, e);
	buf_fini(&r.ini);
	json_decref(r.root);
	return rc;
}

/* --- writing --- */

/* A copy of the job with the sizes that it derives in place of zeros; the caller frees it. NULL: no
 * memory. */
static struct job *resolve_sizes(const struct job *job)
{
	struct job *out = malloc(sizeof *out); /* too large for a small stack */
	struct model_shape m;
	if (!out)
		return NULL;
	*out = *job;
	shape_of_job(job, &m);
	out->model.kv_heads = m.kv_heads;
	out->model.head_dim = m.head_dim;
	out->model.ffn = m.ffn;
	out->model.tie_head = m.tied ? TIE_YES : TIE_NO;
	return out;
}

/* The value of a field of the job, as JSON. */
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

static json_t *must_of(const struct hf_fixed_key *m)
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

/* Refuses models that transformers' class cannot compute. */
static int check_expressible(const struct job *job, struct err *e)
{
	const char *word = shape_families[job->model.family].word;
	if (shape_families[job->model.family].experts && job->model.router != ROUTER_SOFTMAX_AFTER)
		return err_set(e, ERR_UNSUPPORTED,
			       "the model's router takes the softmax before it chooses experts "
			       "(model.router = before), and "
			       "transformers' %s after; it cannot be exported",
			       word);
	if (hf_family_key(job->model.family, "head_dim"))
		return 0;
	if (job->model.kv_heads != job->model.heads ||
	    job->model.head_dim * job->model.heads != job->model.hidden)
		return err_set(e, ERR_UNSUPPORTED,
			       "transformers has no %s with kv_heads = %" PRId64 " of %" PRId64
			       " heads and head_dim = %" PRId64 " in hidden = %" PRId64
			       "; only the family's own shape can be exported",
			       word, job->model.kv_heads, job->model.heads, job->model.head_dim,
			       job->model.hidden);
	return 0;
}

/* NULL: no memory. */
static json_t *config_of(const struct job *job, const char *torch)
{
	int family = 1 << job->model.family;
	json_t *out = json_pack("{s:[s], s:s, s:s}", "architectures",
				hf_families[job->model.family].class, "model_type",
				shape_families[job->model.family].word, "torch_dtype", torch);
	int bad = !out;
	for (const struct hf_key *key = hf_keys; key->families; key++)
		if (key->families & family)
			bad |= json_object_set_new(out, key->theirs, value_of(job, key->ours));
	for (const struct hf_fixed_key *key = hf_fixed_keys; key->families; key++)
		if (key->families & family && strcmp(key->words[0], "null"))
			bad |= json_object_set_new(out, key->theirs, must_of(key));
	if (shape_families[job->model.family].rope)
		bad |= json_object_set_new(out, "rope_scaling", rope_json(job));
	if (shape_families[job->model.family].experts)
		bad |= hf_balance_write(job, out);
	if (!bad)
		return out;
	json_decref(out);
	return NULL;
}

json_t *hf_config_write(const struct job *asked, const char *torch, struct err *e)
{
	struct job *job = resolve_sizes(asked);
	json_t *out = NULL;
	if (!job || (!check_expressible(job, e) && !(out = config_of(job, torch))))
		err_set(e, ERR_NOMEM, "no memory for config.json");
	free(job);
	return out;
}

static void write_key(const struct job *job, const char *ours, struct buf *out)
{
	buf_printf(out, "%s = ", ours);
	job_value_write(key_of(ours), job, out);
	buf_puts(out, "\n");
}

static void write_section(const struct job *job, struct buf *out)
{
	int family = 1 << job->model.family, rope = 1 << job->model.rope_scaling;
	buf_puts(out, "[model]\n");
	write_key(job, "family", out);
	for (const struct hf_key *key = hf_keys; key->families; key++)
		if (key->families & family && !twin_of(key, job->model.family))
			write_key(job, key->ours, out);
	if (shape_families[job->model.family].experts)
		write_key(job, "aux_loss", out);
	if (rope != 1 << ROPE_PLAIN)
		write_key(job, "rope_scaling", out);
	for (int i = HF_ROPE_THETA + 1; i < HF_ROPE_KEYS; i++)
		if (hf_rope_keys[i].types & rope)
			write_key(job, hf_rope_keys[i].ours, out);
}

void hf_config_section(const struct job *asked, struct buf *out)
{
	struct job *job = resolve_sizes(asked);
	if (job)
		write_section(job, out);
	else
		out->failed = true;
	free(job);
}
