#include "libcomm/wire/directory.h"

#include "base/clock.h"
#include "base/file.h"
#include "libcomm/shm/futex.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum directory_state { DIRECTORY_EMPTY, DIRECTORY_FULL, DIRECTORY_FAILED };

enum { HEAD_BYTES = 4096, PROOF_BYTES = 128 };

/* The longest sleep between two looks at the other process and at this world. Many ranks sleep here
 * at the same time, and they may share a core. */
static const int64_t SLEEP_NS = 100000000;

struct directory_head {
	char proof[PROOF_BYTES]; /* segment.c writes and checks it */
	_Atomic uint32_t state;  /* enum directory_state; set after the rest */
	uint64_t bytes;          /* of the book, which begins after HEAD_BYTES */
	char reason[SEG_REASON];
};
_Static_assert(sizeof(struct directory_head) <= HEAD_BYTES, "the book comes after it");

static int map_head(struct directory *d, int fd, struct err *e)
{
	void *p = mmap(NULL, HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "cannot map the ranks' addresses");
	d->head = p;
	d->fd = fd;
	return 0;
}

/* Maps the book, once it is there. */
static int map_book(struct directory *d, struct err *e)
{
	struct stat st;
	size_t bytes = d->head->bytes;
	if (fstat(d->fd, &st) || bytes > (size_t)st.st_size - HEAD_BYTES)
		return err_set(e, ERR_PROTO, "the ranks' addresses are not complete");
	void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, d->fd, HEAD_BYTES);
	if (p == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "cannot map the ranks' addresses");
	d->book = p;
	d->bytes = bytes;
	return 0;
}

int comm_directory_offer(struct directory *d, unsigned char nonce[SEG_NONCE], struct err *e)
{
	int fd;
	if (comm_segment_offer(&fd, nonce, e))
		return -1;
	if (ftruncate(fd, HEAD_BYTES))
		err_errno(e, ERR_NOMEM, "cannot create shared memory");
	else if (map_head(d, fd, e) == 0)
		return 0;
	close(fd);
	return -1;
}

int comm_directory_publish(struct directory *d, const struct buf *book, struct err *e)
{
	if (lseek(d->fd, HEAD_BYTES, SEEK_SET) < 0 || file_write_full(d->fd, book->data, book->len))
		return err_errno(e, ERR_NOMEM, "no memory for the addresses of the ranks");
	d->head->bytes = book->len;
	if (map_book(d, e))
		return -1;
	atomic_store_explicit(&d->head->state, DIRECTORY_FULL, memory_order_release);
	futex_wake_all(&d->head->state);
	return 0;
}

void comm_directory_fail(struct directory *d, const char *reason)
{
	if (!d->head || atomic_load(&d->head->state) != DIRECTORY_EMPTY)
		return;
	snprintf(d->head->reason, sizeof d->head->reason, "%.*s", SEG_REASON - 1, reason);
	atomic_store_explicit(&d->head->state, DIRECTORY_FAILED, memory_order_release);
	futex_wake_all(&d->head->state);
}

int comm_directory_open(struct directory *d, pid_t pid, int fd,
			const unsigned char nonce[SEG_NONCE], struct err *e)
{
	struct stat st;
	int own = comm_segment_open_offer(pid, fd, nonce, e);
	if (own < 0)
		return -1;
	if (fstat(own, &st) || st.st_size < HEAD_BYTES)
		err_set(e, ERR_PROTO, "process %d offers no list of the ranks' addresses",
			(int)pid);
	else if (map_head(d, own, e) == 0)
		return 0;
	close(own);
	return -1;
}

/* Whether the book has come, or never will: *rc is the error of this world then. */
static bool await_ends(struct directory *d, struct world *w, int from, struct pollfd *p,
		       int64_t until, int *rc, struct err *e)
{
	if (atomic_load(&d->head->state) != DIRECTORY_EMPTY || p->fd < 0 || poll(p, 1, 0) == 1)
		return true;
	if (world_failed(w))
		*rc = comm_world_error(w, e);
	else if (clock_ns() >= until)
		*rc = err_set(e, ERR_TIMEOUT,
			      "rank %d did not gather the ranks' addresses within %g s", from,
			      w->timeout_s);
	return *rc != 0;
}

int comm_directory_await(struct directory *d, struct world *w, int from, pid_t pid, struct err *e)
{
	struct pollfd p = { .fd = pidfd_open(pid, 0), .events = POLLIN };
	int64_t until = w->timeout_s > 0 ? clock_ns() + (int64_t)(w->timeout_s * 1e9) : INT64_MAX;
	int rc = 0;
	while (!await_ends(d, w, from, &p, until, &rc, e))
		futex_wait(&d->head->state, DIRECTORY_EMPTY, SLEEP_NS);
	if (p.fd >= 0)
		close(p.fd);
	if (rc)
		return rc;
	switch (atomic_load_explicit(&d->head->state, memory_order_acquire)) {
	case DIRECTORY_FULL:
		return map_book(d, e);
	case DIRECTORY_FAILED:
		return err_set(e, ERR_PEER, "rank %d gave up: %.*s", from, SEG_REASON,
			       d->head->reason);
	}
	return err_set(e, ERR_PEER, "rank %d has died", from);
}

void comm_directory_withdraw(struct directory *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

void comm_directory_close(struct directory *d)
{
	comm_directory_withdraw(d);
	if (d->book)
		munmap((void *)(uintptr_t)d->book, d->bytes);
	if (d->head)
		munmap(d->head, HEAD_BYTES);
	*d = (struct directory)DIRECTORY_NONE;
}
