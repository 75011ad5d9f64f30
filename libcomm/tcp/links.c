/* links: what the kernel knows about the connections to other ranks (TCP_INFO of Linux). */
#include "libcomm/comm.h"
#include "libcomm/group.h"
#include "libcomm/p2p/exchange.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>

/* Adds a connection. */
static void add_lane(int fd, struct comm_link *out)
{
	struct tcp_info i = { .tcpi_state = 0 };
	socklen_t size = sizeof i;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &size) ||
	    size < offsetof(struct tcp_info, tcpi_sndbuf_limited) + sizeof i.tcpi_sndbuf_limited)
		return; /* an older kernel */
	out->bytes += (double)i.tcpi_bytes_acked;
	out->busy_s += 1e-6 * ((double)i.tcpi_busy_time - (double)i.tcpi_rwnd_limited -
			       (double)i.tcpi_sndbuf_limited);
	out->segments += (double)i.tcpi_data_segs_out;
	out->resent += (double)i.tcpi_total_retrans;
}

/* Under the world's lock. */
static bool read_endpoint(const struct comm *c, const struct endpoint *ep, struct comm_link *out)
{
	int lanes = 0;
	*out = (struct comm_link){ .peer = c->members[ep->peer] };
	for (int k = 0; ep->ops == &comm_tcp_transport && k < ep->tcp.lanes; k++) {
		const struct tcp_lane *t = &ep->tcp.lane[k];
		if (t->fd < 0)
			continue;
		add_lane(t->fd, out);
		lanes++;
	}
	if (lanes)
		out->busy_s /= lanes; /* they send at the same time */
	snprintf(out->group, sizeof out->group, "%s", c->name);
	return lanes > 0;
}

int comm_links(struct comm *c, struct comm_link *out, int most)
{
	struct world *w = c->world;
	int n = 0;
	pthread_mutex_lock(&w->lock);
	for (const struct comm *g = w->groups; g; g = g->next)
		for (int r = 0; g->endpoints && r < g->size && n < most; r++)
			n += read_endpoint(g, &g->endpoints[r], &out[n]);
	pthread_mutex_unlock(&w->lock);
	return n;
}
