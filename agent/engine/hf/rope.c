#include "agent/engine/hf/rope.h"

#include "base/json_member.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PLAIN = 1 << ROPE_PLAIN, LINEAR = 1 << ROPE_LINEAR, LLAMA3 = 1 << ROPE_LLAMA3 };

const struct hf_rope_key hf_rope_keys[HF_ROPE_KEYS] = {
	[HF_ROPE_THETA] = { PLAIN | LINEAR | LLAMA3, "rope_theta", "rope_theta" },
	[HF_ROPE_FACTOR] = { LINEAR | LLAMA3, "factor", "rope_factor" },
	[HF_ROPE_LOW] = { LLAMA3, "low_freq_factor", "rope_low" },
	[HF_ROPE_HIGH] = { LLAMA3, "high_freq_factor", "rope_high" },
	[HF_ROPE_ORIGINAL] = { LLAMA3, "original_max_position_embeddings", "rope_original" },
};

static const char *const words[] = {
	[ROPE_PLAIN] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3"
};

enum { TYPES = sizeof words / sizeof *words };

const char *hf_rope_word(enum job_rope_scaling type)
{
	return words[type];
}

/* The rope object, if any, and the file that contains it. */
struct source {
	const json_t *root;
	json_t *rope;             /* NULL: the file has no rope object */
	const char *name, *where; /* names of the file and of the object */
	double theta;
	struct err *e;
};

/* Returns a printable word for errors. `quote` marks a string, which may look like a number. */
static const char *word_as(const json_t *v, const char *quote, char out[64])
{
	if (json_is_string(v))
		snprintf(out, 64, "%s%s%s", quote, json_string_value(v), quote);
	else if (json_is_number(v))
		snprintf(out, 64, "%.17g", json_number_value(v));
	else
		snprintf(out, 64, "%s",
			 !json_member_given(v) ? "null"
			 : json_is_boolean(v)  ? "a boolean"
			 : json_is_array(v)    ? "a list"
					       : "an object");
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return out;
}

static const char *word_of(const json_t *v, char out[64])
{
	return word_as(v, "\"", out);
}

static int read_type(const struct source *s, enum job_rope_scaling *out)
{
	const json_t *new = json_object_get(s->rope, "rope_type"),
		     *old = json_object_get(s->rope, "type"), *v = new ? new : old;
	char a[64], b[64];
	*out = ROPE_PLAIN;
	if (!v)
		return 0;
	if (new &&old && !json_equal(new, old))
		return err_set(s->e, ERR_UNSUPPORTED,
			       "%s: %s.rope_type is %s and %s.type is %s: transformers 5 takes the "
			       "first, transformers 4 "
			       "the second; leave the right one in a copy of the folder",
			       s->name, s->where, word_as(new, "", a), s->where,
			       word_as(old, "", b));
	for (int i = 0; i < TYPES; i++)
		if (json_is_string(v) && !strcmp(json_string_value(v), words[i])) {
			*out = (enum job_rope_scaling)i;
			return 0;
		}
	return err_set(s->e, ERR_UNSUPPORTED,
		       "%s: %s is of type %s; default, linear and llama3 can be imported", s->name,
		       s->where, word_as(v, "", a));
}

/* Whether older files have the key at the top level and newer ones have it in the object. */
static bool has_two_places(int key)
{
	return key == HF_ROPE_THETA || key == HF_ROPE_ORIGINAL;
}

static int check_places(const struct source *s, int key, const json_t *inside, const json_t *beside)
{
	const char *theirs = hf_rope_keys[key].theirs;
	bool theta = key == HF_ROPE_THETA;
	char a[64], b[64];
	if (!inside || !json_member_given(beside) ||
	    (json_is_number(inside) && json_is_number(beside) &&
	     json_number_value(inside) == json_number_value(beside)))
		return 0;
	return err_set(s->e, ERR_UNSUPPORTED,
		       "%s: %s is %s and %s.%s is %s: transformers 4 takes the %s, transformers 5 "
		       "the %s; leave the right "
		       "one in a copy of the folder",
		       s->name, theirs, word_of(beside, a), s->where, theirs, word_of(inside, b),
		       theta ? "first" : "second", theta ? "second" : "first");
}

/* Sets the value of a key that the file does not have. */
static int read_absent(const struct source *s, int key, double *out)
{
	const json_t *context = json_object_get(s->root, "max_position_embeddings");
	if (key == HF_ROPE_THETA) {
		*out = s->theta;
	} else if (key == HF_ROPE_ORIGINAL && json_is_integer(context)) {
		*out = json_number_value(context);
	} else {
		return err_set(s->e, ERR_CORRUPT,
			       "%s: %s.%s is missing; take the file that belongs to the weights",
			       s->name, s->where, hf_rope_keys[key].theirs);
	}
	return 0;
}

