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

static int port_of(const union any_addr *a)
{
	return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

/* The text of an address: with its port, or without when port is false. */
static void addr_text(const union any_addr *a, int port, char out[NET_ADDR_MAX])
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
		snprintf(out + n, NET_ADDR_MAX - (size_t)n, ":%d", port_of(a));
}

/* Accepts ":1" to ":65535". getaddrinfo would let larger numbers wrap around. */
static int is_port(const char *text)
{
	size_t digits = strspn(text + 1, "0123456789");
	unsigned long port = strtoul(text + 1, NULL, 10);
	return text[0] == ':' && digits && digits <= 5 && !text[1 + digits] && port >= 1 &&
	       port <= 65535;
}

/* Splits "host", "[v6]", "host:port" or "[v6]:port"; port is "" when there is none. */
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

/* All addresses of a name, to be freed with freeaddrinfo. */
static int resolve(const char *host, const char *port, struct addrinfo **found, struct err *e)
{
	struct addrinfo want = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	int rc = getaddrinfo(host, port, &want, found);
	if (rc)
		return err_set(e, ERR_NET,
			       "host %s: %s; give an address that this machine can resolve", host,
			       gai_strerror(rc));
	return 0;
}

static union any_addr addr_of(const struct sockaddr *from)
{
	union any_addr a = { .room = { 0 } };
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
		union any_addr a = addr_of(best->ifa_addr);
		addr_text(&a, 0, out);
	}
	freeifaddrs(all);
	if (!best)
		return err_set(
			e, ERR_NET,
			"interface %s: %s; `ip -br address` lists the interfaces of this host",
			interface, seen ? "has no address" : "no such interface");
	return 0;
}

static int is_loopback(const struct sockaddr *a)
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
		if (!is_loopback(a->ai_addr))
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
	if (split_address(hint ? hint : "127.0.0.1", host, port) < 0)
		return err_set(e, ERR_NET, "address \"%s\": not a host name or an address", hint);
	struct addrinfo *found;
	if (resolve(host, NULL, &found, e) < 0)
		return -1;
	union any_addr a = addr_of(best_local(found)->ai_addr);
	freeaddrinfo(found);
	addr_text(&a, 0, out);
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

static int is_wildcard(const union any_addr *a)
{
	return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr)
					    : a->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

/* Returns a listening descriptor and sets the port in *a; or -1 with errno. */
static int listen_at(union any_addr *a)
{
	int s = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -1;
	socklen_t len = addr_len(a);
	int chosen = port_of(a) != 0; /* connections of its last listener may still be ending */
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &chosen, sizeof chosen);
	if (bind(s, &a->any, len) == 0 && listen(s, SOMAXCONN) == 0 &&
	    getsockname(s, &a->any, &len) == 0)
		return s;
	int error = errno;
	close(s);
	errno = error;
	return -1;
}

int net_listen(const char *address, int *fd, char bound[NET_ADDR_MAX], struct err *e)
{
	char host[NET_ADDR_MAX], port[8];
	struct addrinfo *found;
	if (split_address(address, host, port) < 0 || *port)
		return err_set(e, ERR_NET, "address \"%s\": not an address without a port",
			       address);
	if (resolve(host, "0", &found, e) < 0)
		return -1;
	int s = -1, rc = 0;
	for (const struct addrinfo *i = found; i && s < 0 && rc == 0; i = i->ai_next) {
		union any_addr a = addr_of(i->ai_addr);
		if (is_wildcard(&a))
			rc = err_set(e, ERR_NET,
				     "address %s: would listen on every network of this host; "
				     "name one address or interface",
				     address);
		else if ((s = listen_at(&a)) >= 0)
			addr_text(&a, 1, bound);
	}
	if (s < 0 && rc == 0)
		rc = err_errno(e, ERR_NET, "cannot listen on %s", address);
	freeaddrinfo(found);
	if (rc == 0)
		*fd = s;
	return rc;
}

/* Listens on an address that was resolved. text: for the error. */
static int listen_there(union any_addr *a, const char *text, int only_loopback, struct err *e)
{
	if (is_wildcard(a))
		return err_set(
			e, ERR_DENIED,
			"%s: would listen on every network of this host; name one address or "
			"interface",
			text);
	if (only_loopback && !is_loopback(&a->any))
		return err_set(e, ERR_DENIED, "%s: other machines can reach this address", text);
	int s = listen_at(a);
	if (s < 0)
		return err_errno(e, ERR_NET, "cannot listen on %s", text);
	return s;
}

/* Splits an address whose port is needed and may be 0. An interface becomes its address. */
static int split_listen_address(const char *address, char host[NET_ADDR_MAX], char port[8],
				struct err *e)
{
	char named[NET_ADDR_MAX], at[NET_ADDR_MAX];
	size_t n = strlen(address);
	int any = n > 2 && !strcmp(address + n - 2, ":0");
	snprintf(named, sizeof named, "%.*s", (int)(any ? n - 2 : n), address);
	if (n >= NET_ADDR_MAX || split_address(named, host, port) < 0 || any == (*port != 0))
		return err_set(e, ERR_USAGE, "\"%.200s\" is no address with a port", address);
	if (any)
		strcpy(port, "0");
	if (!if_nametoindex(host))
		return 0;
	return interface_address(host, at, e) || split_address(at, host, named) < 0 ? -1 : 0;
}

