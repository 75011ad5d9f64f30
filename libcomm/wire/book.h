/*
 * book — the address book of a world: what a rank must know to reach any other one, as bytes that
 * travel from host to host (tree.h) and lie in memory that the ranks of a host share (directory.h).
 *
 *     struct book_host, its struct book_rank[ranks] by rank; the next host, in any order
 *
 * in the layout and byte order of the processor, because all ranks run the same program. It takes
 * about 160 bytes for each rank of a world with 8 ranks on each host.
 */
#ifndef MUSTER_LIBCOMM_WIRE_BOOK_H
#define MUSTER_LIBCOMM_WIRE_BOOK_H

#include "base/buf.h"
#include "libcomm/wire/card.h"

struct book_host {
	uint32_t magic;
	int32_t ranks;
	int32_t memfd; /* what its first rank offers as the world's segment; -1: nothing */
	unsigned char nonce[SEG_NONCE]; /* of that */
	char name[CARD_HOST + 3];
};

struct book_rank {
	int32_t rank, pid, wakeup;
	unsigned char secret[SECRET_BYTES];
	char address[NET_ADDR_MAX];
};

/* The longest book of a world of so many ranks. */
static inline size_t book_most(int ranks)
{
	return (size_t)ranks * (sizeof(struct book_host) + sizeof(struct book_rank));
}

/* Append a host, and then each of its ranks. Check buf_failed() afterwards. */
void comm_book_add_host(struct buf *book, const char *name, int ranks, int memfd,
			const unsigned char nonce[SEG_NONCE]);
void comm_book_add_rank(struct buf *book, int rank, const struct wire_card *card);

/* Reads the book into w->peers, which point into it, and cards[w->size]. A peer whose address is
 * known already keeps it. ERR_PROTO: it is not the book of this world. */
int comm_book_read(struct world *w, const char *book, size_t bytes, struct card *cards,
		   struct err *e);

#endif
