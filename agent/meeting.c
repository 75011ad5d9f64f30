#include "agent/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Binds a free port of all addresses. */
static int hold_port(int *fd, int *port, struct err *e)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
	socklen_t len = sizeof any;
	int yes = 1;
	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return err_errno(e, ERR_NOMEM, "cannot create a socket; raise `ulimit -n`");
	/* The option must come after bind(2) chose a port: with it, the kernel may choose one that
	 * another socket holds in the same way. */
	if (bind(*fd, (struct sockaddr *)&any, sizeof any) ||
	    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
	    getsockname(*fd, (struct sockaddr *)&any, &len))
		return err_errno(e, ERR_NET,
				 "no free port for the tasks to meet; see "
				 "net.ipv4.ip_local_port_range");
	*port = ntohs(any.sin_port);
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
	json_t *mine = rank == 0 ? prepare(c, one_host, interface, &m, e) : NULL, *all = NULL;
	int rc = rank == 0 && !mine ? -1 : agent_control_exchange(c, mine, 1, &all, e);
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
