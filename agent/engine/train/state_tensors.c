/* The tensors of the state in memory. It knows nothing of checkpoints, so tests on a GPU use it
 * alone. */
#include "agent/engine/train/state.h"

#include <string.h>

int train_state_tensors(const struct train_state *state)
{
	int n = 1;
	while (n <= OPTIMIZER_STATES_MAX &&
	       optimizer_of(optim_kind(state->optim))->states[n - 1].size != OPTIMIZER_NONE)
		n++;
	return n;
}

float *train_state_at(const struct train_state *state, const struct param_piece *piece, int tensor)
{
	return tensor ? optim_state(state->optim, tensor - 1, piece) : piece->master;
}

bool train_state_on_host(const struct train_state *state, int tensor)
{
	return backend_on_host(param_store_backend(state->store)) ||
	       (tensor ? optim_offloaded(state->optim)
		       : param_store_masters_offloaded(state->store));
}

int train_state_read(const struct train_state *state, const struct param_piece *piece, int tensor,
		     int64_t first, int64_t count, float *out, struct err *e)
{
	const float *at = train_state_at(state, piece, tensor) + first;
	size_t bytes = (size_t)count * sizeof *at;
	if (!train_state_on_host(state, tensor))
		return backend_get(param_store_backend(state->store), out, at, bytes, e);
	if (optim_wait(state->optim, e))
		return -1;
	memcpy(out, at, bytes);
	return 0;
}

int train_state_settle(const struct train_state *state, struct err *e)
{
	return param_store_settle(state->store, e) || optim_wait(state->optim, e) ? -1 : 0;
}

int train_state_write(const struct train_state *state, const struct param_piece *piece, int tensor,
		      int64_t first, int64_t count, const float *in, struct err *e)
{
	float *at = train_state_at(state, piece, tensor) + first;
	size_t bytes = (size_t)count * sizeof *at;
	if (train_state_settle(state, e))
		return -1;
	if (train_state_on_host(state, tensor))
		memcpy(at, in, bytes);
	else
		backend_put(param_store_backend(state->store), at, in, bytes);
	return 0;
}

/* Only the host's optimizers have these tensors. */
static void clear_factors(const struct train_state *state)
{
	const struct catalogue *c = param_store_catalogue(state->store);
	for (int i = 0; i < c->n; i++)
		for (int j = 0; j < OPTIMIZER_STATES_MAX; j++) {
			float *at = optim_factor(state->optim, j, &c->params[i]);
			int64_t shape[2];
			int dims;
			if (at && optimizer_state_shape(optim_kind(state->optim), j, &c->params[i],
							shape, &dims))
				memset(at, 0, (size_t)shape[0] * sizeof *at);
		}
}

int train_state_clear(const struct train_state *state, struct err *e)
{
	int n;
	if (train_state_settle(state, e))
		return -1;
	clear_factors(state);
	const struct param_piece *pieces = param_store_pieces(state->store, &n);
	for (int i = 0; i < n; i++)
		for (int t = 0; t < train_state_tensors(state); t++) {
			size_t bytes = (size_t)pieces[i].count * sizeof(float);
			if (!train_state_at(state, &pieces[i], t))
				continue;
			if (train_state_on_host(state, t))
				memset(train_state_at(state, &pieces[i], t), 0, bytes);
			else
				backend_zero(param_store_backend(state->store),
					     train_state_at(state, &pieces[i], t), bytes);
		}
	return 0;
}