static int read_key(const struct source *s, int key, double *out)
{
	const char *theirs = hf_rope_keys[key].theirs;
	const json_t *inside = json_object_get(s->rope, theirs);
	const json_t *beside = has_two_places(key) ? json_object_get(s->root, theirs) : NULL;
	const json_t *v = inside ? inside : beside;
	bool whole = key == HF_ROPE_ORIGINAL;
	char word[64];
	if (check_places(s, key, inside, beside))
		return -1;
	if (!v)
		return read_absent(s, key, out);
	if (whole ? !json_is_integer(v) : !json_is_number(v) || !isfinite(json_number_value(v)))
		return err_set(s->e, ERR_CORRUPT, "%s: %s%s%s is %s, not a %snumber", s->name,
			       inside ? s->where : "", inside ? "." : "", theirs, word_of(v, word),
			       whole ? "whole " : "");
	*out = json_number_value(v);
	return 0;
}

/* Refuses a file with which transformers would rotate only some pairs of each head. */
static int check_whole_heads(const struct source *s, const json_t *object, const char *where,
			     const char *dot)
{
	const json_t *v = json_object_get(object, "partial_rotary_factor");
	char word[64];
	if (!json_member_given(v) || (json_is_number(v) && json_number_value(v) == 1))
		return 0;
	return err_set(s->e, ERR_UNSUPPORTED,
		       "%s: %s%spartial_rotary_factor is %s; muster rotates whole heads, and would "
		       "compute something else",
		       s->name, where, dot, word_of(v, word));
}

static int check_flat(const struct source *s)
{
	const char *key;
	json_t *v;
	json_object_foreach(s->rope, key, v) if (json_is_object(v)) return err_set(
		s->e, ERR_UNSUPPORTED,
		"%s: %s has parameters for each type of layer, and muster's layers are all alike",
		s->name, s->where);
	return 0;
}

static int read_source(const struct source *s, struct hf_rope *out)
{
	*out = (struct hf_rope){ .type = ROPE_PLAIN };
	if (check_flat(s) || read_type(s, &out->type) || check_whole_heads(s, s->root, "", "") ||
	    check_whole_heads(s, s->rope, s->where, "."))
		return -1;
	for (int i = 0; i < HF_ROPE_KEYS; i++)
		if (hf_rope_keys[i].types & 1 << out->type && read_key(s, i, &out->value[i]))
			return -1;
	return 0;
}

static int check_same(const char *name, const struct hf_rope *scaling,
		      const struct hf_rope *parameters, struct err *e)
{
	static const char rest[] = "; leave the right one in a copy of the folder";
	if (scaling->type != parameters->type)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: rope_scaling is of type %s and rope_parameters of type %s%s",
			       name, words[scaling->type], words[parameters->type], rest);
	for (int i = 0; i < HF_ROPE_KEYS; i++)
		if (scaling->value[i] != parameters->value[i])
			return err_set(
				e, ERR_UNSUPPORTED,
				"%s: %s is %.17g by rope_scaling and %.17g by rope_parameters%s",
				name, hf_rope_keys[i].theirs, scaling->value[i],
				parameters->value[i], rest);
	return 0;
}

/* Sets s->rope to the object under a key of the file; NULL if it is absent, null or empty. */
static int find_rope_object(struct source *s, const char *where)
{
	json_t *v = json_object_get(s->root, where);
	char word[64];
	s->where = where;
	s->rope = NULL;
	if (json_member_given(v) && !json_is_object(v))
		return err_set(s->e, ERR_CORRUPT, "%s: %s is %s, not an object", s->name, where,
			       word_of(v, word));
	if (json_object_size(v))
		s->rope = v;
	return 0;
}

int hf_rope_read(const json_t *root, const char *name, double theta, struct hf_rope *out,
		 struct err *e)
{
	struct source scaling = { .root = root, .name = name, .theta = theta, .e = e },
		      parameters = scaling;
	struct hf_rope old, new;
	if (find_rope_object(&scaling, "rope_scaling") ||
	    find_rope_object(&parameters, "rope_parameters"))
		return -1;
	if (scaling.rope && read_source(&scaling, &old))
		return -1;
	if ((parameters.rope || !scaling.rope) && read_source(&parameters, &new))
		return -1;
	if (scaling.rope && parameters.rope && check_same(name, &old, &new, e))
		return -1;
	*out = scaling.rope ? old : new;
	return 0;
}
