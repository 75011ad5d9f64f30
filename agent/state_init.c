#include "agent/state.h"

#include "agent/model/model.h"

int state_init(const struct state_view *view, const struct model_shape *s, uint64_t seed, struct err *e)
{
	int n;
	const struct piece *pieces = store_pieces(view->store, &n);
	for (int i = 0; i < n; i++)
		model_init(pieces[i].param, s, seed, pieces[i].first, pieces[i].count, pieces[i].master);
	return store_publish(view->store, 0, e);
}
