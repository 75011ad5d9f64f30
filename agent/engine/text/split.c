#define PCRE2_CODE_UNIT_WIDTH 8

#include "agent/engine/text/split.h"

#include "base/buf.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum {
	PATTERN_MAX = 1 << 16,
	NEST_MAX = 100,
	MATCH_STEPS = 10000000,
	HEAP_KIB = 1 << 20,
	STACK_FIRST = 1 << 15,
	STACK_MAX = 1 << 24
};

struct split {
	pcre2_code *code;
	bool drop_rest, jit;
};

struct split_matcher {
	pcre2_match_data *data;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

/* Replaces \s and \S by Unicode's property. A backslash before another character is copied with it.
 */
static void own_space(const char *pattern, size_t len, struct buf *out)
{
	for (size_t i = 0; i < len; i++) {
		if (pattern[i] != '\\' || i + 1 == len) {
			buf_add(out, pattern + i, 1);
			continue;
		}
		char c = pattern[++i];
		if (c == 's' || c == 'S')
			buf_puts(out, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
		else
			buf_add(out, pattern + i - 1, 2);
	}
}

static pcre2_code *compile(const char *pattern, size_t len, bool literal, struct err *e)
{
	PCRE2_UCHAR text[200] = "no memory";
	PCRE2_SIZE at = 0;
	int code = PCRE2_ERROR_NOMEMORY;
	pcre2_code *out = NULL;
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	uint32_t options = PCRE2_UTF |
			   (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
	if (context) {
		pcre2_set_parens_nest_limit(context, NEST_MAX);
		out = pcre2_compile((PCRE2_SPTR)pattern, len, options, &code, &at, context);
		pcre2_compile_context_free(context);
	}
	if (!out) {
		pcre2_get_error_message(code, text, sizeof text);
		err_set(e, ERR_UNSUPPORTED,
			"the pattern \"%.*s\" cannot be compiled: %s (at its byte %zu)",
			(int)(len < 300 ? len : 300), pattern, (const char *)text, (size_t)at);
	}
	return out;
}

static int check_pattern(const struct split *s, const char *pattern, struct err *e)
{
	uint32_t empty = 0, back = 0;
	pcre2_pattern_info(s->code, PCRE2_INFO_MATCHEMPTY, &empty);
	pcre2_pattern_info(s->code, PCRE2_INFO_BACKREFMAX, &back);
	if (empty || back)
		return err_set(e, ERR_UNSUPPORTED, "the pattern \"%.300s\" is not supported: it %s",
			       pattern, empty ? "can match an empty text" : "has a back reference");
	return 0;
}

int text_split_open(const char *pattern, size_t len, bool literal, bool drop_rest,
		    struct split **out, struct err *e)
{
	struct buf text = BUF_INIT;
	if (!len || len > PATTERN_MAX)
		return err_set(e, ERR_UNSUPPORTED, "a pattern has %zu bytes; it must have 1 to %d",
			       len, PATTERN_MAX);
	struct split *s = calloc(1, sizeof *s);
	if (literal)
		buf_add(&text, pattern, len);
	else
		own_space(pattern, len, &text);
	if (!s || buf_failed(&text)) {
		err_set(e, ERR_NOMEM, "no memory for a pattern");
		goto fail;
	}
	s->drop_rest = drop_rest;
	s->code = compile(buf_str(&text), text.len, literal, e);
	if (!s->code || check_pattern(s, pattern, e))
		goto fail;
	s->jit = !pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
	buf_fini(&text);
	*out = s;
	return 0;
fail:
	buf_fini(&text);
	text_split_close(s);
	return -1;
}

void text_split_close(struct split *s)
{
	if (!s)
		return;
	pcre2_code_free(s->code);
	free(s);
}

int text_split_matcher_open(struct split_matcher **out, struct err *e)
{
	struct split_matcher *m = calloc(1, sizeof *m);
	if (m) {
		m->data = pcre2_match_data_create(1, NULL);
		m->context = pcre2_match_context_create(NULL);
		/* NULL if PCRE2 has no JIT compiler; then no stack is needed */
		m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MAX, NULL);
	}
	if (!m || !m->data || !m->context) {
		text_split_matcher_close(m);
		return err_set(e, ERR_NOMEM, "no memory to match patterns");
	}
	pcre2_set_match_limit(m->context, MATCH_STEPS);
	pcre2_set_heap_limit(m->context, HEAP_KIB);
	if (m->stack)
		pcre2_jit_stack_assign(m->context, NULL, m->stack);
	*out = m;
	return 0;
}

void text_split_matcher_close(struct split_matcher *m)
{
	if (!m)
		return;
	pcre2_match_data_free(m->data);
	pcre2_match_context_free(m->context);
	pcre2_jit_stack_free(m->stack);
	free(m);
}

/* Sets *ahead to the first match at or after `from`; lo == hi == n if there is none. */
static int find_match(const struct split *s, struct split_matcher *m, const char *text, size_t n,
		      size_t from, struct split_ahead *ahead, struct err *e)
{
	PCRE2_SPTR at = (PCRE2_SPTR)text;
	int rc = s->jit ? pcre2_jit_match(s->code, at, n, from, PCRE2_NO_UTF_CHECK, m->data,
					  m->context)
			: PCRE2_ERROR_JIT_STACKLIMIT;
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(s->code, at, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
				 m->context);
	if (rc == PCRE2_ERROR_NOMATCH) {
		*ahead = (struct split_ahead){ n, n };
		return 0;
	}
	if (rc < 0) {
		PCRE2_UCHAR why[200] = "";
		pcre2_get_error_message(rc, why, sizeof why);
		return err_set(e, ERR_UNSUPPORTED,
			       "a pattern of the tokenizer, at byte %zu of a piece of %zu: %s",
			       from, n, (const char *)why);
	}
	const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
	*ahead = (struct split_ahead){ found[0], found[1] };
	/* \K in a lookaround can cause this */
	if (ahead->lo < from || ahead->hi <= ahead->lo || ahead->hi > n)
		return err_set(e, ERR_UNSUPPORTED,
			       "a pattern of the tokenizer matches an empty text, or text before "
			       "its position, at byte %zu",
			       from);
	return 0;
}

int text_split_next(const struct split *s, struct split_matcher *m, const char *text, size_t n,
		    size_t from, struct split_ahead *ahead, size_t *end, bool *left_out,
		    struct err *e)
{
	if (ahead->hi <= from && find_match(s, m, text, n, from, ahead, e))
		return -1;
	bool gap = ahead->lo > from;
	*end = gap ? ahead->lo : ahead->hi;
	*left_out = gap && s->drop_rest;
	return 0;
}

const char *text_split_unicode(void)
{
	static _Thread_local char version[64];
	if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > (int)sizeof version ||
	    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version) < 0)
		return "unknown";
	return version;
}
