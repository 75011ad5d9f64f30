/*
 * comm — collectives and point-to-point messages between the ranks of a job.
 *
 * A world is opened once over a bootstrap; groups are split from it. Every
 * rank of a group calls the same operations in the same order. All counts are
 * in elements; lists of counts are as long as the group and, but for all_to_allv's, the same on
 * all ranks. One thread at a time calls into a group; different groups may be
 * used by different threads at once and do not block each other; comm_abort
 * may be called from any thread until the world is closed.
 *
 * In place: where `in` and `out` are equally long (all_reduce, reduce) they may be equal; where one
 * holds the block of this rank alone it may lie in the other at that block's place (all_gather,
 * gather, reduce_scatter, scatter). Else, and in all_to_all, a call's buffers may not overlap. A
 * buffer that this rank neither gives nor takes, or of no elements, may be NULL.
 *
 * Order of a reduction: rank order, by a fixed binary tree over the group: with n ranks, the
 * left half is the first p ranks, p the largest power of two below n, and
 * sum(group) = sum(left) + sum(right); whatever the algorithm, the size or
 * the arrival. So the same group and inputs give the same bits, on every rank.
 * bf16 and fp16 accumulate in fp32 and round once at the end. A NaN goes through sums
 * and products; a maximum or minimum may lose it, but is the same on every rank.
 *
 * Errors: ERR_TIMEOUT, ERR_ABORTED, ERR_PEER, ERR_NET, ERR_NOMEM; ERR_PROTO when the ranks do not
 * call the same operation, or with other counts. The text names the operation, the group, its
 * sequence number and the rank that did not come. After an error the world is aborted: every later
 * call returns the first error and what it kept from beginning, and the other ranks learn of it.
 * What the failed operation was to write is undefined, and other ranks may go on writing their
 * parts of it to memory of comm_alloc, until it is freed or the world is closed; any other memory
 * serves again at once. ERR_USAGE is the exception: a call that is wrong in itself is refused
 * before it does anything.
 *
 * fork: a child must not use the world, nor close it. As long as it lives and has not called exec,
 * it keeps the connections of its parent open, whose death is then found late, and shares its
 * parent's memory of comm_alloc.
 */
#ifndef MUSTER_LIBCOMM_COMM_H
#define MUSTER_LIBCOMM_COMM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum comm_type { COMM_F32, COMM_F64, COMM_BF16, COMM_F16, COMM_I32, COMM_I64, COMM_U8 };
enum comm_op { COMM_SUM, COMM_AVG, COMM_MAX, COMM_MIN, COMM_PROD };

size_t comm_type_size(enum comm_type type);

/* What a world needs to find its ranks; the agent gives PMIx's, the tests a
 * pipe's. put is local; fence is collective and carries the data; get works after a fence.
 * Values are printable texts without NUL. */
struct comm_bootstrap {
	int rank, size;
	int (*put)(void *arg, const char *key, const char *value, struct err *e);
	int (*fence)(void *arg, struct err *e);
	/* value: to be freed by the caller. */
	int (*get)(void *arg, int rank, const char *key, char **value, struct err *e);
	void *arg;
};

enum comm_integrity {
	COMM_INTEGRITY_NONE,
	COMM_INTEGRITY_CHECKSUM,
	COMM_INTEGRITY_SEAL,
	COMM_INTEGRITY_COUNT
};

/* "none", "checksum", "seal"; -1: no such word. */
const char *comm_integrity_name(enum comm_integrity integrity);
int comm_integrity_parse(const char *word);

struct comm_options {
	/* this rank's host; ranks with equal names use shared memory; NULL or "" = "localhost" */
	const char *host;
	/* Network interface for TCP: its first IPv4 address, else its first IPv6 one; NULL or "" =
	 * the address of `address_hint`. An error only if there are ranks on other hosts. */
	const char *interface;
	/* host name or address of this host, IPv4 or IPv6; NULL = 127.0.0.1 */
	const char *address_hint;
	/* How long an operation may take from when it first has to sleep for another rank; 0 or
	 * less, or more than 1e9: without end. A host that does not answer at all over the network
	 * is lost after half of it, and after a minute at the most. */
	double timeout_s;
	/* NULL or "auto"; "shm": refused when there are several hosts; "tcp": also inside a
	 * host, for tests. */
	const char *backend;
	/* NULL or "" = by the table; else a name of comm_algorithms, used wherever it fits. This
	 * and `backend` must be the same on all ranks, or comm_open refuses. */
	const char *algorithm;
	/* TCP connections a pair of ranks and group, 1 to COMM_SOCKETS_MOST, on every rank the
	 * same; 0 = the default, 1: between two hosts of one machine, where the processor is what
	 * limits, 1, 2 and 4 are as fast. */
	int sockets;
	/* What TCP connections carry besides TCP's own 16-bit checksum, on every rank the same:
	 * tcp/records.h says what each finds. A broken record fails the operation. Shared memory is
	 * never checked. */
	enum comm_integrity integrity;
	/* where the flight recorder goes when an operation fails, NULL = nowhere */
	const char *dump_dir;
};

