#include "agent/engine/text/parts.h"

#include "base/json_member.h"

#include <string.h>

enum { SEQUENCE_DEPTH = 8 };

bool text_part_is(const json_t *o, const char *type)
{
	return !strcmp(text_part_text(o, "type"), type);
}

const char *text_part_text(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));
	return text ? text : "";
}

bool text_part_flag(const json_t *o, const char *key, bool missing)
{
	const json_t *v = json_object_get(o, key);
	return json_is_boolean(v) ? json_is_true(v) : missing;
}

int text_refuse_part(const char *what, const json_t *o, const char *known, struct err *e)
{
	const char *type = text_part_text(o, "type");
	return err_set(e, ERR_UNSUPPORTED, "%s %.60s: is not supported; muster supports %s", what,
		       *type ? type : "without a type", known);
}

static int parse_sequence(struct tokenizer *t, const json_t *o, const char *list, const char *what,
			  part_reader *one, int depth, struct err *e)
{
	if (!text_part_is(o, "Sequence"))
		return one(t, o, e);
	const json_t *members = json_object_get(o, list);
	if (!json_is_array(members) || depth == SEQUENCE_DEPTH)
		return err_set(e, ERR_CORRUPT,
			       "%s Sequence: has no list \"%s\", or %d Sequences are nested", what,
			       list, SEQUENCE_DEPTH);
	for (size_t i = 0; i < json_array_size(members); i++)
		if (parse_sequence(t, json_array_get(members, i), list, what, one, depth + 1, e))
			return -1;
	return 0;
}

int text_part_each(struct tokenizer *t, const json_t *o, const char *list, const char *what,
		   part_reader *one, struct err *e)
{
	return json_member_given(o) ? parse_sequence(t, o, list, what, one, 0, e) : 0;
}

/* --- normalizer --- */

/* Whether it replaces the plain text `text` by `by`. */
static bool replaces(const json_t *o, const char *text, const char *by)
{
	return text_part_is(o, "Replace") &&
	       !strcmp(text_part_text(json_object_get(o, "pattern"), "String"), text) &&
	       !strcmp(text_part_text(o, "content"), by);
}

/* The replacement of blanks and the lead are applied last, even if other steps follow them in the
 * file. A step for which the order matters is refused. */
static int one_normalizer(struct tokenizer *t, const json_t *o, struct err *e)
{
	bool blanks = replaces(o, " ", BLANK_MARK),
	     lead = text_part_is(o, "Prepend") && !strcmp(text_part_text(o, "prepend"), BLANK_MARK);
	if (!blanks && !lead && t->normalizes && !text_normalizer_commutes(o))
		return err_set(
			e, ERR_UNSUPPORTED,
			"normalizer %.60s: is not supported after one that writes \"" BLANK_MARK
			"\"",
			text_part_text(o, "type"));
	if (!blanks && !lead)
		return text_normalizer_has(o)
			       ? text_normalizer_add(&t->normalizer, o, e)
			       : text_refuse_part("normalizer", o, text_normalizer_known(), e);
	t->normalizes = true;
	if (blanks)
		t->blanks = true;
	else
		t->lead = LEAD_ALWAYS;
	return 0;
}

int text_read_normalizer(struct tokenizer *t, const json_t *o, struct err *e)
{
	if (text_part_each(t, o, "normalizers", "normalizer", one_normalizer, e))
		return -1;
	if (t->normalizes && !t->blanks)
		return err_set(e, ERR_UNSUPPORTED,
			       "normalizer Prepend: is not supported without Replace of \" \" by "
			       "\"" BLANK_MARK "\"");
	return 0;
}

/* --- pre_tokenizer --- */

/* ByteLevel's pattern: GPT-2's expression, as Hugging Face's documentation gives it. */
static const char gpt2_pattern[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static int add_split(struct tokenizer *t, const char *pattern, size_t len, bool literal,
		     bool drop_rest, struct err *e)
{
	if (t->n_splits == TOKENIZER_SPLITS)
		return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer: has more than %d splits",
			       TOKENIZER_SPLITS);
	if (text_split_open(pattern, len, literal, drop_rest, &t->splits[t->n_splits], e))
		return err_prefix(e, "pre_tokenizer Split");
	t->n_splits++;
	t->classes = t->classes || !literal;
	return 0;
}

static int one_split(struct tokenizer *t, const json_t *o, struct err *e)
{
	const json_t *pattern = json_object_get(o, "pattern"),
		     *regex = json_object_get(pattern, "Regex");
	const json_t *text = regex ? regex : json_object_get(pattern, "String");
	const char *behavior = text_part_text(o, "behavior");
	bool drop = !strcmp(behavior, "Removed") && text_part_flag(o, "invert", false);
	if (!drop && strcmp(behavior, "Isolated"))
		return err_set(e, ERR_UNSUPPORTED,
			       "pre_tokenizer Split: behavior \"%.40s\"%s is not supported; the "
			       "supported ones are Isolated and Removed inverted",
			       behavior, text_part_flag(o, "invert", false) ? " inverted" : "");
	if (!json_is_string(text))
		return err_set(e, ERR_CORRUPT,
			       "pre_tokenizer Split: has neither pattern.Regex nor pattern.String");
	return add_split(t, json_string_value(text), json_string_length(text), !regex, drop, e);
}

static int one_byte_level(struct tokenizer *t, const json_t *o, struct err *e)
{
	t->byte_level = true;
	if (text_part_flag(o, "add_prefix_space", true)) {
		if (t->n_splits)
			return err_set(e, ERR_UNSUPPORTED,
				       "pre_tokenizer ByteLevel: add_prefix_space after a Split "
				       "is not supported");
		t->lead = LEAD_MISSING;
	}
	return text_part_flag(o, "use_regex", true)
		       ? add_split(t, gpt2_pattern, sizeof gpt2_pattern - 1, false, false, e)
		       : 0;
}

