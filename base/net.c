#include "base/net.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union any_addr {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

static socklen_t addr_len(const union any_addr *a)
{
	return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

/* The text of an address: with its port, or without when port is false. */
static void addr_text(const union any_addr *a, int port, char out[NET_ADDR_MAX])
{
	char host[INET6_ADDRSTRLEN] = "";
	int v6 = a->any.sa_family == AF_INET6;
	inet_ntop(a->any.sa_family, v6 ? (const void *)&a->v6.sin6_addr : (const void *)&a->v4.sin_addr,
		  host, sizeof host);
	int n = snprintf(out, NET_ADDR_MAX, v6 ? "[%s]" : "%s", host);
	if (port)
		snprintf(out + n, NET_ADDR_MAX - (size_t)n, ":%d",
			 ntohs(v6 ? a->v6.sin6_port : a->v4.sin_port));
}

/* ":1" to ":65535"; the system's own reading of larger ones wraps. */
static int is_port(const char *text)
{
	size_t digits = strspn(text + 1, "0123456789");
	unsigned long port = strtoul(text + 1, NULL, 10);
	return text[0] == ':' && digits && digits <= 5 && !text[1 + digits] && port >= 1 && port <= 65535;
}

/* Takes "host", "[v6]", "host:port", "[v6]:port" apart; port is "" when there is none. */
static int split_address(const char *address, char host[NET_ADDR_MAX], char port[8])
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

static int resolve(const char *host, const char *port, union any_addr *out, struct err *e)
{
	struct addrinfo want = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	int rc = getaddrinfo(host, port, &want, &found);
	if (rc)
		return err_set(e, ERR_NET, "host %s: %s; give an address that this machine can resolve",
			       host, gai_strerror(rc));
	memcpy(&out->room, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

/* How well an interface's address serves: 2 IPv4, 1 IPv6, 0 not at all. */
static int addr_rank(const struct sockaddr *a)
{
	if (a && a->sa_family == AF_INET)
		return 2;
	if (!a || a->sa_family != AF_INET6)
		return 0;
	/* A link-local address means nothing without its scope. */
	return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
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
		union any_addr a = { .room = { 0 } };
		memcpy(&a, best->ifa_addr, best->ifa_addr->sa_family == AF_INET6 ? sizeof a.v6 : sizeof a.v4);
		addr_text(&a, 0, out);
	}
	freeifaddrs(all);
	if (!best)
		return err_set(e, ERR_NET, "interface %s: %s; `ip -br address` lists the interfaces of this host",
			       interface, seen ? "has no address" : "no such interface");
	return 0;
}

int net_local_address(const char *interface, const char *hint, char out[NET_ADDR_MAX], struct err *e)
{
	if (interface && *interface)
		return interface_address(interface, out, e);
	char host[NET_ADDR_MAX], port[8];
	if (split_address(hint ? hint : "127.0.0.1", host, port) < 0)
		return err_set(e, ERR_NET, "address \"%s\": not a host name or an address", hint);
	union any_addr a;
	if (resolve(host, NULL, &a, e) < 0)
		return -1;
	addr_text(&a, 0, out);
	return 0;
}

static int is_wildcard(const union any_addr *a)
{
	return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr)
					    : a->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

int net_listen(const char *address, int *fd, char bound[NET_ADDR_MAX], struct err *e)
{
	char host[NET_ADDR_MAX], port[8];
	union any_addr a;
	if (split_address(address, host, port) < 0 || *port)
		return err_set(e, ERR_NET, "address \"%s\": not an address without a port", address);
	if (resolve(host, "0", &a, e) < 0)
		return -1;
	if (is_wildcard(&a))
		return err_set(e, ERR_NET, "address %s: would listen on every network of this host; "
			       "name one address or interface", address);
	int s = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return err_errno(e, ERR_NET, "cannot make a socket");
	socklen_t len = addr_len(&a);
	if (bind(s, &a.any, len) < 0 || listen(s, SOMAXCONN) < 0 || getsockname(s, &a.any, &len) < 0) {
		err_errno(e, ERR_NET, "cannot listen on %s", address);
		close(s);
		return -1;
	}
	addr_text(&a, 1, bound);
	*fd = s;
	return 0;
}

/* A free port of this host can connect to itself (simultaneous open). */
static int connected_to_itself(int s)
{
	union any_addr self, peer;
	socklen_t self_len = sizeof self, peer_len = sizeof peer;
	memset(&self, 0, sizeof self);
	memset(&peer, 0, sizeof peer);
	return getsockname(s, &self.any, &self_len) == 0 && getpeername(s, &peer.any, &peer_len) == 0 &&
	       self_len == peer_len && !memcmp(&self, &peer, self_len);
}

/* One attempt: a descriptor, or -1 with errno. */
static int connect_once(const union any_addr *a, double until)
{
	int s = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -1;
	int rc = connect(s, &a->any, addr_len(a)) < 0 ? errno : 0;
	while (rc == EINPROGRESS || rc == EINTR) {
		double left = until - clock_s();
		struct pollfd p = { .fd = s, .events = POLLOUT };
		int ready = left > 0 ? poll(&p, 1, (int)(left * 1e3) + 1) : 0;
		if (ready == 0)
			rc = ETIMEDOUT;
		else if (ready < 0)
			rc = errno;
		else if (getsockopt(s, SOL_SOCKET, SO_ERROR, &rc, &(socklen_t){ sizeof rc }) < 0)
			rc = errno;
	}
	if (!rc && connected_to_itself(s))
		rc = ECONNREFUSED;
	if (!rc)
		return s;
	close(s);
	errno = rc;
	return -1;
}

static int finish_socket(int s, struct err *e)
{
	int flags = fcntl(s, F_GETFL);
	if (flags < 0 || fcntl(s, F_SETFL, flags & ~O_NONBLOCK) < 0 ||
	    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) < 0) {
		err_errno(e, ERR_NET, "cannot set up a connection");
		close(s);
		return -1;
	}
	return 0;
}

static int resolve_peer(const char *address, union any_addr *a, struct err *e)
{
	char host[NET_ADDR_MAX], port[8];
	if (split_address(address, host, port) < 0 || !*port)
		return err_set(e, ERR_NET, "address \"%s\": not of the form host:port", address);
	return resolve(host, port, a, e);
}

int net_connect(const char *address, double timeout_s, int *fd, struct err *e)
{
	union any_addr a;
	if (resolve_peer(address, &a, e) < 0)
		return -1;
	double until = clock_s() + timeout_s;
	int s;
	for (unsigned ms = 1; (s = connect_once(&a, until)) < 0; ms = ms < 32 ? 2 * ms : 50) {
		if (errno != ECONNREFUSED || clock_s() + ms * 1e-3 >= until)
			return err_errno(e, errno == ETIMEDOUT ? ERR_TIMEOUT : ERR_NET,
					 "cannot connect to %s within %g s", address, timeout_s);
		poll(NULL, 0, (int)ms);
	}
	if (finish_socket(s, e) < 0)
		return -1;
	*fd = s;
	return 0;
}

int net_connect_start(const char *address, int *fd, struct err *e)
{
	union any_addr a;
	if (resolve_peer(address, &a, e) < 0)
		return -1;
	int s = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return err_errno(e, ERR_NET, "cannot make a socket");
	if ((connect(s, &a.any, addr_len(&a)) < 0 && errno != EINPROGRESS && errno != EINTR) ||
	    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) < 0) {
		err_errno(e, ERR_NET, "cannot connect to %s", address);
		close(s);
		return -1;
	}
	*fd = s;
	return 0;
}