int net_listen_at(const char *address, int only_loopback, int *fd, char bound[NET_ADDR_MAX],
		  struct err *e)
{
	char host[NET_ADDR_MAX], port[8];
	struct addrinfo *found;
	if (split_listen_address(address, host, port, e) || resolve(host, port, &found, e) < 0)
		return -1;
	union any_addr a = addr_of(found->ai_addr);
	freeaddrinfo(found);
	int s = listen_there(&a, address, only_loopback, e);
	if (s < 0)
		return -1;
	addr_text(&a, 1, bound);
	*fd = s;
	return 0;
}

/* A connection to a free port of this host can connect to itself (simultaneous open). */
static int connected_to_itself(int s)
{
	union any_addr self, peer;
	socklen_t self_len = sizeof self, peer_len = sizeof peer;
	memset(&self, 0, sizeof self);
	memset(&peer, 0, sizeof peer);
	return getsockname(s, &self.any, &self_len) == 0 &&
	       getpeername(s, &peer.any, &peer_len) == 0 && self_len == peer_len &&
	       !memcmp(&self, &peer, self_len);
}

/* Tries one address once. Returns a descriptor, or -1 with errno. */
static int connect_once(const struct addrinfo *a, double until)
{
	int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -1;
	int rc = connect(s, a->ai_addr, a->ai_addrlen) < 0 ? errno : 0;
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

/* Tries each address in turn, each for an equal share of the time. On -1, errno is ECONNREFUSED if
 * one of them refused. */
static int connect_any(const struct addrinfo *found, double until)
{
	int s = -1, error = 0, left = 0;
	for (const struct addrinfo *a = found; a; a = a->ai_next)
		left++;
	for (const struct addrinfo *a = found; a && s < 0; a = a->ai_next, left--) {
		double now = clock_s();
		s = connect_once(a, now + (until - now) / left);
		if (s < 0 && error != ECONNREFUSED)
			error = errno;
	}
	errno = error;
	return s;
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

static int resolve_peer(const char *address, struct addrinfo **found, struct err *e)
{
	char host[NET_ADDR_MAX], port[8];
	if (split_address(address, host, port) < 0 || !*port)
		return err_set(e, ERR_NET, "address \"%s\": not of the form host:port", address);
	return resolve(host, port, found, e);
}

int net_connect(const char *address, double timeout_s, int *fd, struct err *e)
{
	struct addrinfo *found;
	if (resolve_peer(address, &found, e) < 0)
		return -1;
	double until = clock_s() + timeout_s;
	int s, error = 0;
	for (unsigned ms = 1; (s = connect_any(found, until)) < 0; ms = ms < 32 ? 2 * ms : 50) {
		int last = errno;
		/* A last attempt without any time left says less than the refusals before it. */
		if (error != ECONNREFUSED || last != ETIMEDOUT)
			error = last;
		if (last != ECONNREFUSED || clock_s() + ms * 1e-3 >= until)
			break;
		poll(NULL, 0, (int)ms);
	}
	freeaddrinfo(found);
	errno = error;
	if (s < 0)
		return err_errno(e, error == ETIMEDOUT ? ERR_TIMEOUT : ERR_NET,
				 "cannot connect to %s within %g s", address, timeout_s);
	if (finish_socket(s, e) < 0)
		return -1;
	*fd = s;
	return 0;
}

/* Returns a descriptor whose connection has begun, or -1 with errno. */
static int begin_connect(const struct addrinfo *a)
{
	int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -1;
	if ((connect(s, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS ||
	     errno == EINTR) &&
	    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) == 0)
		return s;
	int error = errno;
	close(s);
	errno = error;
	return -1;
}

int net_connect_start(const char *address, int *fd, struct err *e)
{
	struct addrinfo *found;
	if (resolve_peer(address, &found, e) < 0)
		return -1;
	int s = -1;
	for (const struct addrinfo *a = found; a && s < 0; a = a->ai_next)
		s = begin_connect(a);
	int error = errno;
	freeaddrinfo(found);
	errno = error;
	if (s < 0)
		return err_errno(e, ERR_NET, "cannot connect to %s", address);
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

int net_guard(int fd, double silence_s, struct err *e)
{
	int unanswered = (int)(silence_s * 1e3);
	if (net_probe_idle(fd, silence_s, e))
		return -1;
	return setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered) < 0
		       ? err_errno(e, ERR_NET, "cannot set the time-out of a connection")
		       : 0;
}

/* When descriptors are exhausted, the remedy differs. */
static int accept_failed(struct err *e)
{
	if (errno == EMFILE)
		return err_set(e, ERR_NOMEM,
			       "cannot accept a connection: this process has no descriptor left; "
			       "raise ulimit -n");
	if (errno == ENFILE)
		return err_set(e, ERR_NOMEM,
			       "cannot accept a connection: this host has no descriptor left; "
			       "raise sysctl "
			       "fs.file-max, or end other programs");
	return err_errno(e, ERR_NET, "cannot accept a connection");
}

int net_accept(int listener, int *fd, struct err *e)
{
	*fd = -1;
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (s < 0) {
		/* The last three: the peer or its network went away before the connection was
		 * accepted. */
		if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || errno == EPROTO ||
		    errno == ENETDOWN)
			return 0;
		return accept_failed(e);
	}
	if (finish_socket(s, NULL) < 0)
		return 0; /* the peer has closed it already */
	*fd = s;
	return 0;
}
