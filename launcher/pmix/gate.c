#include "launcher/pmix/gate.h"

#include "base/owner.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_bool closed;

bool local_gate_close_to_others(void)
{
	atomic_store(&closed, owner_known_for_tcp());
	return atomic_load(&closed);
}

/* Replaces libc's accept() in this program, for libpmix; gate.h explains why. libpmix handles
 * ECONNABORTED like a client that has already closed. */
int accept(int listener, struct sockaddr *restrict from, socklen_t *restrict len)
{
	int fd = accept4(listener, from, len, 0);
	if (fd < 0 || !atomic_load(&closed) || owner_of_peer(fd) == OWNER_SELF)
		return fd;
	close(fd);
	errno = ECONNABORTED;
	return -1;
}
