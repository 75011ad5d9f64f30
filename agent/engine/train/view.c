#include "agent/engine/train/view.h"

#include <string.h>

int train_state_tensors(const struct state_view *view)
{
	int n = 1;
	while (n <= OPTIMIZER_STATES_MOST &&
	       optimizer_of(optim_kind(view->optim))->states[n - 1].size != OPTIMIZER_NONE)
		n++;
	return n;
}

float *train_state_at(const struct state_view *view, const struct param_piece *piece, int tensor)
{
	return tensor ? optim_state(view->optim, tensor - 1, piece) : piece->master;
}

bool train_state_on_host(const struct state_view *view, int tensor)
{
	return backend_on_host(param_store_backend(view->store)) ||
	       (tensor ? optim_offloaded(view->optim) : param_store_masters_offloaded(view->store));
}

int train_state_read(const struct state_view *view, const struct param_piece *piece, int tensor,
		     int64_t first, int64_t count, float *out, struct err *e)
{
	const float *at = train_state_at(view, piece, tensor) + first;
	size_t bytes = (size_t)count * sizeof *at;
	if (!train_state_on_host(view, tensor))
		return backend_get(param_store_backend(view->store), out, at, bytes, e);
	if (optim_wait(view->optim, e))
		return -1;
	memcpy(out, at, bytes);
	return 0;
}

void train_state_write(const struct state_view *view, const struct param_piece *piece, int tensor,
		       int64_t first, int64_t count, const float *in)
{
	float *at = train_state_at(view, piece, tensor) + first;
	size_t bytes = (size_t)count * sizeof *at;
	if (train_state_on_host(view, tensor))
		memcpy(at, in, bytes);
	else
		backend_put(param_store_backend(view->store), at, in, bytes);
}

/* Only the host's optimizers have these tensors. */
static void clear_factors(const struct state_view *view)
{
	const struct catalogue *c = param_store_catalogue(view->store);
	for (int i = 0; i < c->n; i++)
		for (int j = 0; j < OPTIMIZER_STATES_MOST; j++) {
			float *at = optim_factor(view->optim, j, &c->params[i]);
			int64_t shape[2];
			int dims;
			if (at && optimizer_state_shape(optim_kind(view->optim), j, &c->params[i],
							shape, &dims))
				memset(at, 0, (size_t)shape[0] * sizeof *at);
		}
}

void train_state_clear(const struct state_view *view)
{
	clear_factors(view);
	int n;
	const struct param_piece *pieces = param_store_pieces(view->store, &n);
	for (int i = 0; i < n; i++)
		for (int t = 0; t < train_state_tensors(view); t++) {
			size_t bytes = (size_t)pieces[i].count * sizeof(float);
			if (!train_state_at(view, &pieces[i], t))
				continue;
			if (train_state_on_host(view, t))
				memset(train_state_at(view, &pieces[i], t), 0, bytes);
			else
				backend_zero(param_store_backend(view->store),
					     train_state_at(view, &pieces[i], t), bytes);
		}
}
