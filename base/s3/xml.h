/*
 * xml — reads the answers of an object store, which are small XML documents. Wraps expat.
 *
 * It refuses ill-formed documents, a DOCTYPE (so nothing is expanded, and no file or address is
 * opened), elements nested deeper than S3_XML_DEPTH, and texts longer than S3_XML_TEXT. Attributes
 * are skipped, as stores differ in their namespaces.
 */
#ifndef MUSTER_BASE_S3_XML_H
#define MUSTER_BASE_S3_XML_H

#include "base/err.h"

#include <stddef.h>

enum { S3_XML_DEPTH = 8, S3_XML_TEXT = 8192, S3_XML_PATH = 256 };

/* Called at the end of each element, inner ones first. path: the names of the element and of those
 * around it, "ListBucketResult/Contents/Key". text: NULL if the element holds others. A nonzero
 * result ends the reading and fails it. */
typedef int s3_xml_visit(void *arg, const char *path, const char *text, struct err *e);

/* ERR_PROTO: "LINE: cause". */
int s3_xml_read(const char *text, size_t n, s3_xml_visit *visit, void *arg, struct err *e);

#endif
