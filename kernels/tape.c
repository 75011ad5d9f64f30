/* Tapes: devices have them, the host does not. */
#include "kernels/kern.h"

bool backend_record(struct kern *k)
{
	return k->device && k->device->record(k);
}

int backend_recorded(struct kern *k, struct kern_tape **out, struct err *e)
{
	if (!k->device)
		return err_set(e, ERR_INTERNAL,
			       "backend %s: it records no tapes (kern_record said so)",
			       k->ops.name);
	return k->device->recorded(k, out, e);
}

void backend_replay(struct kern *k, struct kern_tape *t)
{
	k->device->replay(k, t);
}

void backend_tape_free(struct kern *k, struct kern_tape *t)
{
	if (t)
		k->device->tape_free(k, t);
}
