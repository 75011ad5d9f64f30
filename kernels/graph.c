/* Graphs of recorded calls, which only devices have. */
#include "kernels/backend.h"

bool backend_graph_begin(struct backend *k)
{
	return k->device && k->device->graph_begin(k);
}

int backend_graph_end(struct backend *k, struct backend_graph **out, struct err *e)
{
	if (!k->device)
		return err_set(
			e, ERR_INTERNAL,
			"backend %s: it records no graphs (backend_graph_begin returned false)",
			k->ops.name);
	return k->device->graph_end(k, out, e);
}

void backend_graph_replay(struct backend *k, struct backend_graph *t)
{
	k->device->graph_replay(k, t);
}

void backend_graph_free(struct backend *k, struct backend_graph *t)
{
	if (t)
		k->device->graph_free(k, t);
}
