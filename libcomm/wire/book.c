#include "libcomm/wire/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOOK_MAGIC = 0x4d424b31 };

_Static_assert(sizeof(struct book_host) == 12 + SEG_NONCE + CARD_HOST + 3, "no padding");
_Static_assert(sizeof(struct book_rank) == 12 + SECRET_BYTES + NET_ADDR_MAX, "no padding");

void comm_book_add_host(struct buf *book, const char *name, int ranks, int memfd,
			const unsigned char nonce[SEG_NONCE])
{
	struct book_host h = { .magic = BOOK_MAGIC, .ranks = ranks, .memfd = memfd };
	memcpy(h.nonce, nonce, SEG_NONCE);
	snprintf(h.name, sizeof h.name, "%s", name);
	buf_add(book, (const char *)&h, sizeof h);
}

void comm_book_add_rank(struct buf *book, int rank, const struct wire_card *card)
{
	struct book_rank r = { .rank = rank, .pid = card->pid, .wakeup = card->wakeup };
	memcpy(r.secret, card->secret, sizeof r.secret);
	memcpy(r.address, card->address, sizeof r.address);
	buf_add(book, (const char *)&r, sizeof r);
}

struct host_name {
	const char *name;
	int host; /* by its place in the book */
};

struct reader {
	struct world *w;
	struct card *cards;
	struct host_name *hosts;
	int n_hosts, n_ranks;
};

static bool has_end(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool read_rank(struct reader *b, const struct book_host *h, const struct book_rank *r)
{
	if (r->rank < 0 || r->rank >= b->w->size || r->pid <= 0 ||
	    !has_end(r->address, sizeof r->address) || b->w->peers[r->rank].host_id >= 0)
		return false;
	struct peer *p = &b->w->peers[r->rank];
	p->host_id = b->n_hosts;
	p->pid = r->pid;
	if (!p->address) {
		p->host = h->name;
		p->secret = r->secret;
		p->address = r->address;
	}
	b->cards[r->rank] = (struct card){ .memfd = h->memfd, .wakeup = r->wakeup };
	memcpy(b->cards[r->rank].nonce, h->nonce, SEG_NONCE);
	b->n_ranks++;
	return true;
}

/* Reads the next host with its ranks. Returns the bytes that it takes; 0: it is invalid. */
static size_t read_host(struct reader *b, const char *at, size_t left)
{
	const struct book_host *h = (const void *)at;
	if (left < sizeof *h || h->magic != BOOK_MAGIC || h->ranks < 1 ||
	    !has_end(h->name, sizeof h->name) ||
	    (left - sizeof *h) / sizeof(struct book_rank) < (size_t)h->ranks)
		return 0;
	const struct book_rank *ranks = (const void *)(at + sizeof *h);
	for (int i = 0; i < h->ranks; i++)
		if (!read_rank(b, h, &ranks[i]))
			return 0;
	b->hosts[b->n_hosts] = (struct host_name){ h->name, b->n_hosts };
	b->n_hosts++;
	return sizeof *h + (size_t)h->ranks * sizeof *ranks;
}

static int compare_names(const void *a, const void *b)
{
	const struct host_name *x = a, *y = b;
	int order = strcmp(x->name, y->name);
	return order ? order : (x->host > y->host) - (x->host < y->host);
}

/* Gives hosts of equal name the same number. */
static int number_hosts(struct reader *b, struct err *e)
{
	int *number = calloc((size_t)b->n_hosts, sizeof *number);
	if (!number)
		return err_set(e, ERR_NOMEM, "no memory for %d hosts", b->n_hosts);
	qsort(b->hosts, (size_t)b->n_hosts, sizeof *b->hosts, compare_names);
	for (int i = 0, n = 0; i < b->n_hosts; i++) {
		n += i > 0 && strcmp(b->hosts[i - 1].name, b->hosts[i].name);
		number[b->hosts[i].host] = n;
	}
	for (int r = 0; r < b->w->size; r++)
		b->w->peers[r].host_id = number[b->w->peers[r].host_id];
	free(number);
	return 0;
}

int comm_book_read(struct world *w, const char *book, size_t bytes, struct card *cards,
		   struct err *e)
{
	struct reader b = { .w = w, .cards = cards };
	/* each host has a rank, and no rank comes twice */
	b.hosts = calloc((size_t)w->size, sizeof *b.hosts);
	if (!b.hosts)
		return err_set(e, ERR_NOMEM, "no memory for the hosts of %d ranks", w->size);
	size_t at = 0, step = 1;
	while (at < bytes && step) {
		step = read_host(&b, book + at, bytes - at);
		at += step;
	}
	int rc = step && b.n_ranks == w->size
			 ? number_hosts(&b, e)
			 : err_set(e, ERR_PROTO,
				   "the ranks' addresses are invalid or incomplete: %d of %d were "
				   "read; all ranks must run the same version of muster",
				   b.n_ranks, w->size);
	free(b.hosts);
	return rc;
}
