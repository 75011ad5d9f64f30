/* Converts a model's shape to the description in a checkpoint, and back. */
#include "agent/engine/train/state.h"

#include "base/buf.h"
#include "plan/spec/job/keys.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define AT(key) offsetof(struct job, model.key)

json_t *train_state_model(const struct model_shape *s)
{
	json_t *m = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f}",
			      "family", job_enum_word(AT(family), (int)s->family), "layers",
			      (json_int_t)s->layers, "hidden", (json_int_t)s->hidden, "heads",
			      (json_int_t)s->heads, "kv_heads", (json_int_t)s->kv_heads, "head_dim",
			      (json_int_t)s->head_dim, "ffn", (json_int_t)s->ffn, "vocab",
			      (json_int_t)s->vocab, "seq", (json_int_t)s->seq, "tied", s->tied,
			      "norm_eps", s->norm_eps, "rope_theta", s->rope ? s->rope_theta : 0.0);
	/* These fields are written only for models that use them. Older checkpoints do not have the
	 * fields, and their models do not use them. */
	bool ok = m != NULL;
	if (ok && s->experts)
		ok = !json_object_set_new(m, "experts", json_integer(s->experts)) &&
		     !json_object_set_new(m, "experts_per_token", json_integer(s->top));
	if (ok && s->router == ROUTER_SOFTMAX_BEFORE)
		ok = !json_object_set_new(m, "router",
					  json_string(job_enum_word(AT(router), (int)s->router)));
	if (ok && s->rope && s->rope_scaling != ROPE_PLAIN)
		ok = !json_object_set_new(
			     m, "rope_scaling",
			     json_string(job_enum_word(AT(rope_scaling), (int)s->rope_scaling))) &&
		     !json_object_set_new(m, "rope_factor", json_real(s->rope_factor));
	if (ok && s->rope && s->rope_scaling == ROPE_LLAMA3)
		ok = !json_object_set_new(m, "rope_low", json_real(s->rope_low)) &&
		     !json_object_set_new(m, "rope_high", json_real(s->rope_high)) &&
		     !json_object_set_new(m, "rope_original", json_integer(s->rope_original));
	if (ok)
		return m;
	json_decref(m);
	return NULL;
}

/* Writes a value as a job file has it; false: the value has no such form. */
static bool put_value(const json_t *v, struct buf *ini)
{
	const char *text = json_string_value(v);
	if (text && text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0')
		buf_puts(ini, text);
	else if (json_is_boolean(v))
		buf_puts(ini, json_is_true(v) ? "yes" : "no");
	else if (json_is_integer(v))
		buf_printf(ini, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		buf_printf(ini, "%.17g", json_real_value(v));
	else
		return false;
	buf_puts(ini, "\n");
	return true;
}

/* The names of the fields are the keys of [model], except for the tied head. */
static int put_field(const char *name, const json_t *v, struct buf *ini, struct err *e)
{
	const char *key = !strcmp(name, "tied") ? "tie_head" : name;
	if (!strcmp(name, "rope_theta") && json_number_value(v) == 0)
		return 0; /* no rotary positions */
	if (job_key_find("model", key) < 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "the checkpoint's model has %.40s, which this muster does not know; "
			       "use the one that wrote it",
			       name);
	buf_printf(ini, "%s = ", key);
	return put_value(v, ini)
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED,
				 "the checkpoint's model has a %.40s that is not a word or "
				 "number; use the muster "
				 "that wrote it",
				 name);
}

static int parse_section(struct buf *ini, struct job *out, struct err *e)
{
	if (buf_failed(ini))
		return err_set(e, ERR_NOMEM, "no memory to read the checkpoint's model");
	if (!job_parse(buf_str(ini), "the checkpoint's model", out, e))
		return 0;
	if (e)
		e->code = ERR_UNSUPPORTED;
	return -1;
}

/* Finds two errors: a missing field, which got a default, and a field that this model does not
 * have, which was ignored. */
static int check_same(const json_t *model, const struct job *job, struct err *e)
{
	struct model_shape shape;
	shape_of_job(job, &shape);
	json_t *back = train_state_model(&shape);
	bool same = json_equal(model, back);
	json_decref(back);
	return same ? 0
		    : err_set(e, ERR_CORRUPT,
			      "the checkpoint's model: a size is missing, or is not one of this "
			      "family; take a checkpoint "
			      "that muster wrote");
}

int train_state_model_job(json_t *model, struct job *out, struct err *e)
{
	struct buf ini = BUF_INIT;
	struct job *job = malloc(sizeof *job); /* too large for a small stack */
	const char *name;
	json_t *v;
	int rc = job ? 0 : err_set(e, ERR_NOMEM, "no memory for a job");
	buf_puts(&ini, "[model]\n");
	json_object_foreach(model, name, v) if (!rc) rc = put_field(name, v, &ini, e);
	if (!rc)
		rc = parse_section(&ini, job, e) || check_same(model, job, e) ? -1 : 0;
	buf_fini(&ini);
	if (!rc)
		*out = *job;
	free(job);
	return rc;
}
