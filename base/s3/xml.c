#include "base/s3/xml.h"

#include "base/buf.h"

#include <expat.h>
#include <stdbool.h>
#include <string.h>

struct reader {
	XML_Parser parser;
	s3_xml_visit *visit;
	void *arg;
	char path[S3_XML_PATH];
	size_t len; /* of the path */
	int depth;
	bool parent; /* the element that ends next holds others */
	struct buf text;
	bool stopped; /* with an error in *e */
	struct err *e;
};

static void stop(struct reader *r, enum err_code code, const char *why)
{
	if (r->stopped)
		return;
	r->stopped = true;
	err_set(r->e, code, "line %d of the store's answer: %s",
		(int)XML_GetCurrentLineNumber(r->parser), why);
	XML_StopParser(r->parser, XML_FALSE);
}

static void on_start(void *self, const char *name, const char **attrs)
{
	struct reader *r = self;
	size_t n = strlen(name);
	(void)attrs;
	if (r->stopped)
		return;
	if (++r->depth > S3_XML_DEPTH || r->len + n + 2 > sizeof r->path) {
		stop(r, ERR_PROTO, "its elements are nested too deeply for an object store");
		return;
	}
	if (r->len)
		r->path[r->len++] = '/';
	memcpy(r->path + r->len, name, n + 1);
	r->len += n;
	r->parent = false;
	buf_clear(&r->text);
}

static void on_end(void *self, const char *name)
{
	struct reader *r = self;
	if (r->stopped)
		return;
	const char *text = r->parent ? NULL : buf_str(&r->text);
	if (buf_failed(&r->text)) {
		stop(r, ERR_NOMEM, "no memory");
		return;
	}
	if (r->visit(r->arg, r->path, text, r->e)) {
		r->stopped = true;
		XML_StopParser(r->parser, XML_FALSE);
		return;
	}
	r->len -= strlen(name);
	if (r->len)
		r->len--;
	r->path[r->len] = '\0';
	r->depth--;
	r->parent = true;
	buf_clear(&r->text);
}

static void on_text(void *self, const char *s, int len)
{
	struct reader *r = self;
	if (r->stopped)
		return;
	if (r->text.len + (size_t)len > S3_XML_TEXT)
		stop(r, ERR_PROTO, "a text is too long for an object store");
	else
		buf_add(&r->text, s, (size_t)len);
}

static void on_doctype(void *self, const char *name, const char *system, const char *public,
		       int has_internal)
{
	(void)name, (void)system, (void)public, (void)has_internal;
	stop(self, ERR_PROTO, "it has a DOCTYPE, which no object store sends");
}

int s3_xml_read(const char *text, size_t n, s3_xml_visit *visit, void *arg, struct err *e)
{
	struct reader r = {
		.parser = XML_ParserCreate("UTF-8"), .visit = visit, .arg = arg, .e = e
	};
	if (!r.parser)
		return err_set(e, ERR_NOMEM, "no memory to read the store's answer");
	XML_SetUserData(r.parser, &r);
	XML_SetElementHandler(r.parser, on_start, on_end);
	XML_SetCharacterDataHandler(r.parser, on_text);
	XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
	int rc = 0;
	if (n > 1 << 26)
		rc = err_set(e, ERR_PROTO, "the store's answer is longer than 64 MiB");
	else if (XML_Parse(r.parser, n ? text : "", (int)n, 1) != XML_STATUS_OK)
		rc = r.stopped ? -1
			       : err_set(e, ERR_PROTO, "line %d of the store's answer: %s",
					 (int)XML_GetCurrentLineNumber(r.parser),
					 XML_ErrorString(XML_GetErrorCode(r.parser)));
	XML_ParserFree(r.parser);
	buf_fini(&r.text);
	return rc;
}
