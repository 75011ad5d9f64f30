/*
 * xml — parses untrusted XML into a tree. Wraps expat.
 *
 * It refuses, with the line number: ill-formed documents, entity declarations (so nothing is expanded
 * and no file or address is opened), nesting deeper than XML_DEPTH, more than XML_ELEMENTS elements,
 * and more than XML_ATTRS attributes of one element. A DOCTYPE is skipped. The document owns
 * everything. Text is kept only for elements that contain nothing else.
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
	const char *text;         /* "" if there is none */
	int line;
	struct xml *parent, *first, *next;
};

struct xml_doc;

/* Errors are ERR_USAGE, "FILE:LINE: cause; remedy"; file: the name in them. */
int topo_xml_parse(const char *file, const char *text, size_t len, struct xml_doc **out,
		   struct err *e);
void topo_xml_free(struct xml_doc *doc);
const struct xml *topo_xml_root(const struct xml_doc *doc);

/* The value of an attribute, or NULL. */
const char *topo_xml_get(const struct xml *x, const char *name);
/* The first element of that name among `from` and its later siblings, or NULL. To iterate:
 * topo_xml_child(x->first, "pci"), then topo_xml_child(it->next, "pci"). */
const struct xml *topo_xml_child(const struct xml *from, const char *name);

/* Whether the first element of a text, after declaration, DOCTYPE and comments, has that name. */
bool topo_xml_begins_with(const char *text, const char *name);

#endif
