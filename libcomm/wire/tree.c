#include "libcomm/wire/tree.h"

#include "base/seal.h"
#include "libcomm/group.h"
#include "libcomm/wire/book.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)SEAL_KEY_BYTES == (int)crypto_auth_hmacsha512256_BYTES, "a tag is a key");

/* The edge to another host: a group of two ranks. */
struct edge {
	struct comm *group;
	int other; /* its rank in the group */
	struct seal up, down;
};

/* --- An edge ---------------------------------------------------------------------------------- */

static uint64_t edge_id(int a, int b)
{
	uint64_t x = 0xd1b54a32d192ed03u + ((uint64_t)(uint32_t)a << 32 | (uint32_t)b);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) | 2; /* 1 is the world */
}

static void make_key(const struct world *w, int parent, int child, char direction, struct seal *s)
{
	crypto_auth_hmacsha512256_state h;
	crypto_auth_hmacsha512256_init(&h, w->peers[parent].secret, SECRET_BYTES);
	crypto_auth_hmacsha512256_update(&h, (const unsigned char *)&direction, 1);
	crypto_auth_hmacsha512256_update(&h, w->peers[child].secret, SECRET_BYTES);
	crypto_auth_hmacsha512256_final(&h, s->key);
	s->count = 0;
	sodium_memzero(&h, sizeof h);
}

/* The group uses the network: until the book is read, every rank counts as a host of its own. */
static int open_edge(struct world *w, int parent, int child, struct edge *out, struct err *e)
{
	const int members[] = { parent, child };
	const struct card none[2] = { { .memfd = -1, .wakeup = -1 },
				      { .memfd = -1, .wakeup = -1 } };
	struct group_spec spec = { .world = w,
				   .id = edge_id(parent, child),
				   .name = "hosts",
				   .members = members,
				   .rank = w->rank == child,
				   .size = 2,
				   .cards = none,
				   .memfd = -1 };
	*out = (struct edge){ .other = w->rank == parent };
	if (comm_wakeup_open(&spec.wakeup, e) || comm_group_open(&spec, &out->group, e))
		return -1;
	make_key(w, parent, child, '^', &out->up);
	make_key(w, parent, child, 'v', &out->down);
	return 0;
}

static void close_edge(struct edge *edge)
{
	comm_close(edge->group);
	sodium_memzero(edge, sizeof *edge);
}

static int send_book(struct edge *to, struct seal *seal, const struct buf *book, struct err *e)
{
	struct buf sealed = BUF_INIT;
	seal_frame(seal, &sealed, book->data, book->len);
	int64_t bytes = (int64_t)sealed.len - SEAL_LENGTH_BYTES;
	int rc = buf_failed(&sealed) ? err_set(e, ERR_NOMEM, "no memory for the ranks' addresses")
				     : comm_send(to->group, &bytes, 1, COMM_I64, to->other, e);
	if (!rc)
		rc = comm_send(to->group, sealed.data + SEAL_LENGTH_BYTES, (size_t)bytes, COMM_U8,
			       to->other, e);
	buf_fini(&sealed);
	return rc;
}

/* Appends to the book. */
static int receive_book(struct edge *from, struct seal *seal, size_t most, struct buf *book,
			struct err *e)
{
	int64_t bytes;
	if (comm_recv(from->group, &bytes, 1, COMM_I64, from->other, e))
		return -1;
	if (bytes < SEAL_TAG_BYTES || (size_t)bytes > most + SEAL_TAG_BYTES)
		return err_set(e, ERR_PROTO, "a host sent %lld bytes of addresses",
			       (long long)bytes);
	unsigned char *sealed = malloc((size_t)bytes);
	char *plain = NULL;
	int rc = sealed ? comm_recv(from->group, sealed, (size_t)bytes, COMM_U8, from->other, e)
			: err_set(e, ERR_NOMEM, "no memory for the ranks' addresses");
	if (!rc)
		rc = seal_open(seal, sealed, (size_t)bytes, &plain, e);
	free(sealed);
	if (rc)
		return -1;
	buf_add(book, plain, (size_t)bytes - SEAL_TAG_BYTES);
	sodium_memzero(plain, (size_t)bytes - SEAL_TAG_BYTES);
	free(plain);
	return buf_failed(book) ? err_set(e, ERR_NOMEM, "no memory for the ranks' addresses") : 0;
}

/* --- The tree --------------------------------------------------------------------------------- */

static int exchange(struct world *w, struct edge *parent, struct edge *children, int n_children,
		    struct buf *book, struct err *e)
{
	size_t most = book_most(w->size);
	for (int i = 0; i < n_children; i++)
		if (receive_book(&children[i], &children[i].up, most, book, e))
			return -1;
	if (parent) {
		if (send_book(parent, &parent->up, book, e))
			return -1;
		buf_clear(book);
		if (receive_book(parent, &parent->down, most, book, e))
			return -1;
	}
	for (int i = 0; i < n_children; i++)
		if (send_book(&children[i], &children[i].down, book, e))
			return -1;
	return 0;
}

int comm_tree_exchange(struct world *w, const int *near, int n_near, bool has_parent,
		       struct buf *book, struct err *e)
{
	struct edge edges[COMM_NEAR] = { { .group = NULL } };
	int rc = 0, up = has_parent;
	for (int i = 0; i < n_near && !rc; i++)
		rc = i < up ? open_edge(w, near[i], w->rank, &edges[i], e)
			    : open_edge(w, w->rank, near[i], &edges[i], e);
	if (!rc)
		rc = exchange(w, up ? &edges[0] : NULL, edges + up, n_near - up, book, e);
	for (int i = 0; i < n_near; i++)
		close_edge(&edges[i]);
	return rc ? -1 : 0;
}
