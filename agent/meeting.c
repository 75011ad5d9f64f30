#include "agent/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A socket for ports of all addresses: of IPv6 and IPv4 if the host has both. Sets *any and *len to its
 * wildcard address with port 0. -1: there is none, and errno says why. */
static int open_socket(struct sockaddr_storage *any, socklen_t *len)
{
	int no = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memset(any, 0, sizeof *any); /* the wildcard of both families */
	any->ss_family = AF_INET6;
	*len = sizeof(struct sockaddr_in6);
	if (fd >= 0 && !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) &&
	    !bind(fd, (struct sockaddr *)any, *len))
		return fd;
	if (fd >= 0)
		close(fd);
	any->ss_family = AF_INET;
	*len = sizeof(struct sockaddr_in);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)any, *len)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Binds a free port of all addresses. */
static int hold_port(int *fd, int *port, struct err *e)
{
	struct sockaddr_storage at;
	socklen_t len;
	int yes = 1;
	*fd = open_socket(&at, &len);
	/* The option must come after bind(2) chose a port: with it, the kernel may choose one that
	 * another socket holds in the same way. */
	if (*fd < 0 || setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
	    getsockname(*fd, (struct sockaddr *)&at, &len))
		return err_errno(e, ERR_NET,
				 "no free port for the tasks to meet; see `ulimit -n` and "
				 "net.ipv4.ip_local_port_range");
	*port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
					       : ((struct sockaddr_in *)&at)->sin_port);
	return 0;
}

static int choose_address(const struct control *c, bool one_host, const char *interface,
			  struct meeting *m, struct err *e)
{
	if (one_host)
		return net_local_address(NULL, NULL, m->address, e);
	if (*interface)
		return net_local_address(interface, NULL, m->address, e);
	snprintf(m->address, sizeof m->address, "%s", agent_control_local_address(c));
	return 0;
}

/* The object that rank 0 publishes; NULL with an error. */
static json_t *prepare(const struct control *c, bool one_host, const char *interface,
		       struct meeting *m, struct err *e)
{
	if (choose_address(c, one_host, interface, m, e))
		return NULL;
	for (int i = 0; i < MEETING_PORTS; i++)
		if (hold_port(&m->held[i], &m->ports[i], e))
			return NULL;
	json_t *o = json_pack("{s:s, s:[i,i]}", "address", m->address, "ports", m->ports[0],
			      m->ports[1]);
	if (!o)
		err_set(e, ERR_NOMEM, "no memory for the meeting point of the tasks");
	return o;
}

static int read_meeting(const json_t *all, struct meeting *m, struct err *e)
{
	const char *address;
	int first, second;
	json_t *o = json_array_get(all, 0);
	if (json_unpack(o, "{s:s, s:[i,i]}", "address", &address, "ports", &first, &second) ||
	    strlen(address) >= sizeof m->address || first < 1 || first > 65535 || second < 1 ||
	    second > 65535)
		return err_set(e, ERR_PROTO, "message world_endpoints: no meeting point");
	snprintf(m->address, sizeof m->address, "%s", address);
	m->ports[0] = first;
	m->ports[1] = second;
	return 0;
}

int agent_meeting_open(struct control *c, int rank, bool one_host, const char *interface,
		       struct meeting *out, struct err *e)
{
	struct meeting m = MEETING_INIT;
	const int first = 0;
	json_t *mine = rank == 0 ? prepare(c, one_host, interface, &m, e) : NULL, *all = NULL;
	int rc = rank == 0 && !mine ? -1 : agent_control_exchange(c, mine, &first, 1, &all, e);
	if (!rc)
		rc = read_meeting(all, &m, e);
	json_decref(mine);
	json_decref(all);
	if (rc)
		agent_meeting_close(&m);
	else
		*out = m;
	return rc;
}

void agent_meeting_close(struct meeting *m)
{
	for (int i = 0; i < MEETING_PORTS; i++) {
		if (m->held[i] >= 0)
			close(m->held[i]);
		m->held[i] = -1;
	}
}
