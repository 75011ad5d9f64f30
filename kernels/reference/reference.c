#include "kernels/reference/reference.h"

int PLAIN(fill)(struct kern *k, const char *variant, struct err *e)
{
	struct ops *o = &k->ops;
	(void)variant;
	(void)e;
	PLAIN(linear)(o);
	PLAIN(norm)(o);
	PLAIN(act)(o);
	PLAIN(rope)(o);
	PLAIN(attention)(o);
	PLAIN(embed)(o);
	PLAIN(dropout)(o);
	PLAIN(route)(o);
	PLAIN(xent)(o);
	PLAIN(convert)(o);
	PLAIN(optim)(o);
	backend_composed(o);
	backend_places(o);
	backend_product8(o);
	k->isa = "base";
	return 0;
}
