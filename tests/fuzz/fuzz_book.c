/* Any bytes as the address book of a world: they are refused, or every rank has a host, an address and a
 * process, and every text ends. */
#include "libcomm/wire/book.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peer peers[RANKS];
	struct card cards[RANKS];
	struct world w = { .size = RANKS, .peers = peers, .listener = -1 };
	char *book = malloc(size + 1); /* aligned */
	if (!book)
		abort();
	memcpy(book, data, size);
	for (int r = 0; r < RANKS; r++)
		peers[r] = (struct peer){ .host_id = -1 - r, .pidfd = -1 };
	if (comm_book_read(&w, book, size, cards, NULL) == 0)
		for (int r = 0; r < RANKS; r++)
			if (peers[r].pid <= 0 || peers[r].host_id < 0 ||
			    peers[r].host_id >= RANKS || strlen(peers[r].host) >= size ||
			    strlen(peers[r].address) >= NET_ADDR_MAX)
				abort();
	free(book);
	return 0;
}
