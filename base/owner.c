#include "base/owner.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

struct request {
	struct nlmsghdr header;
	struct inet_diag_req_v2 body;
};

struct answer {
	struct nlmsghdr header;
	union {
		struct nlmsgerr error;
		struct inet_diag_msg socket;
		char room[1024]; /* attributes follow the socket */
	};
};

enum { ALL_STATES = -1, ANSWER_WITHIN_S = 2 };

/* A mapped address belongs to an IPv4 socket at the peer. */
static void unmap(union address *a)
{
	if (a->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr))
		return;
	struct sockaddr_in mapped = { .sin_family = AF_INET, .sin_port = a->v6.sin6_port };
	memcpy(&mapped.sin_addr, a->v6.sin6_addr.s6_addr + 12, sizeof mapped.sin_addr);
	a->v4 = mapped;
}

static void put(__be16 *port, __be32 words[4], const union address *a)
{
	if (a->any.sa_family == AF_INET) {
		*port = a->v4.sin_port;
		memcpy(words, &a->v4.sin_addr, sizeof a->v4.sin_addr);
	} else {
		*port = a->v6.sin6_port;
		memcpy(words, &a->v6.sin6_addr, sizeof a->v6.sin6_addr);
	}
}

/* Finds the TCP socket of this host that is bound to `local` and connected to `remote`. 1: *found
 * is set. 0: there is none. -1: error. */
static int look_up(const union address *local, const union address *remote,
		   struct inet_diag_msg *found)
{
	struct request q = {
		.header = { .nlmsg_len = sizeof q,
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST },
		.body = { .sdiag_family = (__u8)local->any.sa_family,
			  .sdiag_protocol = IPPROTO_TCP,
			  .idiag_states = (__u32)ALL_STATES,
			  .id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } },
	};
	struct answer a;
	struct timeval patience = { .tv_sec = ANSWER_WITHIN_S };
	put(&q.body.id.idiag_sport, q.body.id.idiag_src, local);
	put(&q.body.id.idiag_dport, q.body.id.idiag_dst, remote);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	ssize_t n = send(fd, &q, sizeof q, 0) == (ssize_t)sizeof q ? recv(fd, &a, sizeof a, 0) : -1;
	close(fd);
	if (n >= (ssize_t)NLMSG_LENGTH(sizeof a.socket) &&
	    a.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
		*found = a.socket;
		return 1;
	}
	bool none = n >= (ssize_t)NLMSG_LENGTH(sizeof a.error) &&
		    a.header.nlmsg_type == NLMSG_ERROR && a.error.error == -ENOENT;
	return none ? 0 : -1;
}

static bool is_loopback(const union address *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static enum owner owner_of_uid(uid_t uid)
{
	return uid == geteuid() ? OWNER_SELF : OWNER_OTHER;
}

static enum owner owner_of_tcp(int fd)
{
	union address here, there;
	socklen_t here_len = sizeof here, there_len = sizeof there;
	struct inet_diag_msg peer;
	if (getsockname(fd, &here.any, &here_len) || getpeername(fd, &there.any, &there_len))
		return OWNER_OTHER; /* it has closed */
	unmap(&here);
	unmap(&there);
	int found = look_up(&there, &here, &peer);
	/* the peer has closed, and another process listens on its port */
	if (found == 1 && peer.idiag_state == TCP_LISTEN)
		return OWNER_OTHER;
	if (found == 1) /* a socket that no process holds has no inode */
		return peer.idiag_inode ? owner_of_uid(peer.idiag_uid) : OWNER_OTHER;
	return found == 0 && is_loopback(&there) && owner_known_for_tcp() ? OWNER_OTHER
									  : OWNER_UNKNOWN;
}

enum owner owner_of_peer(int fd)
{
	int domain = 0;
	struct ucred who;
	socklen_t domain_len = sizeof domain, who_len = sizeof who;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len))
		return OWNER_UNKNOWN;
	if (domain == AF_UNIX)
		return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_len)
			       ? OWNER_UNKNOWN
			       : owner_of_uid(who.uid);
	return domain == AF_INET || domain == AF_INET6 ? owner_of_tcp(fd) : OWNER_UNKNOWN;
}

/* A kernel without sock_diag for TCP reports that there is no such socket, so this looks up one
 * that exists. */
bool owner_known_for_tcp(void)
{
	union address self = { .v4 = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
	const union address nobody = { .v4 = { .sin_family = AF_INET } };
	socklen_t len = sizeof self.v4;
	struct inet_diag_msg found;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool known = fd >= 0 && !bind(fd, &self.any, sizeof self.v4) && !listen(fd, 1) &&
		     !getsockname(fd, &self.any, &len) && look_up(&self, &nobody, &found) == 1;
	if (fd >= 0)
		close(fd);
	return known;
}
