/* net_addr — addresses of sockets as texts, and which of them are this machine's. For base/net*.c
 * only. net_addr.c also has net_local_address and net_loopback_up (base/net.h). */
#ifndef MUSTER_BASE_NET_ADDR_H
#define MUSTER_BASE_NET_ADDR_H

#include "base/net.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

union net_addr {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

union net_addr net_addr_of(const struct sockaddr *from);
socklen_t net_addr_len(const union net_addr *a);
int net_addr_port(const union net_addr *a);
/* The text of an address: with its port, or without when port is false. */
void net_addr_text(const union net_addr *a, int port, char out[NET_ADDR_MAX]);
int net_addr_is_loopback(const struct sockaddr *a);

/* Splits "host", "[v6]", "host:port" or "[v6]:port"; port is "" when there is none. -1: it is none
 * of these. */
int net_addr_split(const char *address, char host[NET_ADDR_MAX], char port[8]);
/* All addresses of a name, to be freed with freeaddrinfo. */
int net_addr_resolve(const char *host, const char *port, struct addrinfo **found, struct err *e);

#endif
