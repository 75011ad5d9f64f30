#include "agent/generate/shape.h"

#include "kernels/ops.h"
#include "plan/job.h"

#include <stddef.h>
#include <string.h>

enum { NUMBER_MOST = 1 << 28 };

enum kind { WHOLE, REAL, FLAG };

/* Fields of the manifest, and where a job has them. Optional ones have the default of [model] when they are not there. */
static const struct field {
	const char *name;
	enum kind kind;
	bool optional;
	size_t at;
} fields[] = {
#define FIELD(name, kind, optional, key) { name, kind, optional, offsetof(struct job, model.key) }
	FIELD("layers", WHOLE, false, layers), FIELD("hidden", WHOLE, false, hidden), FIELD("heads", WHOLE, false, heads),
	FIELD("kv_heads", WHOLE, false, kv_heads), FIELD("head_dim", WHOLE, false, head_dim), FIELD("ffn", WHOLE, false, ffn),
	FIELD("vocab", WHOLE, false, vocab), FIELD("seq", WHOLE, false, seq), FIELD("tied", FLAG, false, tie_head),
	FIELD("norm_eps", REAL, false, norm_eps), FIELD("rope_theta", REAL, false, rope_theta),
	FIELD("rope_factor", REAL, true, rope_factor), FIELD("rope_low", REAL, true, rope_low), FIELD("rope_high", REAL, true, rope_high),
	FIELD("rope_original", WHOLE, true, rope_original), FIELD("experts", WHOLE, true, experts),
	FIELD("experts_per_token", WHOLE, true, experts_per_token),
#undef FIELD
};

/* Words of a field and the values they stand for; the first is that of a field that is not there. */
static int word(const json_t *model, const char *name, const char *const *words, int n, int *out, struct err *e)
{
	const json_t *v = json_object_get(model, name);
	const char *text = json_string_value(v);
	*out = 0;
	for (int i = 0; i < n && text; i++)
		if (!strcmp(words[i], text)) {
			*out = i;
			return 0;
		}
	return v ? err_set(e, ERR_UNSUPPORTED, "model.%s: \"%.40s\" is not known to this version of muster", name, text ? text : "") : 0;
}

static int read_field(const json_t *model, const struct field *f, struct job *job, struct err *e)
{
	const json_t *v = json_object_get(model, f->name);
	char *at = (char *)job + f->at;
	bool fits = f->kind == FLAG ? json_is_boolean(v) : f->kind == REAL ? json_is_number(v) : json_is_integer(v);
	if (!v && f->optional)
		return 0;
	json_int_t n = json_integer_value(v);
	if (!fits || (f->kind == WHOLE && (n < 1 || n > NUMBER_MOST)) || (f->kind == REAL && !(json_number_value(v) >= 0)))
		return err_set(e, ERR_CORRUPT, "model.%s: missing, or no model's; write the checkpoint again", f->name);
	if (f->kind == FLAG)
		*(enum job_tie *)(void *)at = json_is_true(v) ? TIE_YES : TIE_NO;
	else if (f->kind == REAL)
		*(double *)(void *)at = json_number_value(v);
	else
		*(int64_t *)(void *)at = n;
	return 0;
}

static int read_words(const json_t *model, struct job *job, struct err *e)
{
	static const char *const families[] = { [FAMILY_GPT2] = "gpt2", [FAMILY_LLAMA] = "llama", [FAMILY_MIXTRAL] = "mixtral" };
	static const char *const scalings[] = { [ROPE_PLAIN] = "none", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3" };
	static const char *const routers[] = { [ROUTER_SOFTMAX_AFTER] = "after", [ROUTER_SOFTMAX_BEFORE] = "before" };
	int family, scaling, router;
	if (word(model, "family", families, 3, &family, e) || word(model, "rope_scaling", scalings, 3, &scaling, e) ||
	    word(model, "router", routers, 2, &router, e))
		return -1;
	if (!json_object_get(model, "family"))
		return err_set(e, ERR_CORRUPT, "model.family: missing; write the checkpoint again");
	job->model.family = family;
	job->model.rope_scaling = scaling;
	job->model.router = router;
	return 0;
}

/* What the kernels, and the sums of sizes, take for granted. */
static int check(const struct model_shape *s, struct err *e)
{
	if (s->heads % s->kv_heads || s->head_dim % 2 || s->head_dim > ATTN_DIM_MAX)
		return err_set(e, ERR_CORRUPT, "model: %lld heads of %lld over %lld kv_heads is no model's", (long long)s->heads,
			       (long long)s->head_dim, (long long)s->kv_heads);
	if (s->experts && (s->top < 1 || s->top > s->experts))
		return err_set(e, ERR_CORRUPT, "model.experts_per_token: %lld of %lld experts", (long long)s->top, (long long)s->experts);
	if (s->family == FAMILY_MIXTRAL && !s->experts)
		return err_set(e, ERR_CORRUPT, "model.experts: missing; write the checkpoint again");
	if (s->rope && (!(s->rope_theta > 0) || !(s->rope_factor > 0) || !(s->rope_high > s->rope_low)))
		return err_set(e, ERR_CORRUPT, "model.rope_theta, rope_factor, rope_low or rope_high is no model's");
	double numbers = (double)s->layers * (double)s->hidden * ((double)(s->heads + s->kv_heads) * (double)s->head_dim +
			 (double)(s->experts ? s->experts : 1) * (double)s->ffn) + (double)s->vocab * (double)s->hidden;
	if (numbers > 1e13)
		return err_set(e, ERR_NOFIT, "model: %.0f T of parameters fit into no machine", numbers / 1e12);
	return 0;
}

int shape_read(const json_t *model, struct lm_options *out, struct err *e)
{
	struct job job = { .model = { .rope_factor = 1, .rope_low = 1, .rope_high = 4, .rope_original = 8192, .init_std = 1 } };
	struct model_shape shape;
	if (read_words(model, &job, e))
		return -1;
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (read_field(model, &fields[i], &job, e))
			return -1;
	model_shape(&job, &shape);
	if (check(&shape, e))
		return -1;
	out->shape = shape;
	out->softmax_before = job.model.router == ROUTER_SOFTMAX_BEFORE;
	return 0;
}