static int one_metaspace(struct tokenizer *t, const json_t *o, struct err *e)
{
	const char *scheme = text_part_text(o, "prepend_scheme");
	if (text_part_flag(o, "split", true) ||
	    strcmp(text_part_text(o, "replacement"), BLANK_MARK))
		return err_set(e, ERR_UNSUPPORTED,
			       "pre_tokenizer Metaspace: is not supported if it splits, or if its "
			       "replacement is not "
			       "\"" BLANK_MARK "\"");
	if (!strcmp(scheme, "never"))
		t->lead = LEAD_NEVER;
	else if (!strcmp(scheme, "first"))
		t->lead = LEAD_FIRST;
	else if (!strcmp(scheme, "always"))
		t->lead = LEAD_MISSING;
	else
		return err_set(e, ERR_UNSUPPORTED,
			       "pre_tokenizer Metaspace: prepend_scheme \"%.40s\" is not "
			       "supported; the supported ones are always, first and "
			       "never",
			       scheme);
	t->blanks = true;
	return 0;
}

static int one_pre_tokenizer(struct tokenizer *t, const json_t *o, struct err *e)
{
	if (t->byte_level || t->blanks)
		return err_set(e, ERR_UNSUPPORTED, "pre_tokenizer %.60s: is not supported after %s",
			       text_part_text(o, "type"),
			       t->byte_level ? "ByteLevel"
					     : "one that replaces \" \" by \"" BLANK_MARK "\"");
	if (text_part_is(o, "ByteLevel"))
		return one_byte_level(t, o, e);
	if (text_part_is(o, "Split"))
		return one_split(t, o, e);
	if (text_part_is(o, "Metaspace"))
		return one_metaspace(t, o, e);
	if (text_part_is(o, "Digits")) {
		const char *pattern = text_part_flag(o, "individual_digits", false) ? "\\p{N}"
										    : "\\p{N}+";
		return add_split(t, pattern, strlen(pattern), false, false, e);
	}
	return text_refuse_part("pre_tokenizer", o, "ByteLevel, Split, Digits, Metaspace, Sequence",
				e);
}

int text_read_pre_tokenizer(struct tokenizer *t, const json_t *o, struct err *e)
{
	if (text_part_each(t, o, "pretokenizers", "pre_tokenizer", one_pre_tokenizer, e))
		return -1;
	if (t->blanks && t->n_splits)
		return err_set(e, ERR_UNSUPPORTED,
			       "pre_tokenizer Metaspace: is not supported after a Split");
	return 0;
}

/* --- post_processor --- */

static int add_ids(struct tokenizer *t, const json_t *ids, struct err *e)
{
	if (!json_array_size(ids))
		return err_set(e, ERR_CORRUPT,
			       "post_processor TemplateProcessing: a special token of the template "
			       "has no ids");
	for (size_t i = 0; i < json_array_size(ids); i++) {
		json_int_t id = json_integer_value(json_array_get(ids, i));
		if (t->n_before == TOKENIZER_TEMPLATE || !json_is_integer(json_array_get(ids, i)) ||
		    !text_vocab_has(&t->vocab, id))
			return err_set(
				e, ERR_CORRUPT,
				"post_processor TemplateProcessing: has more than %d ids, or "
				"an id that is not in the vocabulary",
				TOKENIZER_TEMPLATE);
		t->before[t->n_before++] = (int32_t)id;
	}
	return 0;
}

static int one_post_processor(struct tokenizer *t, const json_t *o, struct err *e)
{
	if (text_part_is(o, "ByteLevel")) /* it changes only offsets */
		return 0;
	if (!text_part_is(o, "TemplateProcessing"))
		return text_refuse_part("post_processor", o,
					"ByteLevel, TemplateProcessing, Sequence", e);
	const json_t *single = json_object_get(o, "single"),
		     *tokens = json_object_get(o, "special_tokens");
	for (size_t i = 0; i < json_array_size(single); i++) {
		const json_t *special = json_object_get(json_array_get(single, i), "SpecialToken");
		if (!special) /* the text */
			break;
		if (add_ids(t,
			    json_object_get(json_object_get(tokens, text_part_text(special, "id")),
					    "ids"),
			    e))
			return -1;
	}
	return 0;
}

int text_read_post_processor(struct tokenizer *t, const json_t *o, struct err *e)
{
	return text_part_each(t, o, "processors", "post_processor", one_post_processor, e);
}

/* --- decoder --- */

static int one_decoder(struct tokenizer *t, const json_t *o, struct err *e)
{
	if (text_part_is(o, "ByteLevel") == t->byte_level &&
	    (t->byte_level || text_part_is(o, "Fuse") || text_part_is(o, "ByteFallback")))
		return 0;
	if (t->blanks && replaces(o, BLANK_MARK, " "))
		return 0;
	if (t->blanks && text_part_is(o, "Strip") && !strcmp(text_part_text(o, "content"), " ") &&
	    !json_integer_value(json_object_get(o, "stop"))) {
		json_int_t start = json_integer_value(json_object_get(o, "start"));
		t->strip_lead = start == 1;
		if (start == 0 || start == 1)
			return 0;
	}
	return text_refuse_part(
		"decoder", o,
		t->byte_level ? "ByteLevel"
			      : "Replace of \"" BLANK_MARK
				"\", ByteFallback, Fuse, Strip of one blank at the start, Sequence",
		e);
}

int text_read_decoder(struct tokenizer *t, const json_t *o, struct err *e)
{
	return text_part_each(t, o, "decoders", "decoder", one_decoder, e);
}
