/*
 * segment — the memory that a group's ranks on one host share. The main header of libcomm/shm:
 * step.h is the barrier in the segment, shared_buffer.h the memory of comm_alloc, peer_memory.h the
 * access to other ranks' buffers; futex.h, spin_wait.h and copy.h are primitives.
 *
 * The segment has no name. The group's first rank on the host creates a memfd; the others open
 * /proc/<pid>/fd/<n>, which they get from the bootstrap or the parent group. A random nonce in it
 * proves that it is the right file. The kernel therefore frees it with its last user, however that
 * one ends. Pages exist once they are touched: what a group never uses costs nothing.
 *
 *     head                          where all ranks sleep
 *     line[n]                       each rank's public state
 *     cell[2][n]                    what each rank publishes with a step, by the step's parity
 *     slot[2][n][SEG_SLOT_MAX]     each rank's contribution to a step, by its parity
 *     result[2][SEG_SLOT_MAX]      what the ranks made of it, one share each
 *     ring[n][n]                    messages from a rank to another
 *
 * Operations on one host use SEG_SLOT bytes of a slot, which the caches hold. Over several hosts a
 * step costs more, and up to SEG_SLOT_MAX are used: see comm_node_ranks_slot_bytes.
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
	SEG_SLOT_MAX = 1 << 20,
	SEG_INLINE = 32,
	SEG_REASON = 300
};

enum seg_state { SEG_HERE, SEG_FAILED, SEG_LEFT };

struct seg_line {                             /* written by its rank only, except the doorbell */
	_Alignas(128) _Atomic uint32_t state; /* enum seg_state */
	_Atomic uint32_t cma;                 /* peer_memory.c: what this rank can read */
	/* native.c: its progress with collectives */
	_Atomic uint32_t device_called, device_done, device_leaves;
	char reason[SEG_REASON]; /* valid once SEG_FAILED */
	/* peers add to it after moving bytes in a ring */
	_Alignas(128) _Atomic uint32_t doorbell;
	_Atomic uint32_t sleeping;
};

/* A buffer as its owner describes it to the ranks of its host; see peer_memory.h. */
struct remote_buffer {
	uint64_t address;
	uint64_t offset; /* in the shared buffer */
	/* of the shared buffer: the size to map, and proof that it is the right file */
	uint64_t size, inode;
	uint32_t shared_buffer; /* number of the shared buffer; 0: the buffer is in none */
	int32_t fd;
};

/* Written by its rank only. All of it must be written before `step`. The other ranks poll the first
 * cache line until the step comes. Nothing else may share that line or the adjacent one, which
 * their caches load along with it. */
struct seg_cell {
	_Alignas(128) _Atomic uint32_t step; /* the last step that the rank has come to */
	uint32_t open : 1;                   /* with sign: its buffers are shared buffers */
	/* steps that its part of an all_to_all takes, or where its data is */
	uint32_t need : 31;
	struct op_signature sign; /* of an operation's first step */
	/* the rest of the line: data of a rank that contributes only a few bytes */
	char data[SEG_INLINE];
	_Alignas(128) struct remote_buffer buffers[2];
};

struct seg_head {
	char magic[8];
	unsigned char nonce[SEG_NONCE];
	_Alignas(128) _Atomic uint32_t sleepers; /* ranks that sleep on `wakes`, or are about to */
	_Atomic uint32_t wakes;
};

/* State of the long messages from one rank to another: see rendezvous.h. */
struct rendezvous {
	/* number of the message << 32 | the next chunk to take */
	_Alignas(128) _Atomic uint64_t claim;
	struct remote_buffer to; /* where the receiver wants it; set before claim */
	_Atomic uint32_t taken;  /* how many messages the receiver has completed */
	/* 1: the sender has claimed a chunk, or is about to */
	_Alignas(128) _Atomic uint32_t writing;
	/* the chunk that the sender could not write, + 1; set before writing is 0 */
	_Atomic uint32_t left;
};

enum {
	RING_LAST = 112
}; /* together with the two words before it, the line of the head and the
			   * next one */

struct ring {                                /* bytes written and read so far; the data follows */
	_Alignas(128) _Atomic uint64_t head; /* the writer's */
	/* head << 8 | how many of the last bytes are also in `last`: a short message */
	_Atomic uint64_t last_end;
	_Atomic uint64_t last[RING_LAST / 8]; /* arrives together with the head */
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

/* Creates a memfd that carries a fresh nonce. */
int comm_segment_offer(int *fd, unsigned char nonce[SEG_NONCE], struct err *e);
/* Maps, for n ranks, what process pid offered as its descriptor fd. */
int comm_segment_attach(struct segment *s, pid_t pid, int fd, const unsigned char nonce[SEG_NONCE],
			int n, struct err *e);
void comm_segment_detach(struct segment *s);
/* Opens what process pid offered as its descriptor fd, after a check of the nonce: a descriptor; -1:
 * error. */
int comm_segment_open_offer(pid_t pid, int fd, const unsigned char nonce[SEG_NONCE], struct err *e);

/* Makes all ranks that sleep on the head check again. */
void comm_segment_wake(struct segment *s);

static inline struct seg_cell *segment_cell(const struct segment *s, unsigned parity, int i)
{
	return &s->cells[(parity & 1) * (unsigned)s->n + (unsigned)i];
}

static inline char *segment_slot(const struct segment *s, unsigned parity, int i)
{
	return s->slots + ((size_t)(parity & 1) * (size_t)s->n + (size_t)i) * SEG_SLOT_MAX;
}

static inline char *segment_result(const struct segment *s, unsigned parity)
{
	return s->results + (size_t)(parity & 1) * SEG_SLOT_MAX;
}

static inline struct ring *segment_ring(const struct segment *s, int from, int to)
{
	size_t each = sizeof(struct ring) + s->ring_bytes;
	return (struct ring *)(void *)(s->rings +
				       ((size_t)from * (size_t)s->n + (size_t)to) * each);
}

#endif
