#include "libcomm/shm/reach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { UNSAID, WORKS, FORBIDDEN }; /* in a rank's line, and in c->reach */

struct view { /* a peer's window, mapped */
	struct view *next;
	int rank;
	uint32_t window;
	char *base;
	size_t size;
};

bool comm_reach_probe(pid_t pid)
{
	/* The permission is checked before the address, at which nothing can be. */
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)1, 1 };
	return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == EFAULT;
}

void comm_reach_open(struct comm *c)
{
	uint32_t mine = WORKS;
	if (!c->segment.head)
		return;
	for (int r = 0; r < c->size; r++)
		if (r != c->rank && c->local[r] >= 0 && !c->world->peers[c->members[r]].readable)
			mine = FORBIDDEN;
	atomic_store_explicit(&c->segment.line[c->local[c->rank]].reach, mine,
			      memory_order_release);
}

void comm_reach_close(struct comm *c)
{
	for (struct view *v = c->views, *next; v; v = next) {
		next = v->next;
		comm_window_unmap(v->base, v->size);
		free(v);
	}
	c->views = NULL;
}

bool comm_reach_works(struct comm *c)
{
	if (c->reach == UNSAID) {
		uint32_t all = c->segment.head ? WORKS : FORBIDDEN;
		for (int i = 0; i < c->segment.n; i++) {
			uint32_t one = atomic_load_explicit(&c->segment.line[i].reach,
							    memory_order_acquire);
			if (one == UNSAID)
				return false; /* the group is still opening */
			if (one == FORBIDDEN)
				all = FORBIDDEN;
		}
		c->reach = all;
	}
	return c->reach == WORKS;
}

struct reach_parts comm_reach_parts(const struct comm *c, const struct op *op)
{
	size_t size = comm_type_size(op->type), n = (size_t)c->size, whole = op->count * size;
	size_t mine = (op->counts ? op->counts[c->rank] : op->count) * size,
	       all = op->counts ? 0 : n * whole;
	bool root = op->root == c->rank;
	for (int r = 0; op->counts && r < c->size; r++)
		all += op->counts[r] * size;
	switch (op->kind) {
	case OP_ALL_REDUCE:
		return (struct reach_parts){ op->in, op->out, whole, whole };
	case OP_REDUCE:
		return (struct reach_parts){ op->in, op->out, whole, root ? whole : 0 };
	case OP_BROADCAST:
		return (struct reach_parts){ op->out, NULL, root ? whole : 0, 0 };
	case OP_ALL_GATHER:
	case OP_GATHER:
		return (struct reach_parts){ op->in, NULL, mine, 0 };
	case OP_SCATTER:
		return (struct reach_parts){ op->in, NULL, root ? all : 0, 0 };
	case OP_REDUCE_SCATTER:
	case OP_ALL_TO_ALL:
		return (struct reach_parts){ op->in, NULL, all, 0 };
	default:
		return (struct reach_parts){ NULL, NULL, 0, 0 };
	}
}

bool comm_reach_in_windows(const struct comm *c, const struct op *op)
{
	if (!windows_live(c->world))
		return false;
	struct reach_parts p = comm_reach_parts(c, op);
	return (!p.in_bytes || reach_span(c, p.in, p.in_bytes).window) &&
	       (!p.out_bytes || reach_span(c, p.out, p.out_bytes).window);
}

/* --- Windows --- */

/* Takes the freed ones of rank out. */
static void sweep(struct comm *c, int rank)
{
	for (struct view **p = &c->views; *p;) {
		struct view *v = *p;
		if (v->rank != rank || !comm_window_freed(v->base, v->size)) {
			p = &v->next;
			continue;
		}
		*p = v->next;
		comm_window_unmap(v->base, v->size);
		free(v);
	}
}

char *comm_reach_map(struct comm *c, int rank, const struct span *s, size_t bytes)
{
	if (!s->window || s->offset > s->size || bytes > s->size - s->offset)
		return NULL;
	for (struct view *v = c->views; v; v = v->next)
		if (v->window == s->window && v->rank == rank && v->size == s->size)
			return v->base + s->offset;
	sweep(c, rank);
	struct view *v = malloc(sizeof *v);
	char *base = v ? comm_window_map(c->world->peers[c->members[rank]].pid, s) : NULL;
	if (!base) {
		int why = v ? errno : ENOMEM;
		free(v);
		errno = why;
		return NULL;
	}
	*v = (struct view){ c->views, rank, s->window, base, s->size };
	c->views = v;
	return base + s->offset;
}

int comm_reach_no_map(struct comm *c, int rank, struct err *e)
{
	char who[160];
	int cause = errno;
	if (comm_group_rank_gone(c, rank, true, e) < 0)
		return -1;
	comm_group_rank_text(c, rank, who);
	/* Its descriptors are closed before the kernel says that it has ended. */
	if (cause == ENOENT || cause == ESRCH)
		return err_set(e, ERR_PEER, "%s has died", who);
	return err_set(e, ERR_NOMEM, "the shared buffer of %s cannot be mapped: %s", who,
		       strerror(cause));
}

/* --- Private memory --- */

static int cannot_read(struct comm *c, int rank, int cause, struct err *e)
{
	char who[160];
	/* One that gave up has left word why, and may have ended since. */
	if (comm_group_rank_gone(c, rank, true, e) < 0)
		return -1;
	comm_group_rank_text(c, rank, who);
	if (cause == ESRCH)
		return err_set(e, ERR_PEER, "%s has died", who);
	return err_set(e, ERR_PEER, "the memory of %s cannot be read: %s%s", who, strerror(cause),
		       cause == EPERM
			       ? " (it could when the world was opened; a rank may not change its "
				 "user or forbid its inspection)"
			       : "");
}

int comm_reach_get(struct comm *c, int rank, const struct span *s, size_t at, void *to,
		   size_t bytes, struct err *e)
{
	const char *base = comm_reach_map(c, rank, s, at + bytes);
	if (base) {
		if (bytes)
			memcpy(to, base + at, bytes);
		return 0;
	}
	pid_t pid = c->world->peers[c->members[rank]].pid;
	for (size_t done = 0; done < bytes;) {
		struct iovec here = { (char *)to + done, bytes - done };
		struct iovec there = { (void *)(uintptr_t)(s->address + at + done), bytes - done };
		ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
		if (got > 0)
			done += (size_t)got;
		else if (got == 0 || errno != EINTR)
			return cannot_read(c, rank, got == 0 ? EFAULT : errno, e);
	}
	return 0;
}
