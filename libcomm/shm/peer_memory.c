#include "libcomm/shm/peer_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { CMA_UNKNOWN, CMA_WORKS, CMA_FORBIDDEN }; /* in a rank's line, and in c->cma */

struct mapping { /* a peer's shared buffer, mapped */
	struct mapping *next;
	int rank;
	uint32_t shared_buffer;
	char *base;
	size_t size;
};

bool comm_cma_probe(pid_t pid)
{
	/* The kernel checks the permission before the address, where nothing can be mapped. */
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)1, 1 };
	return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == EFAULT;
}

void comm_peer_memory_open(struct comm *c)
{
	uint32_t mine = CMA_WORKS;
	if (!c->segment.head)
		return;
	for (int r = 0; r < c->size; r++)
		if (r != c->rank && c->local[r] >= 0 && !c->world->peers[c->members[r]].readable)
			mine = CMA_FORBIDDEN;
	atomic_store_explicit(&c->segment.line[c->local[c->rank]].cma, mine, memory_order_release);
}

void comm_peer_memory_close(struct comm *c)
{
	for (struct mapping *v = c->mappings, *next; v; v = next) {
		next = v->next;
		comm_shared_buffer_unmap(v->base, v->size);
		free(v);
	}
	c->mappings = NULL;
}

bool comm_cma_works(struct comm *c)
{
	if (c->cma == CMA_UNKNOWN) {
		uint32_t all = c->segment.head ? CMA_WORKS : CMA_FORBIDDEN;
		for (int i = 0; i < c->segment.n; i++) {
			uint32_t one = atomic_load_explicit(&c->segment.line[i].cma,
							    memory_order_acquire);
			if (one == CMA_UNKNOWN)
				return false; /* the group is still opening */
			if (one == CMA_FORBIDDEN)
				all = CMA_FORBIDDEN;
		}
		c->cma = all;
	}
	return c->cma == CMA_WORKS;
}

struct exposed_memory comm_peer_memory_expose(const struct comm *c, const struct op *op)
{
	enum op_share out = comm_op_out_share(op, c->rank);
	struct exposed_memory x = {
		.in = op->in,
		.in_bytes = comm_op_share_bytes(op, comm_op_in_share(op, c->rank), op->counts,
						c->rank, c->size),
	};
	/* Peers write only whole results of a reduction. */
	if (comm_op_has(op->kind, OP_REDUCES) && out == SHARE_WHOLE) {
		x.out = op->out;
		x.out_bytes = comm_op_share_bytes(op, out, op->counts, c->rank, c->size);
	}
	return x;
}

bool comm_peer_memory_all_shared(const struct comm *c, const struct op *op)
{
	if (!shared_buffers_live(c->world))
		return false;
	struct exposed_memory p = comm_peer_memory_expose(c, op);
	return (!p.in_bytes || peer_memory_describe(c, p.in, p.in_bytes).shared_buffer) &&
	       (!p.out_bytes || peer_memory_describe(c, p.out, p.out_bytes).shared_buffer);
}

/* --- Shared buffers --------------------------------------------------------------------------- */

/* Unmaps the freed buffers of a rank. */
static void drop_freed_mappings(struct comm *c, int rank)
{
	for (struct mapping **p = &c->mappings; *p;) {
		struct mapping *v = *p;
		if (v->rank != rank || !comm_shared_buffer_is_freed(v->base, v->size)) {
			p = &v->next;
			continue;
		}
		*p = v->next;
		comm_shared_buffer_unmap(v->base, v->size);
		free(v);
	}
}

char *comm_peer_memory_map(struct comm *c, int rank, const struct remote_buffer *s, size_t bytes)
{
	if (!s->shared_buffer || s->offset > s->size || bytes > s->size - s->offset)
		return NULL;
	for (struct mapping *v = c->mappings; v; v = v->next)
		if (v->shared_buffer == s->shared_buffer && v->rank == rank && v->size == s->size)
			return v->base + s->offset;
	drop_freed_mappings(c, rank);
	struct mapping *v = malloc(sizeof *v);
	char *base = v ? comm_shared_buffer_map(c->world->peers[c->members[rank]].pid, s) : NULL;
	if (!base) {
		int why = v ? errno : ENOMEM;
		free(v);
		errno = why;
		return NULL;
	}
	*v = (struct mapping){ c->mappings, rank, s->shared_buffer, base, s->size };
	c->mappings = v;
	return base + s->offset;
}

int comm_peer_memory_map_failed(struct comm *c, int rank, struct err *e)
{
	char who[160];
	int cause = errno;
	if (comm_group_check_rank(c, rank, true, e))
		return -1;
	comm_group_rank_text(c, rank, who);
	/* A process's descriptors are closed before the kernel reports its end. */
	if (cause == ENOENT || cause == ESRCH)
		return err_set(e, ERR_PEER, "%s has died", who);
	return err_set(e, ERR_NOMEM, "the shared buffer of %s cannot be mapped: %s", who,
		       strerror(cause));
}

/* --- Private memory ----------------------------------------------------------------- */

static int report_unreadable(struct comm *c, int rank, int cause, struct err *e)
{
	char who[160];
	/* A rank that gave up has left its reason, and may have exited since. */
	if (comm_group_check_rank(c, rank, true, e))
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

int comm_peer_memory_read(struct comm *c, int rank, const struct remote_buffer *s, size_t at,
			  void *to, size_t bytes, struct err *e)
{
	const char *base = comm_peer_memory_map(c, rank, s, at + bytes);
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
			return report_unreadable(c, rank, got == 0 ? EFAULT : errno, e);
	}
	return 0;
}