enum { COMM_SOCKETS_MOST = 16 };

struct comm;         /* a group; the world is one */
struct comm_request; /* an operation under way */

/* The names of all algorithms, of each once; ends with NULL. */
const char *const *comm_algorithms(void);
/* The one that an all-reduce of so many bytes takes, in memory that is not comm_alloc's. */
const char *comm_all_reduce_algorithm(const struct comm *c, size_t bytes);

/* Collective over all ranks of the bootstrap. On return the bootstrap is no
 * longer needed. Shared memory has no name in any file system, so that a
 * killed rank leaves nothing behind. */
int comm_open(const struct comm_bootstrap *boot, const struct comm_options *opt,
	      struct comm **world, struct err *e);
/* Closes a group; closing the world closes all its groups. Takes NULL. Not
 * collective, and never waits for another rank. A request that is still open is
 * ended with the whole world, and must not be touched after it. */
void comm_close(struct comm *c);

/* Collective over `c`: ranks with the same color (>= 0) form a group, ordered
 * by key, then rank. color < 0: no group, *out = NULL. The name is for
 * errors, such as "tp", and copied. */
int comm_split(struct comm *c, int color, int key, const char *name, struct comm **out,
	       struct err *e);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_name(const struct comm *c);
/* "shm", "tcp" or "hybrid" (shm inside hosts, tcp across); of a device group "staged", or its
 * library, "nccl". */
const char *comm_backend(const struct comm *c);

/* Ends every operation of the world that `c` belongs to, in every thread of this process, now and
 * from now on; each returns ERR_ABORTED with `reason` (or NULL), or the error that came before. The
 * other ranks' operations fail with ERR_PEER and the same words. */
void comm_abort(struct comm *c, const char *reason);

/* Writes the flight recorder of every group of c's world to `path`, as one JSON object (recorder.h
 * says which): the last operations of each group, with state and times. From any thread, also while
 * operations are under way. The file is complete or not there. */
int comm_dump(struct comm *c, const char *path, struct err *e);

/* Memory that the ranks of this host can read: operations whose buffers all lie in such memory copy
 * nothing twice. Page-aligned, zeroed, its pages taken at once; not collective; from any thread;
 * freed by comm_free or with the world. Serves all groups of the world. Any other memory works as
 * well, with copies. comm_free takes NULL and may not be called while an operation uses the memory.
 */
int comm_alloc(struct comm *c, size_t bytes, void **out, struct err *e);
void comm_free(struct comm *c, void *memory);

/* out[count] = reduction over ranks of in[count]. */
int comm_all_reduce(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    enum comm_op op, struct err *e);
/* Only root's out is set; others may pass NULL. */
int comm_reduce(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		enum comm_op op, int root, struct err *e);
int comm_broadcast(struct comm *c, void *data, size_t count, enum comm_type type, int root,
		   struct err *e);
/* out[size][count]; in may be out + rank * count. */
int comm_all_gather(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    struct err *e);
/* Rank r gives counts[r] elements; out is their concatenation. */
int comm_all_gatherv(struct comm *c, const void *in, void *out, const size_t *counts,
		     enum comm_type type, struct err *e);
/* in[size][count], out[count] = the reduction of everyone's block `rank`; out may be in + rank *
 * count. */
int comm_reduce_scatter(struct comm *c, const void *in, void *out, size_t count,
			enum comm_type type, enum comm_op op, struct err *e);
int comm_reduce_scatterv(struct comm *c, const void *in, void *out, const size_t *counts,
			 enum comm_type type, enum comm_op op, struct err *e);
/* in[size][count] to out[size][count]; block r of in goes to rank r. With counts: in_counts[r] is
 * what this rank gives to r, out_counts[r] what it takes from r. in != out. */
int comm_all_to_all(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    struct err *e);
int comm_all_to_allv(struct comm *c, const void *in, const size_t *in_counts, void *out,
		     const size_t *out_counts, enum comm_type type, struct err *e);
/* Rank r's block of root's out is r's in, of count or counts[r] elements. */
int comm_gather(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		int root, struct err *e);
int comm_gatherv(struct comm *c, const void *in, void *out, const size_t *counts,
		 enum comm_type type, int root, struct err *e);
/* Rank r takes block r of root's in. */
int comm_scatter(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		 int root, struct err *e);
/* Rank r takes counts[r] elements of root's in, their concatenation. */
int comm_scatterv(struct comm *c, const void *in, void *out, const size_t *counts,
		  enum comm_type type, int root, struct err *e);
int comm_barrier(struct comm *c, struct err *e);

/* Messages between two ranks are matched in order, per group. A send waits until the data has left
 * the buffer, at most until the receiver takes it. The receiver expects as many bytes as are sent.
 * A message to oneself needs comm_group, with its send and its receive in one call. */
int comm_send(struct comm *c, const void *data, size_t count, enum comm_type type, int to,
	      struct err *e);
int comm_recv(struct comm *c, void *data, size_t count, enum comm_type type, int from,
	      struct err *e);

/* Several sends and receives at once: none waits for another's completion. */
struct comm_p2p {
	bool send;
	void *data;
	size_t count;
	enum comm_type type;
	int peer;
};
int comm_group(struct comm *c, const struct comm_p2p *ops, int n, struct err *e);

