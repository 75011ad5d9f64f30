#include "agent/engine/train/view.h"

#include <string.h>

int state_tensors(const struct state_view *view)
{
	int n = 1;
	while (optim_moment_name(optim_kind(view->optim), n - 1))
		n++;
	return n;
}

float *state_at(const struct state_view *view, const struct piece *piece, int tensor)
{
	return tensor ? optim_moment(view->optim, tensor - 1) + piece->at : piece->master;
}

bool state_on_host(const struct state_view *view, int tensor)
{
	return kern_on_host(store_kern(view->store)) || (tensor ? optim_away(view->optim) : store_masters_away(view->store));
}

int state_read(const struct state_view *view, const struct piece *piece, int tensor, int64_t first, int64_t count, float *out, struct err *e)
{
	const float *at = state_at(view, piece, tensor) + first;
	size_t bytes = (size_t)count * sizeof *at;
	if (!state_on_host(view, tensor))
		return kern_get(store_kern(view->store), out, at, bytes, e);
	if (optim_settle(view->optim, e))
		return -1;
	memcpy(out, at, bytes);
	return 0;
}

void state_write(const struct state_view *view, const struct piece *piece, int tensor, int64_t first, int64_t count, const float *in)
{
	float *at = state_at(view, piece, tensor) + first;
	size_t bytes = (size_t)count * sizeof *at;
	if (state_on_host(view, tensor))
		memcpy(at, in, bytes);
	else
		kern_put(store_kern(view->store), at, in, bytes);
}

void state_clear(const struct state_view *view)
{
	int n;
	const struct piece *pieces = store_pieces(view->store, &n);
	for (int i = 0; i < n; i++)
		for (int t = 0; t < state_tensors(view); t++) {
			size_t bytes = (size_t)pieces[i].count * sizeof(float);
			if (state_on_host(view, t))
				memset(state_at(view, &pieces[i], t), 0, bytes);
			else
				kern_zero(store_kern(view->store), state_at(view, &pieces[i], t), bytes);
		}
}
