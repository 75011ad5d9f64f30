#include "base/net.h"

#include "base/clock.h"
#include "base/net_addr.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int is_wildcard(const union net_addr *a)
{
	return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr)
					    : a->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

/* Returns a listening descriptor and sets the port in *a; or -1 with errno. */
static int listen_at(union net_addr *a)
{
	int s = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -1;
	socklen_t len = net_addr_len(a);
	int chosen = net_addr_port(a) !=
		     0; /* connections of its last listener may still be ending */
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
	if (net_addr_split(address, host, port) < 0 || *port)
		return err_set(e, ERR_NET, "address \"%s\": not an address without a port",
			       address);
	if (net_addr_resolve(host, "0", &found, e) < 0)
		return -1;
	int s = -1, rc = 0;
	for (const struct addrinfo *i = found; i && s < 0 && rc == 0; i = i->ai_next) {
		union net_addr a = net_addr_of(i->ai_addr);
		if (is_wildcard(&a))
			rc = err_set(e, ERR_NET,
				     "address %s: would listen on every network of this host; "
				     "name one address or interface",
				     address);
		else if ((s = listen_at(&a)) >= 0)
			net_addr_text(&a, 1, bound);
	}
	if (s < 0 && rc == 0)
		rc = err_errno(e, ERR_NET, "cannot listen on %s", address);
	freeaddrinfo(found);
	if (rc == 0)
		*fd = s;
	return rc;
}

/* Listens on an address that was resolved. text: for the error. */
static int listen_there(union net_addr *a, const char *text, int only_loopback, struct err *e)
{
	if (is_wildcard(a))
		return err_set(
			e, ERR_DENIED,
			"%s: would listen on every network of this host; name one address or "
			"interface",
			text);
	if (only_loopback && !net_addr_is_loopback(&a->any))
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
	if (n >= NET_ADDR_MAX || net_addr_split(named, host, port) < 0 || any == (*port != 0))
		return err_set(e, ERR_USAGE, "\"%.200s\" is no address with a port", address);
	if (any)
		strcpy(port, "0");
	if (!if_nametoindex(host))
		return 0;
	return net_local_address(host, NULL, at, e) || net_addr_split(at, host, named) < 0 ? -1 : 0;
}

int net_listen_at(const char *address, int only_loopback, int *fd, char bound[NET_ADDR_MAX],
		  struct err *e)
{
	char host[NET_ADDR_MAX], port[8];
	struct addrinfo *found;
	if (split_listen_address(address, host, port, e) ||
	    net_addr_resolve(host, port, &found, e) < 0)
		return -1;
	union net_addr a = net_addr_of(found->ai_addr);
	freeaddrinfo(found);
	int s = listen_there(&a, address, only_loopback, e);
	if (s < 0)
		return -1;
	net_addr_text(&a, 1, bound);
	*fd = s;
	return 0;
}

/* A connection to a free port of this host can connect to itself (simultaneous open). */
static int connected_to_itself(int s)
{
	union net_addr self, peer;
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
	if (net_addr_split(address, host, port) < 0 || !*port)
		return err_set(e, ERR_NET, "address \"%s\": not of the form host:port", address);
	return net_addr_resolve(host, port, found, e);
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
