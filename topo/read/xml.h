/*
 * xml — a whole XML document as a tree, read from bytes that nobody vouches for. Wraps expat.
 *
 * What is refused, with the line: anything ill-formed, entity declarations (so nothing expands and
 * no file or address is opened), nesting deeper than XML_DEPTH, more than XML_ELEMENTS elements,
 * more than XML_ATTRS attributes in one. A DOCTYPE is passed over unread. Everything belongs to the
 * document. Text is kept where an element holds nothing else.
 */
#ifndef MUSTER_TOPO_READ_XML_H
#define MUSTER_TOPO_READ_XML_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { XML_DEPTH = 128, XML_ELEMENTS = 1000000, XML_ATTRS = 64 };

struct xml {
	const char *name;
	const char *const *attrs; /* name, value, name, value, …, NULL */
	const char *text;         /* "" where there is none */
	int line;
	struct xml *parent, *first, *next;
};

struct xml_doc;

/* ERR_USAGE, "FILE:LINE: cause; remedy", for what is refused; `file` names the source in it. */
int topo_xml_parse(const char *file, const char *text, size_t len, struct xml_doc **out,
		   struct err *e);
void topo_xml_free(struct xml_doc *doc);
const struct xml *topo_xml_root(const struct xml_doc *doc);

/* The attribute, or NULL. */
const char *topo_xml_get(const struct xml *x, const char *name);
/* The first child of that name at or after `from`, or NULL: topo_xml_child(x->first, "pci"),
 * then topo_xml_child(it->next, "pci"). */
const struct xml *topo_xml_child(const struct xml *from, const char *name);

/* Whether a text's first element, after declaration, DOCTYPE and comments, has that name. */
bool topo_xml_begins_with(const char *text, const char *name);

#endif
