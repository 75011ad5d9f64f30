#include "topo/read/xml.h"

#include "base/buf.h"

#include <ctype.h>
#include <expat.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 * 1024 };

/* The memory of the tree comes from chunks, which are freed together. */
struct chunk {
	struct chunk *next;
	size_t used, size;
	alignas(max_align_t) char data[];
};

struct xml_doc {
	struct chunk *chunks;
	struct xml *root;
};

struct reader {
	const char *file;
	XML_Parser parser;
	struct xml_doc *doc;
	struct xml *at;                  /* the open element */
	struct xml *last[XML_DEPTH + 1]; /* the last child of each open element */
	int depth, elements;
	struct buf text;
	struct err *e;
	bool refused;
};

static void *take_element(struct xml_doc *d, size_t n)
{
	n = (n + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
	if (!d->chunks || d->chunks->size - d->chunks->used < n) {
		size_t size = n > CHUNK ? n : CHUNK;
		struct chunk *c = malloc(sizeof *c + size);
		if (!c)
			return NULL;
		*c = (struct chunk){ .next = d->chunks, .size = size };
		d->chunks = c;
	}
	void *p = d->chunks->data + d->chunks->used;
	d->chunks->used += n;
	return p;
}

static char *take_text(struct xml_doc *d, const char *s, size_t len)
{
	char *p = take_element(d, len + 1);
	if (p) {
		memcpy(p, s, len);
		p[len] = '\0';
	}
	return p;
}

static int line_of(const struct reader *r)
{
	return (int)XML_GetCurrentLineNumber(r->parser);
}

/* Only the first error is reported. */
static void refuse_document(struct reader *r, enum err_code code, const char *why)
{
	if (r->refused)
		return;
	r->refused = true;
	err_set(r->e, code, "%s:%d: %s", r->file, line_of(r), why);
	XML_StopParser(r->parser, XML_FALSE);
}

static const char **copy_attrs(struct reader *r, const char **attrs)
{
	int n = 0;
	while (attrs[n])
		n++;
	if (n > 2 * XML_ATTRS) {
		refuse_document(r, ERR_USAGE,
				"more than 64 attributes in one element; it does not describe a "
				"machine");
		return NULL;
	}
	const char **copy = take_element(r->doc, (size_t)(n + 1) * sizeof *copy);
	for (int i = 0; copy && i < n; i++) {
		copy[i] = take_text(r->doc, attrs[i], strlen(attrs[i]));
		if (!copy[i])
			copy = NULL;
	}
	if (copy)
		copy[n] = NULL;
	else
		refuse_document(r, ERR_NOMEM, "no memory for the document");
	return copy;
}

static void on_start(void *self, const char *name, const char **attrs)
{
	struct reader *r = self;
	if (r->refused)
		return;
	if (r->depth >= XML_DEPTH || ++r->elements > XML_ELEMENTS) {
		refuse_document(
			r, ERR_USAGE,
			"nested deeper than 128 or more than a million elements; this is no "
			"description of a machine");
		return;
	}
	struct xml *x = take_element(r->doc, sizeof *x);
	const char **copy = x ? copy_attrs(r, attrs) : NULL;
	char *own = copy ? take_text(r->doc, name, strlen(name)) : NULL;
	if (!own) {
		refuse_document(r, ERR_NOMEM, "no memory for the document");
		return;
	}
	*x = (struct xml){
		.name = own, .attrs = copy, .text = "", .line = line_of(r), .parent = r->at
	};
	if (!r->at)
		r->doc->root = x;
	else if (r->last[r->depth])
		r->last[r->depth]->next = x;
	else
		r->at->first = x;
	r->last[r->depth++] = x;
	r->last[r->depth] = NULL;
	r->at = x;
	buf_clear(&r->text);
}

static void on_end(void *self, const char *name)
{
	struct reader *r = self;
	(void)name;
	if (r->refused)
		return;
	if (!r->at->first && r->text.len) {
		const char *text = take_text(r->doc, buf_str(&r->text), r->text.len);
		if (!text || buf_failed(&r->text)) {
			refuse_document(r, ERR_NOMEM, "no memory for the document");
			return;
		}
		r->at->text = text;
	}
	buf_clear(&r->text);
	r->at = r->at->parent;
	r->depth--;
}

static void on_text(void *self, const char *s, int len)
{
	struct reader *r = self;
	if (!r->refused && r->at && !r->at->first)
		buf_add(&r->text, s, (size_t)len);
}

static void on_entity(void *self, const char *name, int parameter, const char *value, int len,
		      const char *base, const char *system, const char *public,
		      const char *notation)
{
	(void)name, (void)parameter, (void)value, (void)len, (void)base, (void)system, (void)public,
		(void)notation;
	refuse_document(self, ERR_USAGE,
			"it declares entities, which no description of a machine needs; remove the "
			"declarations");
}

static void on_skipped(void *self, const char *name, int parameter)
{
	(void)name, (void)parameter;
	refuse_document(self, ERR_USAGE,
			"it uses an entity that is not XML's own; write the character itself");
}

static int parse_document(struct reader *r, const char *text, size_t len)
{
	XML_SetUserData(r->parser, r);
	XML_SetElementHandler(r->parser, on_start, on_end);
	XML_SetCharacterDataHandler(r->parser, on_text);
	XML_SetEntityDeclHandler(r->parser, on_entity);
	XML_SetSkippedEntityHandler(r->parser, on_skipped);
	/* The length of a buffer from hwloc may include the final NUL. */
	while (len && !text[len - 1])
		len--;
	if (XML_Parse(r->parser, text, (int)len, 1) == XML_STATUS_OK)
		return 0;
	if (r->refused)
		return -1;
	return err_set(r->e, ERR_USAGE,
		       "%s:%d: %s: the XML is broken or cut short; export it again", r->file,
		       line_of(r), XML_ErrorString(XML_GetErrorCode(r->parser)));
}

int topo_xml_parse(const char *file, const char *text, size_t len, struct xml_doc **out,
		   struct err *e)
{
	struct xml_doc *doc = calloc(1, sizeof *doc);
	struct reader r = {
		.file = file, .parser = XML_ParserCreate(NULL), .doc = doc, .text = BUF_INIT, .e = e
	};
	int result = -1;
	if (!doc || !r.parser)
		err_set(e, ERR_NOMEM, "%s: no memory for the document", file);
	else if (len > 1u << 30)
		err_set(e, ERR_USAGE, "%s: larger than 1 GiB; it does not describe a machine",
			file);
	else
		result = parse_document(&r, text, len);
	buf_fini(&r.text);
	if (r.parser)
		XML_ParserFree(r.parser);
	if (result)
		topo_xml_free(doc);
	else
		*out = doc;
	return result;
}

void topo_xml_free(struct xml_doc *doc)
{
	if (!doc)
		return;
	for (struct chunk *c = doc->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(doc);
}

const struct xml *topo_xml_root(const struct xml_doc *doc)
{
	return doc->root;
}

const char *topo_xml_get(const struct xml *x, const char *name)
{
	for (int i = 0; x->attrs[i]; i += 2)
		if (!strcmp(x->attrs[i], name))
			return x->attrs[i + 1];
	return NULL;
}

const struct xml *topo_xml_child(const struct xml *from, const char *name)
{
	while (from && strcmp(from->name, name))
		from = from->next;
	return from;
}

bool topo_xml_begins_with(const char *text, const char *name)
{
	const char *at = text;
	size_t len = strlen(name);
	while ((at = strchr(at, '<')) != NULL) {
		if (!strncmp(at, "<!--", 4)) {
			at = strstr(at, "-->");
			if (!at)
				return false;
		} else if (at[1] != '?' && at[1] != '!') {
			return !strncmp(at + 1, name, len) &&
			       !isalnum((unsigned char)at[1 + len]) && at[1 + len] != '_';
		}
		at++;
	}
	return false;
}
