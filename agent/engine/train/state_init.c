#include "agent/engine/train/state.h"

#include "agent/engine/model/model.h"
#include "base/numbers.h"

#include <stdlib.h>

/* If the host cannot set elements in place, each thread sets PART elements at a time in a buffer.
 * All buffers together have at most PART_MAX elements. */
enum { PART = 1 << 20, PART_MAX = 1 << 24 };

/* Returns the number of elements that are set on the host before they are written to the device. It
 * is at most the size of the largest piece. */
static int64_t part_of(const struct param_piece *pieces, int n, int threads)
{
	int64_t part = (int64_t)PART * threads, largest = 1;
	for (int i = 0; i < n; i++)
		largest = max_int64(largest, pieces[i].count);
	return min_int64(min_int64(part, PART_MAX), largest);
}

static int init_piece(const struct train_state *state, const struct param_piece *piece,
		      const struct model_shape *s, uint64_t seed, int64_t most, float *part,
		      struct err *e)
{
	int threads = backend_threads(param_store_backend(state->store));
	for (int64_t at = 0; at < piece->count; at += most) {
		int64_t n = min_int64(piece->count - at, most);
		model_init(piece->param, s, seed, piece->first + at, n, threads, part);
		if (train_state_write(state, piece, 0, at, n, part, e))
			return -1;
	}
	return 0;
}

int train_state_init(const struct train_state *state, const struct model_shape *s, uint64_t seed,
		     struct err *e)
{
	int rc = 0, n, threads = backend_threads(param_store_backend(state->store));
	const struct param_piece *pieces = param_store_pieces(state->store, &n);
	bool in_place = train_state_on_host(state, 0);
	int64_t most = part_of(pieces, n, threads);
	float *part = in_place ? NULL : malloc((size_t)most * sizeof *part);
	if (!in_place && !part)
		return err_set(e, ERR_NOMEM,
			       "initial parameters: no memory for %zu bytes; close other programs",
			       (size_t)most * sizeof *part);
	rc = train_state_settle(state, e);
	for (int i = 0; rc == 0 && i < n; i++)
		if (in_place)
			model_init(pieces[i].param, s, seed, pieces[i].first, pieces[i].count,
				   threads, pieces[i].master);
		else
			rc = init_piece(state, &pieces[i], s, seed, most, part, e);
	free(part);
	return rc ? -1 : param_store_sync_params(state->store, 0, e);
}
