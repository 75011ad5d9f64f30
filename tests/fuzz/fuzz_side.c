/* What a rank may say beside its data: nonsense ends the connection, and every text that is kept
 * is printable. */
#include "libcomm/tcp/side.h"

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
	struct side sides[4] = { 0 };
	struct world w = { .rank = 2,
			   .size = 4,
			   .peers = peers,
			   .sides = sides,
			   .listener = -1,
			   .silence_s = 60,
			   .lock = PTHREAD_MUTEX_INITIALIZER,
			   .news = PTHREAD_COND_INITIALIZER };
	int fd[2];
	struct side_lines *lines = comm_side_lines_new(&w);
	if (!lines || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		abort();
	if (size > 65536 || send(fd[1], data, size, MSG_NOSIGNAL) != (ssize_t)size)
		size = 0;
	sides[1].asked = sides[1].sent = 3;
	comm_side_adopt(lines, fd[0], NULL, 1);
	comm_side_work(lines);
	if (sides[1].waits_for < -1 || sides[1].waits_for >= w.size ||
	    sides[1].answered > sides[1].asked)
		abort();
	for (const char *c = w.words; *c; c++)
		if (iscntrl((unsigned char)*c))
			abort();
	shutdown(fd[1], SHUT_WR);
	comm_side_work(lines);
	if (comm_side_count(lines) || sides[1].state != SIDE_GONE)
		abort();
	comm_side_lines_free(lines);
	close(fd[1]);
	return 0;
}
