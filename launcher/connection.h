/*
 * connection — the structs behind launcher/connections.h, for connection.c (one connection),
 * attached.c (one without a socket) and connections.c (all of them, the listener and the strangers)
 * only.
 */
#ifndef MUSTER_LAUNCHER_CONNECTION_H
#define MUSTER_LAUNCHER_CONNECTION_H

#include "launcher/connections.h"

#include <netinet/in.h>

/* How far a connection has come. */
enum standing {
	STANDING_SILENT,  /* a stranger that has not proved the secret */
	STANDING_GREETED, /* a stranger that has */
	STANDING_CLAIMED,
	STANDING_COUNT
};

struct connection {
	struct connections *owner;
	struct connection *next, **at; /* of the owner's list, while it is open */
	enum standing standing;        /* selects that list */
	bool attached;                 /* it has a carrier, and neither a channel nor a socket */
	struct connection_carrier carrier;
	struct channel *channel;
	uv_poll_t poll;
	int events; /* that the loop waits for; 0: none */
	int fd, rank;
	uint32_t generation;
	struct in6_addr from; /* an IPv4 address as a mapped one; zero: no network */
	double since;         /* when it was accepted */
	bool open, released;
	uv_work_t work; /* asking munged may take time, so a thread does it */
	struct vouch vouch;
	struct err refusal;
	bool working, failed;
};

struct connections {
	struct connections_options o;
	unsigned char secret[AUTH_SECRET_BYTES];
	uint32_t generation;
	double now;
	/* A list for each standing, the last that came to it first: whoever looks for strangers does not
	 * pass the claimed ones, of which there may be thousands. */
	struct connection *first[STANDING_COUNT];
	int n[STANDING_COUNT];
	struct connection *dropped; /* attached ones that are closed, until the next tick */
	int handles;                /* that the loop has not closed yet */
	bool closing, listening, troubled;
	uv_poll_t listener;
};

/* connection.c */

/* The address of the socket's other end. */
struct in6_addr launcher_connection_address(int fd);
/* A new connection, which is open and a stranger, joins the others. */
void launcher_connection_join(struct connection *c, struct connections *all);
/* Reads one chunk and delivers its messages; false: there was nothing to read, or it is closed. */
bool launcher_connection_read(struct connection *c);

/* attached.c */

int launcher_attached_send(struct connection *c, enum msg_type type, json_t *body, struct err *e);
int launcher_attached_send_packed(struct connection *c, const struct buf *packed, struct err *e);
void launcher_attached_close(struct connection *c);
/* Frees the closed ones. Not called from a callback of one of them. */
void launcher_attached_free(struct connections *all);

/* connections.c */

/* Puts the connection at the front of the list for its new standing. */
void launcher_connections_move(struct connection *c, enum standing to);
/* Takes it off its list. */
void launcher_connections_remove(struct connection *c);
/* Listens again after a pause: a closed connection's descriptor may serve another one. */
void launcher_connections_listen(struct connections *all);
/* Frees `all` if it is closing and the loop has closed its last handle. */
void launcher_connections_free(struct connections *all);

#endif
