/*
 * connection — the structs behind launcher/connections.h, for connection.c (one
 * connection) and connections.c (all of them, the listener and the strangers) only.
 */
#ifndef MUSTER_LAUNCHER_CONNECTION_H
#define MUSTER_LAUNCHER_CONNECTION_H

#include "launcher/connections.h"

#include <netinet/in.h>

struct connection {
	struct connections *owner;
	struct connection *next, **at; /* of the owner's list, while it is open */
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
	struct connection *first; /* the last accepted one */
	int strangers;
	int handles; /* that the loop has not closed yet */
	bool closing, listening, troubled;
	uv_poll_t listener;
};

/* connection.c */

/* The address of the socket's other end. */
struct in6_addr launcher_connection_address(int fd);
/* Drops the connection and reports it to `closed`. */
void launcher_connection_lose(struct connection *c, const struct err *why);
/* Reads one chunk and delivers its messages; false: there was nothing to read, or it is closed. */
bool launcher_connection_read(struct connection *c);

/* connections.c */

/* Listens again after a pause: a closed connection's descriptor may serve another one. */
void launcher_connections_listen(struct connections *all);
/* Frees `all` if it is closing and the loop has closed its last handle. */
void launcher_connections_free(struct connections *all);

#endif
