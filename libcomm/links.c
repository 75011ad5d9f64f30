/* The links of a group: which transport leads to which rank. */
#include "libcomm/exchange.h"

#include <stdlib.h>

static int ring_open(struct link *l, const struct card *card, struct err *e)
{
	struct comm *c = l->c;
	int me = c->local[c->rank], there = c->local[l->peer];
	l->ring = (struct ring_link){
		.tx = segment_ring(&c->segment, me, there),
		.rx = segment_ring(&c->segment, there, me),
		.line = &c->segment.line[there],
		.bytes = c->segment.ring_bytes,
		.bell = -1,
	};
	if (c->backend == GROUP_HYBRID &&
	    bell_reach(c->world->peers[c->members[l->peer]].pid, card->bell, &l->ring.bell, e) < 0)
		return -1;
	l->ops = &ring_ops;
	return 0;
}

int links_open(struct comm *c, const struct card *cards, struct err *e)
{
	c->links = calloc((size_t)c->size, sizeof *c->links);
	if (!c->links)
		return err_set(e, ERR_NOMEM, "no memory for links to %d ranks", c->size);
	for (int r = 0; r < c->size; r++) {
		struct link *l = &c->links[r];
		*l = (struct link){ .c = c, .peer = r, .out = { -1, -1 }, .in = { -1, -1 } };
		if (r == c->rank)
			continue;
		if (c->local[r] >= 0) {
			if (ring_open(l, &cards[r], e) < 0)
				return -1;
		} else {
			tcp_init(&l->tcp);
			l->ops = &tcp_ops;
		}
	}
	return 0;
}

void links_cut(struct comm *c)
{
	for (int r = 0; r < c->size; r++)
		if (c->links[r].ops)
			c->links[r].ops->cut(&c->links[r]);
}

void links_close(struct comm *c)
{
	for (int r = 0; c->links && r < c->size; r++)
		if (c->links[r].ops)
			c->links[r].ops->close(&c->links[r]);
	free(c->links);
	c->links = NULL;
}
