/* The links of a group: which transport leads to which rank. */
#include "libcomm/link/exchange.h"

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
	char who[160];
	if (c->backend == GROUP_HYBRID && comm_bell_reach(c->world->peers[c->members[l->peer]].pid,
							  card->bell, &l->ring.bell, e) < 0)
		return err_prefix(e, "%s", comm_group_rank_text(c, l->peer, who));
	l->handoff.tx = &l->ring.tx->handoff;
	l->handoff.rx = &l->ring.rx->handoff;
	l->ops = &comm_ring_ops;
	return 0;
}

static int agent_link_open(struct comm *c, int peer, const struct card *card, struct err *e)
{
	struct link *l = &c->links[peer];
	bool far = c->local[peer] < 0;
	*l = (struct link){ .c = c,
			    .peer = peer,
			    .lanes = far ? c->world->sockets : 1,
			    .out_tail = -1,
			    .in_tail = -1,
			    .handoff.oldest = -1 };
	l->lane = calloc((size_t)l->lanes, sizeof *l->lane);
	if (!l->lane)
		return err_set(e, ERR_NOMEM, "no memory for the link to rank %d", peer);
	for (int k = 0; k < l->lanes; k++)
		l->lane[k].out.at = l->lane[k].in.at = -1;
	if (peer == c->rank)
		return 0;
	if (!far)
		return ring_open(l, card, e);
	l->ops = &comm_tcp_ops;
	return comm_tcp_open(&l->tcp, l->lanes, e);
}

/* Room for the bell and every lane. */
static int open_polls(struct comm *c, struct err *e)
{
	size_t n = 1;
	for (int r = 0; r < c->size; r++)
		n += (size_t)c->links[r].lanes;
	c->polls = calloc(n, sizeof *c->polls);
	return c->polls ? 0 : err_set(e, ERR_NOMEM, "no memory to watch %zu connections", n);
}

int comm_links_open(struct comm *c, const struct card *cards, struct err *e)
{
	c->links = calloc((size_t)c->size, sizeof *c->links);
	if (!c->links)
		return err_set(e, ERR_NOMEM, "no memory for links to %d ranks", c->size);
	for (int r = 0; r < c->size; r++)
		if (agent_link_open(c, r, &cards[r], e) < 0)
			return -1;
	return c->backend == GROUP_SHM ? 0 : open_polls(c, e);
}

void comm_links_cut(struct comm *c)
{
	for (int r = 0; r < c->size; r++)
		if (c->links[r].ops)
			c->links[r].ops->cut(&c->links[r]);
}

void comm_links_close(struct comm *c)
{
	for (int r = 0; c->links && r < c->size; r++) {
		if (c->links[r].ops)
			c->links[r].ops->close(&c->links[r]);
		free(c->links[r].lane);
	}
	free(c->links);
	c->links = NULL;
}
