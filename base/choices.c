#include "base/choices.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "muster-choices 1";

struct choice {
	uint64_t hash; /* of the key */
	bool proposal;
	uint8_t length;
	char machine[CHOICES_TEXT], key[CHOICES_TEXT], note[CHOICES_TEXT];
	unsigned char value[CHOICES_VALUE];
};

struct choices {
	enum choices_mode mode;
	unsigned version;
	char machine[CHOICES_TEXT];
	int count, room;
	int last; /* the choice that was put last; -1: there is none, or it was not kept */
	struct choice *all;
};

/* --- The table ---------------------------------------------------------------------------- */

struct choices *choices_open(void)
{
	struct choices *c = calloc(1, sizeof *c);
	if (c)
		c->last = -1;
	return c;
}

void choices_close(struct choices *c)
{
	if (!c)
		return;
	free(c->all);
	free(c);
}

static bool is_control(char c)
{
	return (unsigned char)c < ' ' || c == 0x7f;
}

static void clean_text(char *at)
{
	for (; *at; at++)
		if (is_control(*at))
			*at = ' ';
}

void choices_set_machine(struct choices *c, const char *machine)
{
	snprintf(c->machine, sizeof c->machine, "%s", machine);
	clean_text(c->machine);
	c->version++;
}

const char *choices_machine(const struct choices *c)
{
	return c->machine;
}

void choices_set_mode(struct choices *c, enum choices_mode mode)
{
	c->mode = mode;
}

bool choices_wanted(const struct choices *c)
{
	return c->mode != CHOICES_FIXED;
}

unsigned choices_version(const struct choices *c)
{
	return c->version;
}

static struct choice *look_up(const struct choices *c, const char *machine, const char *key,
			      bool proposal)
{
	const uint64_t hash = hash_text(key);
	for (int i = 0; i < c->count; i++) {
		struct choice *one = &c->all[i];
		if (one->hash == hash && one->proposal == proposal && !strcmp(one->key, key) &&
		    !strcmp(one->machine, machine))
			return one;
	}
	return NULL;
}

bool choices_find(const struct choices *c, const char *key, void *value, size_t size,
		  size_t *length)
{
	const struct choice *one = look_up(c, c->machine, key, false);
	if (!one || one->length > size)
		return false;
	memcpy(value, one->value, one->length);
	*length = one->length;
	return true;
}

bool choices_proposed(const struct choices *c, const char *key)
{
	return look_up(c, c->machine, key, true) != NULL;
}

static struct choice *new_choice(struct choices *c)
{
	if (c->count == CHOICES_MOST)
		return NULL;
	if (c->count == c->room) {
		int room = c->room ? 2 * c->room : 64;
		struct choice *all = realloc(c->all, (size_t)room * sizeof *all);
		if (!all)
			return NULL;
		c->all = all;
		c->room = room;
	}
	return &c->all[c->count++];
}

/* Returns the number of the choice that it has set, or -1. */
static int set_choice(struct choices *c, const struct choice *from, bool replace)
{
	struct choice *one = look_up(c, from->machine, from->key, from->proposal);
	if (one && !replace)
		return -1;
	if (!one)
		one = new_choice(c);
	if (!one)
		return -1;
	*one = *from;
	return (int)(one - c->all);
}

static bool is_text(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (is_control(text[i]))
			return false;
	return length && length < CHOICES_TEXT;
}

void choices_put(struct choices *c, const char *key, const void *value, size_t length)
{
	struct choice one = { .hash = hash_text(key),
			      .proposal = c->mode == CHOICES_PROPOSED,
			      .length = (uint8_t)length };
	c->last = -1;
	if (!is_text(key, strlen(key)) || !c->machine[0] || !length || length > CHOICES_VALUE)
		return;
	snprintf(one.machine, sizeof one.machine, "%s", c->machine);
	snprintf(one.key, sizeof one.key, "%s", key);
	memcpy(one.value, value, length);
	const struct choice *old = one.proposal ? NULL : look_up(c, c->machine, key, false);
	if (old && (old->length != length || memcmp(old->value, value, length)))
		c->version++;
	c->last = set_choice(c, &one, true);
}

void choices_note(struct choices *c, const char *fmt, ...)
{
	va_list ap;
	if (c->last < 0 || c->last >= c->count)
		return;
	char *note = c->all[c->last].note;
	va_start(ap, fmt);
	vsnprintf(note, CHOICES_TEXT, fmt, ap);
	va_end(ap);
	clean_text(note);
}

