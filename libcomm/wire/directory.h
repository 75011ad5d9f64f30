/*
 * directory — the address book (book.h) in memory that the ranks of a host share.
 *
 * The first rank of the host offers it as a memfd, like a segment (shm/segment.h), before it knows
 * the book. The other ranks of the host open it and sleep until the book is there. So a host gets
 * the book once, and its ranks use it where it lies.
 */
#ifndef MUSTER_LIBCOMM_WIRE_DIRECTORY_H
#define MUSTER_LIBCOMM_WIRE_DIRECTORY_H

#include "base/buf.h"
#include "libcomm/world.h"

struct directory_head;

struct directory {
	struct directory_head *head; /* NULL: not open */
	const char *book;            /* NULL: it is not there yet */
	size_t bytes;
	int fd;
};

#define DIRECTORY_NONE \
	{ \
		.fd = -1 \
	}

/* Creates an empty one. */
int comm_directory_offer(struct directory *d, unsigned char nonce[SEG_NONCE], struct err *e);
/* Gives the book to all ranks that wait for it. Only the rank that has offered it. */
int comm_directory_publish(struct directory *d, const struct buf *book, struct err *e);
/* Ends their wait with an error, unless they have the book. */
void comm_directory_fail(struct directory *d, const char *reason);

/* Opens what process pid offered as its descriptor fd. */
int comm_directory_open(struct directory *d, pid_t pid, int fd,
			const unsigned char nonce[SEG_NONCE], struct err *e);
/* Waits for the book. ERR_PEER: the rank that offered it, `from`, has failed or died. ERR_TIMEOUT: it
 * took w's time-out. Any error of the world ends the wait, too. */
int comm_directory_await(struct directory *d, struct world *w, int from, pid_t pid, struct err *e);

/* The ranks of this host have opened it. */
void comm_directory_withdraw(struct directory *d);
void comm_directory_close(struct directory *d);

#endif
