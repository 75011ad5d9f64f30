/*
 * links — names a slow link between two ranks.
 *
 * In a collective all ranks wait for the slowest link. Each rank reports how fast its bytes get to
 * other ranks over the network (message links). In windows of [health] slow_window seconds the
 * links of one group of ranks ("dp", "pp" …), and of ranks on one node or on two, are compared:
 *
 *     slow     bytes were on their way for at least LINK_BUSY of the window, and
 *              rate × LINK_FACTOR < the lower median of the rates of the other links
 *
 * Both must hold: a link that carries little is slow without harm, and one that is busy may be as
 * fast as the others. A link that is slow in LINK_WINDOWS windows in a row is printed and recorded,
 * once, and again when it has been as fast as the others for as many windows. A run with a single
 * link has none to compare it with.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_LINKS_H
#define MUSTER_LAUNCHER_SUPERVISE_LINKS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

enum { LINK_WINDOWS = 3, LINKS_MOST = 16 /* of a rank */, LINK_FACTOR = 3 };

#define LINK_BUSY 0.3

struct link_state {
	char group[32];
	int rank, peer;
	double share, rate, resent;
	double reference; /* of the last window; 0: there is no other link */
	int slow, fast;   /* windows in a row */
	bool known, reported;
};

struct links_state {
	int world;
	struct link_state *links; /* [world][LINKS_MOST]; NULL: nothing is kept */
	double begun;             /* time of the window; 0: none */
};

struct supervisor;
struct msg_links;

/* A generation has started. */
void supervise_links_reset(struct supervisor *s);
void supervise_links_close(struct supervisor *s);
/* ERR_PROTO: the list is malformed. */
int supervise_links_note(struct supervisor *s, int rank, const struct msg_links *m, struct err *e);
void supervise_links_tick(struct supervisor *s);

#endif
