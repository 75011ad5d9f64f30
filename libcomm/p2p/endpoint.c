/* The endpoints of a group: which transport leads to which rank. */
#include "libcomm/p2p/exchange.h"

#include <stdlib.h>

static int open_ring(struct endpoint *ep, const struct card *card, struct err *e)
{
	struct comm *c = ep->c;
	int me = c->local[c->rank], there = c->local[ep->peer];
	ep->ring = (struct ring_endpoint){
		.tx = segment_ring(&c->segment, me, there),
		.rx = segment_ring(&c->segment, there, me),
		.line = &c->segment.line[there],
		.bytes = c->segment.ring_bytes,
		.wakeup = -1,
	};
	char who[160];
	if (c->backend == GROUP_HYBRID &&
	    comm_wakeup_open_remote(c->world->peers[c->members[ep->peer]].pid, card->wakeup,
				    &ep->ring.wakeup, e))
		return err_prefix(e, "%s", comm_group_rank_text(c, ep->peer, who));
	ep->rendezvous.tx = &ep->ring.tx->rendezvous;
	ep->rendezvous.rx = &ep->ring.rx->rendezvous;
	ep->ops = &comm_ring_transport;
	return 0;
}

static int open_endpoint(struct comm *c, int peer, const struct card *card, struct err *e)
{
	struct endpoint *ep = &c->endpoints[peer];
	bool far = c->local[peer] < 0;
	*ep = (struct endpoint){ .c = c,
				 .peer = peer,
				 .lanes = far ? c->world->sockets : 1,
				 .out_tail = -1,
				 .in_tail = -1,
				 .rendezvous.oldest = -1 };
	ep->lane = calloc((size_t)ep->lanes, sizeof *ep->lane);
	if (!ep->lane)
		return err_set(e, ERR_NOMEM, "no memory for the endpoint to rank %d", peer);
	for (int k = 0; k < ep->lanes; k++)
		ep->lane[k].out.at = ep->lane[k].in.at = -1;
	if (peer == c->rank)
		return 0;
	if (!far)
		return open_ring(ep, card, e);
	ep->ops = &comm_tcp_transport;
	return comm_tcp_open(&ep->tcp, ep->lanes, e);
}

/* Allocates poll entries for the wake-up pipe and every lane. */
static int open_polls(struct comm *c, struct err *e)
{
	size_t n = 1;
	for (int r = 0; r < c->size; r++)
		n += (size_t)c->endpoints[r].lanes;
	c->exchange.polls = calloc(n, sizeof *c->exchange.polls);
	return c->exchange.polls ? 0
				 : err_set(e, ERR_NOMEM, "no memory to watch %zu connections", n);
}

int comm_endpoints_open(struct comm *c, const struct card *cards, struct err *e)
{
	c->endpoints = calloc((size_t)c->size, sizeof *c->endpoints);
	if (!c->endpoints)
		return err_set(e, ERR_NOMEM, "no memory for endpoints to %d ranks", c->size);
	for (int r = 0; r < c->size; r++)
		if (open_endpoint(c, r, &cards[r], e))
			return -1;
	return c->backend == GROUP_SHM ? 0 : open_polls(c, e);
}

void comm_endpoints_interrupt(struct comm *c)
{
	for (int r = 0; r < c->size; r++)
		if (c->endpoints[r].ops)
			c->endpoints[r].ops->interrupt(&c->endpoints[r]);
}

void comm_endpoints_close(struct comm *c)
{
	for (int r = 0; c->endpoints && r < c->size; r++) {
		if (c->endpoints[r].ops)
			c->endpoints[r].ops->close(&c->endpoints[r]);
		free(c->endpoints[r].lane);
	}
	free(c->endpoints);
	c->endpoints = NULL;
}
