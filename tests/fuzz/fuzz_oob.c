/* Any bytes on a rank's out-of-band connection: invalid bytes end the connection, and every text
 * that is kept is printable. */
#include "libcomm/tcp/oob.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peer peers[4] = { 0 };
	struct oob_peer peers_oob[4] = { 0 };
	struct world w = { .rank = 2,
			   .size = 4,
			   .peers = peers,
			   .oob_peers = peers_oob,
			   .listener = -1,
			   .silence_s = 60,
			   .lock = PTHREAD_MUTEX_INITIALIZER,
			   .peers_changed = PTHREAD_COND_INITIALIZER };
	int fd[2];
	struct oob *oob = comm_oob_new(&w);
	if (!oob || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		abort();
	if (size > 65536 || send(fd[1], data, size, MSG_NOSIGNAL) != (ssize_t)size)
		size = 0;
	peers_oob[1].asked = peers_oob[1].sent = 3;
	comm_oob_adopt(oob, fd[0], NULL, 1);
	comm_oob_progress(oob);
	if (peers_oob[1].waits_for < -1 || peers_oob[1].waits_for >= w.size ||
	    peers_oob[1].answered > peers_oob[1].asked)
		abort();
	for (const char *c = w.cause; *c; c++)
		if (iscntrl((unsigned char)*c))
			abort();
	shutdown(fd[1], SHUT_WR);
	comm_oob_progress(oob);
	if (comm_oob_poll_count(oob) || peers_oob[1].state != OOB_GONE)
		abort();
	comm_oob_free(oob);
	close(fd[1]);
	return 0;
}
