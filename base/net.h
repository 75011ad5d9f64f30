/*
 * net — TCP sockets for the control channel and for libcomm.
 *
 * Addresses are texts: "192.0.2.7:4711", "[2001:db8::1]:4711", "node7:4711" (all its addresses are
 * tried). Sockets have O_CLOEXEC and TCP_NODELAY; they are non-blocking where stated. Nothing here
 * listens on a wildcard address: the caller names the address to listen on.
 */
#ifndef MUSTER_BASE_NET_H
#define MUSTER_BASE_NET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_ADDR_MAX = 80 };

/* An address of this machine, without a port.
 *   - With an interface such as "eth0": the address of that interface, IPv4 before IPv6.
 *   - Otherwise (interface is "" or NULL): `hint` is resolved, and the first result that this
 *     machine has is used; loopback addresses come last. hint is a host name or a literal address;
 *     NULL stands for the loopback address.
 * An IPv6 address is in brackets. A link-local one includes its interface, "[fe80::1%eth0]"; other
 * hosts can use it only if their interface has the same name. */
int net_local_address(const char *interface, const char *hint, char out[NET_ADDR_MAX],
		      struct err *e);
/* ERR_NET when no loopback interface of this network namespace is up: processes of this host could
 * not connect to each other. */
int net_loopback_up(struct err *e);

/* Listens on the first of `address`'s addresses that this machine has, on a port that the system
 * chooses; writes the address with its port to `bound`. The descriptor is non-blocking. */
int net_listen(const char *address, int *fd, char bound[NET_ADDR_MAX], struct err *e);

/* As net_listen, on the port of "192.0.2.7:9400", "node7:9400" or, with a network interface of this
 * machine, "ib0:9400"; port 0: the system chooses. only_loopback: ERR_DENIED if other machines could
 * reach the address. ERR_USAGE: the text is no address with a port. */
int net_listen_at(const char *address, int only_loopback, int *fd, char bound[NET_ADDR_MAX],
		  struct err *e);

/* Connects within timeout_s seconds to the first address of the name that answers; the descriptor
 * is blocking. A refused connection is retried until then, because the peer may not listen
 * yet. */
int net_connect(const char *address, double timeout_s, int *fd, struct err *e);

/* Starts a connection without waiting; the descriptor is non-blocking. Once it is writable,
 * net_connect_done returns the result; the caller keeps the descriptor. */
int net_connect_start(const char *address, int *fd, struct err *e);
/* 0 connected; -1 refused or unreachable. */
int net_connect_done(int fd, const char *address, struct err *e);

/* Makes the kernel end a connection whose peer has not answered probes or data for silence_s seconds
 * (at least 1): the line is cut, or the host is off. Reads and writes then fail with ETIMEDOUT. */
int net_guard(int fd, double silence_s, struct err *e);

/* For a connection whose peer may be stopped (SIGSTOP) for minutes while its host lives. The kernel
 * of such a host still answers, but after a while it has no room for more data, and net_guard()
 * would then end the connection. The next two end it only if the host itself does not answer.
 *
 * net_probe_idle: the kernel probes a connection on which nothing is sent, three times in that time.
 * net_check_peer: to be called several times per second. ERR_NET: the host has not answered what was
 * sent to it for silence_s seconds. If it had no room for data, this is known only after three
 * unanswered probes, or 300 s, because the kernel waits up to 2 minutes between two of them. */
int net_probe_idle(int fd, double silence_s, struct err *e);
int net_check_peer(int fd, double silence_s, struct err *e);

/* *bytes: how many that were sent the peer's host has not acknowledged. False: the peer has closed the
 * connection, or it is lost, so that this is not known. */
bool net_unacknowledged(int fd, uint64_t *bytes);

/* Accepts one waiting connection; the descriptor is blocking. Returns 0 with *fd = -1 when none
 * waits. */
int net_accept(int listener, int *fd, struct err *e);

/* Whether the host of an address, of `len` bytes, is this host by itself: localhost, 127.x.x.x or
 * [::1]. No name is looked up. */
bool net_host_is_loopback(const char *host, size_t len);

#endif
