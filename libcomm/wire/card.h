/*
 * card — what a rank publishes through the bootstrap: how the first rank of its host, and the
 * neighbours of that in the tree over the hosts, reach it.
 */
#ifndef MUSTER_LIBCOMM_WIRE_CARD_H
#define MUSTER_LIBCOMM_WIRE_CARD_H

#include "libcomm/world.h"

enum { CARD_HOST = 257 };

struct wire_card {
	pid_t pid;
	int directory; /* its directory (directory.h) as a descriptor; -1: it offers none */
	unsigned char nonce[SEG_NONCE]; /* of the directory */
	int wakeup;                     /* the end of its pipe that others write to */
	unsigned char secret[SECRET_BYTES];
	char address[NET_ADDR_MAX]; /* "-": it does not listen */
	/* [network] settings that must be equal on all ranks */
	int sockets, algorithm, force_tcp, integrity;
	char host[CARD_HOST];
};

int comm_card_put(const struct comm_bootstrap *boot, const struct wire_card *card, struct err *e);
/* Fetches the card of a rank. ERR_USAGE: its settings are not those of `w`. */
int comm_card_get(const struct comm_bootstrap *boot, const struct world *w, int rank,
		  struct wire_card *card, struct err *e);

#endif
