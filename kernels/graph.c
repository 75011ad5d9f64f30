/* Tapes: devices have them, the host does not. */
#include "kernels/backend.h"

bool backend_record(struct backend *k)
{
	return k->device && k->device->record(k);
}

int backend_recorded(struct backend *k, struct backend_tape **out, struct err *e)
{
	if (!k->device)
		return err_set(e, ERR_INTERNAL,
			       "backend %s: it records no tapes (kern_record said so)",
			       k->ops.name);
	return k->device->recorded(k, out, e);
}

void backend_replay(struct backend *k, struct backend_tape *t)
{
	k->device->replay(k, t);
}

void backend_graph_free(struct backend *k, struct backend_tape *t)
{
	if (t)
		k->device->tape_free(k, t);
}
