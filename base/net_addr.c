#include "base/net_addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

socklen_t net_addr_len(const union net_addr *a)
{
	return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

int net_addr_port(const union net_addr *a)
{
	return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

void net_addr_text(const union net_addr *a, int port, char out[NET_ADDR_MAX])
{
	char host[INET6_ADDRSTRLEN] = "";
	int v6 = a->any.sa_family == AF_INET6;
	inet_ntop(a->any.sa_family,
		  v6 ? (const void *)&a->v6.sin6_addr : (const void *)&a->v4.sin_addr, host,
		  sizeof host);
	char scope[IF_NAMESIZE + 1] = "";
	/* A link-local address means nothing without its interface. */
	if (v6 && a->v6.sin6_scope_id && if_indextoname(a->v6.sin6_scope_id, scope + 1))
		scope[0] = '%';
	int n = snprintf(out, NET_ADDR_MAX, v6 ? "[%s%s]" : "%s%s", host, scope);
	if (port)
		snprintf(out + n, NET_ADDR_MAX - (size_t)n, ":%d", net_addr_port(a));
}

/* Accepts ":1" to ":65535". getaddrinfo would let larger numbers wrap around. */
static int is_port(const char *text)
{
	size_t digits = strspn(text + 1, "0123456789");
	unsigned long port = strtoul(text + 1, NULL, 10);
	return text[0] == ':' && digits && digits <= 5 && !text[1 + digits] && port >= 1 &&
	       port <= 65535;
}

int net_addr_split(const char *address, char host[NET_ADDR_MAX], char port[8])
{
	const char *end, *rest;
	if (address[0] == '[') {
		address++;
		end = strchr(address, ']');
		if (!end)
			return -1;
		rest = end + 1;
	} else {
		end = strchr(address, ':');
		if (end && strchr(end + 1, ':')) /* a bare IPv6 address */
			end = NULL;
		if (!end)
			end = address + strlen(address);
		rest = end;
	}
	size_t n = (size_t)(end - address);
	if (n == 0 || n >= NET_ADDR_MAX || (*rest && !is_port(rest)))
		return -1;
	memcpy(host, address, n);
	host[n] = '\0';
	snprintf(port, 8, "%s", *rest ? rest + 1 : "");
	return 0;
}

int net_addr_resolve(const char *host, const char *port, struct addrinfo **found, struct err *e)
{
	struct addrinfo want = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	int rc = getaddrinfo(host, port, &want, found);
	if (rc)
		return err_set(e, ERR_NET,
			       "host %s: %s; give an address that this machine can resolve", host,
			       gai_strerror(rc));
	return 0;
}

union net_addr net_addr_of(const struct sockaddr *from)
{
	union net_addr a = { .room = { 0 } };
	memcpy(&a, from, from->sa_family == AF_INET6 ? sizeof a.v6 : sizeof a.v4);
	return a;
}

/* How useful an interface's address is: 3 IPv4, 2 IPv6, 1 link-local IPv6, 0 none of these. */
static int addr_rank(const struct sockaddr *a)
{
	if (a && a->sa_family == AF_INET)
		return 3;
	if (!a || a->sa_family != AF_INET6)
		return 0;
	return IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr)
		       ? 1
		       : 2;
}

static int interface_address(const char *interface, char out[NET_ADDR_MAX], struct err *e)
{
	struct ifaddrs *all;
	if (getifaddrs(&all) < 0)
		return err_errno(e, ERR_NET, "cannot list the network interfaces");
	const struct ifaddrs *best = NULL;
	int seen = 0;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, interface))
			continue;
		seen = 1;
		if (addr_rank(i->ifa_addr) > (best ? addr_rank(best->ifa_addr) : 0))
			best = i;
	}
	if (best) {
		union net_addr a = net_addr_of(best->ifa_addr);
		net_addr_text(&a, 0, out);
	}
	freeifaddrs(all);
	if (!best)
		return err_set(
			e, ERR_NET,
			"interface %s: %s; `ip -br address` lists the interfaces of this host",
			interface, seen ? "has no address" : "no such interface");
	return 0;
}

int net_addr_is_loopback(const struct sockaddr *a)
{
	const struct sockaddr_in *v4 = (const void *)a;
	const struct sockaddr_in6 *v6 = (const void *)a;
	return a->sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)
					: ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* Whether this machine has the address. */
static int is_ours(const struct addrinfo *a)
{
	int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc = s < 0 ? -1 : bind(s, a->ai_addr, a->ai_addrlen);
	if (s >= 0)
		close(s);
	return rc == 0;
}

/* Chooses among a name's addresses: the first of this machine that other hosts can reach; otherwise
 * one of this machine; otherwise any. */
static const struct addrinfo *best_local(const struct addrinfo *found)
{
	const struct addrinfo *best = NULL;
	for (const struct addrinfo *a = found; a; a = a->ai_next) {
		if (!is_ours(a))
			continue;
		if (!net_addr_is_loopback(a->ai_addr))
			return a;
		if (!best)
			best = a;
	}
	return best ? best : found;
}

int net_local_address(const char *interface, const char *hint, char out[NET_ADDR_MAX],
		      struct err *e)
{
	if (interface && *interface)
		return interface_address(interface, out, e);
	char host[NET_ADDR_MAX], port[8];
	if (net_addr_split(hint ? hint : "127.0.0.1", host, port) < 0)
		return err_set(e, ERR_NET, "address \"%s\": not a host name or an address", hint);
	struct addrinfo *found;
	if (net_addr_resolve(host, NULL, &found, e) < 0)
		return -1;
	union net_addr a = net_addr_of(best_local(found)->ai_addr);
	freeaddrinfo(found);
	net_addr_text(&a, 0, out);
	return 0;
}

int net_loopback_up(struct err *e)
{
	struct ifaddrs *all;
	int up = 0;
	if (getifaddrs(&all) < 0)
		return err_errno(e, ERR_NET, "cannot list the network interfaces");
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		up |= (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP);
	freeifaddrs(all);
	return up ? 0
		  : err_set(e, ERR_NET,
			    "the loopback interface is down, and the processes of this host "
			    "connect through it; bring it up: "
			    "ip link set lo up (as root; in a container or network namespace, "
			    "inside it)");
}
