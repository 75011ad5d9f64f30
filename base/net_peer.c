/* In a file of its own: <linux/tcp.h> and <netinet/tcp.h> define the same names. */
#include "base/net.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
	PROBES_MAX = 3,        /* unanswered, into a closed window */
	STATE_ESTABLISHED = 1, /* TCP_ESTABLISHED of <netinet/tcp.h>, and of the kernel */
	CLOSED_SILENCE_S = 300 /* the kernel waits up to 120 s between two of these probes */
};

static bool is_gone(const struct tcp_info *i, double silence_s)
{
	double quiet = i->tcpi_last_ack_recv * 1e-3;
	if (quiet <= silence_s)
		return false;
	if (i->tcpi_snd_wnd)
		return i->tcpi_unacked > 0;
	return i->tcpi_probes >= PROBES_MAX || quiet > CLOSED_SILENCE_S;
}

int net_check_peer(int fd, double silence_s, struct err *e)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof info;
	bool known = !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) &&
		     size >= offsetof(struct tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
	if (known && is_gone(&info, silence_s))
		return err_set(e, ERR_NET, "the peer's host has not answered for %.3g s",
			       info.tcpi_last_ack_recv * 1e-3);
	return 0;
}

bool net_unacknowledged(int fd, uint64_t *bytes)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof info;
	int waiting;
	/* The kernel drops its queue when the peer resets the connection, so its state is read later. */
	if (ioctl(fd, SIOCOUTQ, &waiting) || waiting < 0 ||
	    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
	    info.tcpi_state != STATE_ESTABLISHED)
		return false;
	*bytes = (uint64_t)waiting;
	return true;
}

int net_probe_idle(int fd, double silence_s, struct err *e)
{
	int third = silence_s < 3 ? 1 : (int)(silence_s / 3);
	const struct {
		int level, name, value;
	} options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, third },
		{ IPPROTO_TCP, TCP_KEEPINTVL, third },
		{ IPPROTO_TCP, TCP_KEEPCNT, 2 },
	};
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			       sizeof(int)) < 0)
			return err_errno(e, ERR_NET, "cannot set keep-alive on a connection");
	return 0;
}
