#include "agent/view.h"

#include "agent/model/model.h"

#include <stdlib.h>

/* Elements that are set at once where the host cannot set them in place. */
enum { PART = 1 << 20 };

static void init_piece(const struct state_view *view, const struct piece *piece, const struct model_shape *s, uint64_t seed, float *part)
{
	for (int64_t at = 0; at < piece->count; at += PART) {
		int64_t n = piece->count - at < PART ? piece->count - at : PART;
		model_init(piece->param, s, seed, piece->first + at, n, part);
		state_write(view, piece, 0, at, n, part);
	}
}

int state_init(const struct state_view *view, const struct model_shape *s, uint64_t seed, struct err *e)
{
	int n;
	const struct piece *pieces = store_pieces(view->store, &n);
	bool in_place = state_on_host(view, 0);
	float *part = in_place ? NULL : malloc(PART * sizeof *part);
	if (!in_place && !part)
		return err_set(e, ERR_NOMEM, "initial parameters: no memory for %zu bytes; close other programs", PART * sizeof *part);
	for (int i = 0; i < n; i++)
		if (in_place)
			model_init(pieces[i].param, s, seed, pieces[i].first, pieces[i].count, pieces[i].master);
		else
			init_piece(view, &pieces[i], s, seed, part);
	free(part);
	return store_publish(view->store, 0, e);
}
