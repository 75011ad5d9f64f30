/*
 * layout_text — degrees and coordinates as text.
 */
#ifndef MUSTER_PLAN_LAYOUT_TEXT_H
#define MUSTER_PLAN_LAYOUT_TEXT_H

#include "base/buf.h"
#include "plan/spec/layout.h"

/* "tp 2 × dp 2 × pp 2", and cp if it is above 1. between: the text between two degrees. */
void plan_print_degrees(const struct layout *l, const char *between, struct buf *out);
/* "tp 0, dp 1, pp 0", and cp if its degree is above 1. */
void plan_print_coords(const struct layout *l, const struct coords *at, struct buf *out);

#endif