/* Asynchronous forms: they run in order of their starts on the group's own thread; buffers belong
 * to the operation until comm_wait, lists of counts are copied. Blocking operations of the group
 * may not be called while a request is open. */
int comm_all_reduce_start(struct comm *c, const void *in, void *out, size_t count,
			  enum comm_type type, enum comm_op op, struct comm_request **req,
			  struct err *e);
int comm_reduce_start(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		      enum comm_op op, int root, struct comm_request **req, struct err *e);
int comm_broadcast_start(struct comm *c, void *data, size_t count, enum comm_type type, int root,
			 struct comm_request **req, struct err *e);
int comm_all_gather_start(struct comm *c, const void *in, void *out, size_t count,
			  enum comm_type type, struct comm_request **req, struct err *e);
int comm_all_gatherv_start(struct comm *c, const void *in, void *out, const size_t *counts,
			   enum comm_type type, struct comm_request **req, struct err *e);
int comm_reduce_scatter_start(struct comm *c, const void *in, void *out, size_t count,
			      enum comm_type type, enum comm_op op, struct comm_request **req,
			      struct err *e);
int comm_reduce_scatterv_start(struct comm *c, const void *in, void *out, const size_t *counts,
			       enum comm_type type, enum comm_op op, struct comm_request **req,
			       struct err *e);
int comm_all_to_all_start(struct comm *c, const void *in, void *out, size_t count,
			  enum comm_type type, struct comm_request **req, struct err *e);
int comm_all_to_allv_start(struct comm *c, const void *in, const size_t *in_counts, void *out,
			   const size_t *out_counts, enum comm_type type, struct comm_request **req,
			   struct err *e);
int comm_gather_start(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		      int root, struct comm_request **req, struct err *e);
int comm_gatherv_start(struct comm *c, const void *in, void *out, const size_t *counts,
		       enum comm_type type, int root, struct comm_request **req, struct err *e);
int comm_scatter_start(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		       int root, struct comm_request **req, struct err *e);
int comm_scatterv_start(struct comm *c, const void *in, void *out, const size_t *counts,
			enum comm_type type, int root, struct comm_request **req, struct err *e);
int comm_barrier_start(struct comm *c, struct comm_request **req, struct err *e);
/* ops is copied, the data is not. */
int comm_group_start(struct comm *c, const struct comm_p2p *ops, int n, struct comm_request **req,
		     struct err *e);
/* 1 done, 0 not yet: comm_wait still frees it. NULL is done. */
int comm_test(struct comm_request *req);
/* Waits, frees the request, returns the operation's result. NULL is done. */
int comm_wait(struct comm_request *req, struct err *e);

/*
 * Device memory. comm_on_device makes a group of the same ranks whose buffers are all in the memory
 * of a device, and so are those of the groups split from it; the group it was made of goes on with
 * the host's memory. Each rank gives a device of its own or shares one. Two backends carry the
 * operations out:
 *
 *     the device's library   "nccl": where each rank has a device of its own and all can use it.
 *                            Reductions have the library's order: the same bits for the same group,
 *                            size and inputs on the same machines, but not those of the other
 *                            backends.
 *     "staged"               through memory of the host and the host's backends: anywhere, and the
 *                            same bits as there.
 *
 * Operations keep to a stream of the device. An operation, blocking or not, reads and writes its
 * buffers after the work that was queued on the group's stream before the call. Work that is queued
 * on it after a blocking call has returned, or after comm_wait has, comes after the operation: it
 * sees the results and may overwrite the inputs. Neither waits for more than it must: the library's
 * operations may still be going on when the call returns, or have not begun. The host itself, and
 * other streams, wait with comm_sync first. comm_test: whether comm_wait would return at once.
 * comm_barrier too is an operation on the stream.
 *
 * An error that shows later, a rank that does not come to an operation of the library, is returned
 * by the next call or by comm_sync; the time-out runs from when the operation's inputs are there.
 * comm_split first waits for the group's operations. comm_close of a group over the library waits
 * up to a second for those of this host that close it as well, because it keeps memory that they
 * may still read.
 */
struct comm_device; /* device.h; libmuster-cuda.so has one */

struct comm_device_options {
	const struct comm_device *device;
	int index; /* of those that this process sees */
	/* NULL or "auto"; "staged"; or the library's name: ERR_UNSUPPORTED where it cannot be */
	const char *backend;
};

/* Collective. *out is closed like a group that was split. */
int comm_on_device(struct comm *c, const struct comm_device_options *opt, const char *name,
		   struct comm **out, struct err *e);
/* The stream of the calls that follow (NULL: the device's default stream, as at first); a split
 * group begins with its parent's. Not collective. */
void comm_stream(struct comm *c, void *stream);
/* Until all operations of the group that have been called and waited for are carried out. On
 * host memory they are. */
int comm_sync(struct comm *c, struct err *e);

/* Bytes sent by this rank through this group's operations, for the reports. */
uint64_t comm_bytes(const struct comm *c);

#endif