bool choices_at(const struct choices *c, int i, const char **key, const char **note)
{
	for (int at = 0; at < c->count; at++)
		if (!strcmp(c->all[at].machine, c->machine) && i-- == 0) {
			*key = c->all[at].key;
			*note = c->all[at].note;
			return true;
		}
	return false;
}

/* Drops the choices whose keys have the prefix. prefix NULL: the choices of other machines. */
static void drop(struct choices *c, const char *prefix)
{
	int kept = 0;
	for (int i = 0; i < c->count; i++)
		if (prefix ? strncmp(c->all[i].key, prefix, strlen(prefix)) != 0
			   : !strcmp(c->all[i].machine, c->machine))
			c->all[kept++] = c->all[i];
	c->count = kept;
	c->last = -1;
	c->version++;
}

void choices_drop(struct choices *c, const char *prefix)
{
	drop(c, prefix);
}

void choices_drop_others(struct choices *c)
{
	drop(c, NULL);
}

/* --- The text ----------------------------------------------------------------------------- */

static void write_choice(const struct choice *one, struct buf *out)
{
	const size_t from = out->len;
	buf_printf(out, "%s\t%s\t", one->machine, one->key);
	for (int i = 0; i < one->length; i++)
		buf_printf(out, "%02x", one->value[i]);
	buf_printf(out, "\t%s", one->note);
	if (!buf_failed(out))
		buf_printf(out, "\t%016" PRIx64 "\n",
			   hash_bytes(out->data + from, out->len - from));
}

void choices_write(const struct choices *c, struct buf *out)
{
	buf_printf(out, "%s\n", first_line);
	for (int i = 0; i < c->count; i++)
		write_choice(&c->all[i], out);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_value(struct choice *one, const char *at, size_t n)
{
	if (!n || n % 2 || n / 2 > CHOICES_VALUE)
		return false;
	for (size_t i = 0; i < n / 2; i++) {
		int high = hex_digit(at[2 * i]), low = hex_digit(at[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		one->value[i] = (unsigned char)(16 * high + low);
	}
	one->length = (uint8_t)(n / 2);
	return true;
}

static bool read_text(char to[CHOICES_TEXT], const char *at, size_t n)
{
	if (!is_text(at, n))
		return false;
	memcpy(to, at, n);
	to[n] = '\0';
	return true;
}

enum { FIELDS = 5 };

/* Splits a line at its tabs. */
static bool split_line(const char *line, size_t n, const char *field[FIELDS], size_t length[FIELDS])
{
	int fields = 0;
	for (size_t from = 0, at = 0; at <= n; at++)
		if (at == n || line[at] == '\t') {
			if (fields == FIELDS)
				return false;
			field[fields] = line + from;
			length[fields++] = at - from;
			from = at + 1;
		}
	return fields == FIELDS;
}

static bool read_line(const char *line, size_t n, struct choice *one)
{
	const char *field[FIELDS];
	size_t length[FIELDS];
	char check[17];
	memset(one, 0, sizeof *one);
	if (!split_line(line, n, field, length))
		return false;
	snprintf(check, sizeof check, "%016" PRIx64,
		 hash_bytes(line, (size_t)(field[FIELDS - 1] - 1 - line)));
	if (length[FIELDS - 1] != 16 || memcmp(field[FIELDS - 1], check, 16) ||
	    !read_text(one->machine, field[0], length[0]) ||
	    !read_text(one->key, field[1], length[1]) || !read_value(one, field[2], length[2]) ||
	    (length[3] && !read_text(one->note, field[3], length[3])))
		return false;
	one->hash = hash_text(one->key);
	return true;
}

/* The length of the line at `text`; its newline may be missing at the end. */
static size_t line_length(const char *text, size_t n)
{
	const char *end = memchr(text, '\n', n);
	return end ? (size_t)(end - text) : n;
}

int choices_read(struct choices *c, const char *text, size_t n, bool replace)
{
	int skipped = 0;
	bool known = true;
	for (size_t at = 0, length; at < n; at += length + 1) {
		struct choice one;
		length = line_length(text + at, n - at);
		if (at == 0)
			known = length == sizeof first_line - 1 &&
				!memcmp(text, first_line, length);
		else if (known && read_line(text + at, length, &one)) {
			one.proposal = c->mode == CHOICES_PROPOSED;
			set_choice(c, &one, replace);
		} else
			skipped++;
	}
	c->version++;
	return skipped + !known;
}

void choices_agree(struct choices *c, const char *text, size_t n)
{
	int kept = 0;
	for (int i = 0; i < c->count; i++)
		if (!c->all[i].proposal)
			c->all[kept++] = c->all[i];
	c->count = kept;
	c->last = -1;
	c->mode = CHOICES_FIXED;
	choices_read(c, text, n, true);
}
