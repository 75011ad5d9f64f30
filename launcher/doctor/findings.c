#include "launcher/doctor/doctor.h"

#include "base/human.h"
#include "plan/spec/job/keys.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINDINGS_MAX = 4096 };

static const char *const words[FINDING_LEVELS] = { "ok", "warn", "fail" };

const char *doctor_finding_word(enum finding_level level)
{
	return words[level];
}

void doctor_findings_fini(struct findings *f)
{
	free(f->rows);
	json_decref(f->facts);
	*f = (struct findings){ .rows = NULL };
}

static struct finding *add_row(struct findings *f)
{
	if (f->n == f->cap) {
		int cap = f->cap ? 2 * f->cap : 32;
		struct finding *more = cap <= FINDINGS_MAX
					       ? realloc(f->rows, (size_t)cap * sizeof *more)
					       : NULL;
		if (!more) {
			f->lost = true;
			return NULL;
		}
		f->rows = more;
		f->cap = cap;
	}
	struct finding *x = &f->rows[f->n++];
	memset(x, 0, sizeof *x);
	return x;
}

/* Copies the text. It is never cut inside a character. A '?' replaces each byte that is not
 * printable text: paths may contain such bytes, and JSON does not allow them. */
static void copy_text(char *to, size_t size, const char *text)
{
	const char *bad;
	size_t len = strnlen(text, size);
	if (len == size)
		for (len = size - 1; len && ((unsigned char)text[len] & 0xc0) == 0x80;)
			len--;
	memcpy(to, text, len);
	to[len] = '\0';
	human_plain(to);
	while ((bad = job_unprintable(to, len)))
		to[bad - to] = '?';
}

static void __attribute__((format(printf, 5, 0)))
add_finding(struct findings *f, enum finding_level level, const char *object, const char *remedy,
	    const char *fmt, va_list ap)
{
	char text[1024];
	struct finding *x = add_row(f);
	if (!x)
		return;
	vsnprintf(text, sizeof text, fmt, ap);
	x->level = level;
	copy_text(x->check, sizeof x->check, f->check ? f->check : "");
	copy_text(x->object, sizeof x->object, object);
	copy_text(x->found, sizeof x->found, text);
	copy_text(x->remedy, sizeof x->remedy, remedy);
}

void doctor_found_ok(struct findings *f, const char *object, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	add_finding(f, FINDING_OK, object, "", fmt, ap);
	va_end(ap);
}

void doctor_found_bad(struct findings *f, enum finding_level level, const char *object,
		      const char *remedy, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	add_finding(f, level, object, remedy, fmt, ap);
	va_end(ap);
}

enum finding_level doctor_findings_worst(const struct findings *f)
{
	enum finding_level worst = f->lost ? FINDING_FAIL : FINDING_OK;
	for (int i = 0; i < f->n; i++)
		worst = f->rows[i].level > worst ? f->rows[i].level : worst;
	return worst;
}

void doctor_found_facts(struct findings *f, json_t *facts)
{
	if (!f->facts)
		f->facts = json_object();
	json_object_set_new(f->facts, f->check ? f->check : "", facts);
}

json_t *doctor_findings_json(const struct findings *f)
{
	json_t *list = json_array();
	for (int i = 0; i < f->n; i++) {
		const struct finding *x = &f->rows[i];
		json_t *o = json_object();
		json_object_set_new(o, "level", json_string(words[x->level]));
		json_object_set_new(o, "check", json_string(x->check));
		json_object_set_new(o, "object", json_string(x->object));
		json_object_set_new(o, "found", json_string(x->found));
		json_object_set_new(o, "remedy", *x->remedy ? json_string(x->remedy) : json_null());
		json_array_append_new(list, o);
	}
	return json_pack("{s:o, s:o}", "findings", list, "facts",
			 f->facts ? json_incref(f->facts) : json_object());
}

static int level_of(const char *word)
{
	for (int i = 0; word && i < FINDING_LEVELS; i++)
		if (!strcmp(word, words[i]))
			return i;
	return -1;
}

/* The text is cut and cleaned again, because another process or node wrote it. */
static void read_text(const json_t *o, const char *key, char *to, size_t size)
{
	const char *text = json_string_value(json_object_get(o, key));
	copy_text(to, size, text ? text : "");
}

/* Each check has its own key. */
static void merge_facts(struct findings *f, const json_t *facts)
{
	if (!json_is_object(facts) || !json_object_size(facts))
		return;
	if (!f->facts)
		f->facts = json_object();
	json_object_update(f->facts, (json_t *)facts);
}

int doctor_findings_read(struct findings *f, const json_t *doc)
{
	const json_t *list = json_object_get(doc, "findings");
	int before = f->n;
	size_t i;
	json_t *o;
	if (!json_is_array(list))
		return -1;
	json_array_foreach((json_t *)list, i, o)
	{
		int level = level_of(json_string_value(json_object_get(o, "level")));
		struct finding *x = level < 0 ? NULL : add_row(f);
		if (!x) {
			f->n = before;
			return -1;
		}
		x->level = (enum finding_level)level;
		read_text(o, "check", x->check, sizeof x->check);
		read_text(o, "object", x->object, sizeof x->object);
		read_text(o, "found", x->found, sizeof x->found);
		read_text(o, "remedy", x->remedy, sizeof x->remedy);
	}
	merge_facts(f, json_object_get(doc, "facts"));
	return 0;
}
