/*
 * segment — the memory that a group's ranks on one host share.
 *
 * It has no name: the group's first rank on the host makes a memfd and the
 * others open /proc/<pid>/fd/<n>, told by the bootstrap or by the parent
 * group; a random nonce inside proves that it is the right one. So the kernel
 * frees it with its last user, however that one ends. Pages exist once they
 * are touched: what a group never uses costs nothing.
 *
 *     head                      where all ranks sleep
 *     line[n]                   each rank's public state
 *     cell[2][n]                what each rank says at a step, by its parity
 *     slot[2][n][SEG_SLOT_MOST]      what each rank contributes to a step, by its parity
 *     result[2][SEG_SLOT_MOST]       what the ranks made of it, a share each
 *     ring[n][n]                messages from a rank to another
 *
 * Operations on one host use SEG_SLOT of a slot, which the caches hold; over several hosts a
 * step costs more and up to SEG_SLOT_MOST are used: see comm_node_ranks_slot_bytes.
 */
#ifndef MUSTER_LIBCOMM_SHM_SEGMENT_H
#define MUSTER_LIBCOMM_SHM_SEGMENT_H

#include "base/err.h"
#include "libcomm/op.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SEG_NONCE = 32,
	SEG_SLOT = 256 << 10,
	SEG_SLOT_MOST = 1 << 20,
	SEG_INLINE = 32,
	SEG_REASON = 300
};

enum seg_state { SEG_HERE, SEG_FAILED, SEG_LEFT };

struct seg_line {                             /* written by its rank alone, but for the doorbell */
	_Alignas(128) _Atomic uint32_t state; /* enum seg_state */
	_Atomic uint32_t cma;                 /* reach.c: what this rank can read */
	/* native.c: how far with its collectives */
	_Atomic uint32_t device_called, device_done, device_leaves;
	char reason[SEG_REASON]; /* once SEG_FAILED */
	/* peers add to it when they moved bytes in a ring */
	_Alignas(128) _Atomic uint32_t doorbell;
	_Atomic uint32_t sleeping;
};

/* A buffer, as its owner tells it to the ranks of its host; see reach.h. */
struct remote_buffer {
	uint64_t address;
	uint64_t offset; /* in the window */
	/* of the window: how much to map, and the proof that it is the right file */
	uint64_t size, inode;
	uint32_t shared_buffer; /* its number, 0: the buffer lies in none */
	int32_t fd;
};

/* Written by its rank alone; what goes with a step before the step itself. The others look at the
 * first line until the step comes, so that nothing else may lie in it or in the one beside it,
 * which their caches take along. */
struct seg_cell {
	_Alignas(128) _Atomic uint32_t step; /* it has come to this one */
	uint32_t open : 1;                   /* with sign: its buffers lie in windows */
	/* steps that its part of an all_to_all takes, or where it is */
	uint32_t need : 31;
	struct op_signature sign; /* of an operation's first step */
	/* the line's rest: what few bytes a rank has to give */
	char data[SEG_INLINE];
	_Alignas(128) struct remote_buffer buffers[2];
};

struct seg_head {
	char magic[8];
	unsigned char nonce[SEG_NONCE];
	_Alignas(128) _Atomic uint32_t sleepers; /* ranks that sleep on `wakes`, or are about to */
	_Atomic uint32_t wakes;
};

/* Of the long messages from a rank to another: see handoff.h. */
struct rendezvous {
	/* number of the message << 32 | the chunk to be taken next */
	_Alignas(128) _Atomic uint64_t claim;
	struct remote_buffer to; /* where the receiver wants it; set before claim */
	_Atomic uint32_t taken;  /* how many messages the receiver is through with */
	/* 1: the sender has claimed a chunk, or is about to */
	_Alignas(128) _Atomic uint32_t writing;
	/* the chunk that it could not write, + 1; set before writing is 0 */
	_Atomic uint32_t left;
};

enum { RING_LAST = 112 }; /* with the two words before it, the line of the head and the next */

struct ring {                                /* bytes written and read so far; the data follows */
	_Alignas(128) _Atomic uint64_t head; /* the writer's */
	/* head << 8 | how many of the last bytes are also here: a short */
	_Atomic uint64_t last_end;
	_Atomic uint64_t last[RING_LAST / 8]; /* message comes with the news of it */
	_Alignas(128) _Atomic uint64_t tail;  /* the reader's */
	struct rendezvous rendezvous;
	_Alignas(128) char data[];
};

struct segment {
	struct seg_head *head; /* NULL: not attached */
	struct seg_line *line;
	struct seg_cell *cells;
	char *slots, *results, *rings;
	size_t size, ring_bytes;
	int n;
};

/* A memfd that carries a fresh nonce. */
int comm_segment_offer(int *fd, unsigned char nonce[SEG_NONCE], struct err *e);
/* Maps what process pid offered as its descriptor fd, for n ranks. */
int comm_segment_attach(struct segment *s, pid_t pid, int fd, const unsigned char nonce[SEG_NONCE],
			int n, struct err *e);
void comm_segment_detach(struct segment *s);

/* Wakes all that sleep on the head, to look again. */
void comm_segment_wake(struct segment *s);

static inline struct seg_cell *segment_cell(const struct segment *s, unsigned parity, int i)
{
	return &s->cells[(parity & 1) * (unsigned)s->n + (unsigned)i];
}

static inline char *segment_slot(const struct segment *s, unsigned parity, int i)
{
	return s->slots + ((size_t)(parity & 1) * (size_t)s->n + (size_t)i) * SEG_SLOT_MOST;
}

static inline char *segment_result(const struct segment *s, unsigned parity)
{
	return s->results + (size_t)(parity & 1) * SEG_SLOT_MOST;
}

static inline struct ring *segment_ring(const struct segment *s, int from, int to)
{
	size_t each = sizeof(struct ring) + s->ring_bytes;
	return (struct ring *)(void *)(s->rings +
				       ((size_t)from * (size_t)s->n + (size_t)to) * each);
}

#endif