int net_connect_done(int fd, const char *address, struct err *e)
{
	int rc;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &(socklen_t){ sizeof rc }) < 0)
		rc = errno;
	if (!rc && connected_to_itself(fd))
		rc = ECONNREFUSED;
	errno = rc;
	return rc ? err_errno(e, ERR_NET, "cannot connect to %s", address) : 0;
}

/* The remedy differs where descriptors are what lacks. */
static int accept_failed(struct err *e)
{
	if (errno == EMFILE)
		return err_set(e, ERR_NOMEM, "cannot accept a connection: this process has no descriptor left; raise ulimit -n");
	if (errno == ENFILE)
		return err_set(e, ERR_NOMEM, "cannot accept a connection: this host has no descriptor left; raise sysctl "
			       "fs.file-max, or end other programs");
	return err_errno(e, ERR_NET, "cannot accept a connection");
}

int net_accept(int listener, int *fd, struct err *e)
{
	*fd = -1;
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (s < 0) {
		/* The last three: the visitor left, or its network did, before it was let in. */
		if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || errno == EPROTO ||
		    errno == ENETDOWN)
			return 0;
		return accept_failed(e);
	}
	if (finish_socket(s, NULL) < 0)
		return 0; /* it is gone already */
	*fd = s;
	return 0;
}
