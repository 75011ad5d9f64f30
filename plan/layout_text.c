#include "plan/layout_text.h"

void plan_print_degrees(const struct layout *l, const char *between, struct buf *out)
{
	buf_printf(out, "tp %d", l->tp);
	if (l->cp > 1)
		buf_printf(out, "%scp %d", between, l->cp);
	buf_printf(out, "%sdp %d%spp %d", between, l->dp, between, l->pp);
}

void plan_print_coords(const struct layout *l, const struct coords *at, struct buf *out)
{
	buf_printf(out, "tp %d, ", at->tp);
	if (l->cp > 1)
		buf_printf(out, "cp %d, ", at->cp);
	buf_printf(out, "dp %d, pp %d", at->dp, at->pp);
}
