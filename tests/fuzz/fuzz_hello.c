/* Any bytes that a stranger sends to a rank's listener: the stranger is rejected or ignored, and
 * nothing breaks. */
#include "libcomm/tcp/handshake.h"

#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char secret[SECRET_BYTES];
	static struct peer peers[4] = { [2] = { .secret = secret } };
	static struct world w = {
		.rank = 2, .size = 4, .peers = peers, .sockets = 2, .listener = -1
	};
	int fd[2];
	struct handshake *h;
	if (sodium_init() < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		abort();
	if (size > 4096 || send(fd[1], data, size, MSG_NOSIGNAL) != (ssize_t)size ||
	    shutdown(fd[1], SHUT_WR) < 0)
		size = 0;
	randombytes_buf(secret, sizeof secret);
	if (comm_handshake_accept(&w, fd[0], &h, NULL) == 0) {
		if (comm_handshake_step(h, NULL) == 1)
			abort(); /* the stranger cannot know the secret */
		comm_handshake_free(h);
	}
	close(fd[1]);
	return 0;
}
