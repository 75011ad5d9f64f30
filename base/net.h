/*
 * net — TCP sockets for the control channel and for libcomm.
 *
 * Addresses are texts: "192.0.2.7:4711", "[2001:db8::1]:4711", "node7:4711" (all its addresses are
 * tried). Sockets are close-on-exec, non-blocking where said, with TCP_NODELAY. Nothing here
 * listens on a wildcard address: the caller names the address to listen on.
 */
#ifndef MUSTER_BASE_NET_H
#define MUSTER_BASE_NET_H

#include "base/err.h"

#include <stdint.h>

enum { NET_ADDR_MAX = 80 };

/* The address that this machine uses on `interface` ("eth0"; IPv4 before IPv6), or, when
 * interface is "" or NULL, of those that `hint` (a host name, a literal address, or NULL for the
 * loopback address) resolves to, the first that this machine has, loopback's last. Without a port;
 * IPv6 comes in brackets, and one that is valid on its link alone with its interface,
 * "[fe80::1%eth0]": it serves others only where their interface has the same name. */
int net_local_address(const char *interface, const char *hint, char out[NET_ADDR_MAX],
		      struct err *e);
/* ERR_NET when no loopback interface of this network namespace is up: nothing on this host could
 * connect to it. */
int net_loopback_up(struct err *e);

/* Listens on `address` (without a port; one is chosen), the first of its
 * addresses that this machine has; writes the full
 * address with its port to `bound`. The descriptor is non-blocking. */
int net_listen(const char *address, int *fd, char bound[NET_ADDR_MAX], struct err *e);

/* Connects within timeout_s seconds to the first address of the name that answers; the descriptor
 * is blocking. Retries a refused connection until then, as the peer may not listen yet. */
int net_connect(const char *address, double timeout_s, int *fd, struct err *e);

/* The same without waiting: a non-blocking descriptor whose connection is under
 * way. Once it is writable, net_connect_done says whether it is there; the
 * descriptor stays the caller's. */
int net_connect_start(const char *address, int *fd, struct err *e);
/* 0 connected; -1 refused or unreachable. */
int net_connect_done(int fd, const char *address, struct err *e);

/* Has the kernel end a connection from whose other end nothing has come for silence_s seconds (at
 * least one), although it was asked or sent data: a cut line, a host that is off. Reads and writes
 * then fail with ETIMEDOUT. */
int net_guard(int fd, double silence_s, struct err *e);

/* Accepts one waiting connection (blocking descriptor); *fd = -1 and 0 when none waits. */
int net_accept(int listener, int *fd, struct err *e);

#endif
