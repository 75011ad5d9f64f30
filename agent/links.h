/*
 * links — how fast this rank's bytes get to other ranks over the network, window by window, for the
 * message links. The supervisor compares the links of all ranks.
 */
#ifndef MUSTER_AGENT_LINKS_H
#define MUSTER_AGENT_LINKS_H

#include "libcomm/comm.h"

#include <jansson.h>

enum { LINKS_SENT = 16 }; /* at most, in a message: the busiest ones */

struct links;

/* Begins a window. NULL: no memory. */
struct links *agent_links_open(double now);
void agent_links_close(struct links *l); /* takes NULL */
/* Ends a window and begins the next one. Returns the list for the message links, a new reference;
 * NULL: it would say the same as the last one, or there is no memory. */
json_t *agent_links_judge(struct links *l, double now, const struct comm_link *sums, int n);

#endif
