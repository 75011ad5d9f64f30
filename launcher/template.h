/*
 * template — the texts of templates/ with their values: the batch script, the page of a report.
 *
 * A template has @name@ in place of each value; any other @ is literal. A name without a value is
 * an error, because the text would be wrong. Values are put in as they are: the caller quotes them.
 */
#ifndef MUSTER_LAUNCHER_TEMPLATE_H
#define MUSTER_LAUNCHER_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"

struct template_value {
	const char *name, *text;
};

/* Reads a template from $MUSTER_TEMPLATES, PREFIX/share/muster/templates, or the source tree that
 * this program was built in. */
int launcher_template_read(const char *name, struct buf *out, struct err *e);

/* `values` ends with a NULL name. */
int launcher_template_render(const char *text, const struct template_value *values, struct buf *out,
			     struct err *e);

#endif
