/*
 * comm — collectives and point-to-point messages between the ranks of a job. This header is the
 * public interface of libcomm; group.h is the map of its folders.
 *
 * A world is opened once over a bootstrap; groups are split from it. All ranks of a group call the
 * same operations in the same order. All counts are in elements. A list of counts has one entry per
 * rank and is the same on all ranks, except in all_to_allv. One thread at a time calls into a
 * group. Different threads may use different groups at the same time and do not block each other.
 * comm_abort may be called from any thread until the world is closed.
 *
 * In place: if `in` and `out` are equally long (all_reduce, reduce), they may be equal. If one of
 * them holds only this rank's block, it may be that block of the other one (all_gather, gather,
 * reduce_scatter, scatter). Otherwise, and always in all_to_all, the buffers of a call may not
 * overlap. A buffer that this rank neither sends nor receives, or that has no elements, may be
 * NULL.
 *
 * Order of a reduction: rank order, along a fixed binary tree over the group. With n ranks, the
 * left half is the first p ranks, where p is the largest power of two below n, and sum(group) =
 * sum(left) + sum(right). The algorithm, the size and the order of arrival do not change this. The
 * same group and inputs therefore give the same bits, on every rank. bf16 and fp16 accumulate in
 * fp32 and round once at the end. A NaN propagates through sums and products; a maximum or minimum
 * may lose it, but all ranks get the same value.
 *
 * Errors: ERR_TIMEOUT, ERR_ABORTED, ERR_PEER, ERR_NET, ERR_NOMEM; ERR_PROTO if the ranks call
 * different operations or use different counts. The text names the operation, the group, its
 * sequence number and the rank that is missing. After an error the world is aborted: every later
 * call returns the first error and the operation that it prevented, and the other ranks learn of
 * it. The output of the failed operation is undefined. Other ranks may continue to write their
 * parts of it to memory of comm_alloc until that memory is freed or the world is closed; any other
 * memory can be reused at once. ERR_USAGE is the exception: a wrong call is refused before it has
 * any effect.
 *
 * fork: a child must not use or close the world. Until it exits or calls exec, it keeps the
 * connections of its parent open, so that the parent's death is detected late, and it shares the
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

enum { COMM_NEAR = 3 };

/* Which ranks are next to a rank when a world is wired up (wire/neighbours.h). */
struct comm_place {
	int leader; /* the first of the ranks that share this rank's host */
	/* Of the leader only: all ranks of the host, ascending, and the leaders of the hosts next to
	 * it in the tree over all hosts, the parent first. If the backend is "tcp", each rank counts
	 * as a host. */
	const int *here;
	int n_here;
	int near[COMM_NEAR], n_near;
	bool has_parent;
};

/* How a world finds its ranks. The agent passes PMIx's functions, the tests pass a pipe's. put is
 * local; fence is collective and distributes the data; get works after a fence, for the ranks of the
 * place: itself, its leader, those here and near. Values are printable texts without NUL. */
struct comm_bootstrap {
	int rank, size;
	int (*put)(void *arg, const char *key, const char *value, struct err *e);
	int (*fence)(void *arg, struct err *e);
	/* The caller frees *value. */
	int (*get)(void *arg, int rank, const char *key, char **value, struct err *e);
	void *arg;
	/* Borrowed for comm_open(). NULL: each rank gets the values of all ranks, and finds out. */
	const struct comm_place *place;
};

struct buf;
struct comm;         /* a group; the world is one */
struct comm_request; /* an operation in progress */

enum comm_integrity {
	COMM_INTEGRITY_NONE,
	COMM_INTEGRITY_CHECKSUM,
	COMM_INTEGRITY_SEAL,
	COMM_INTEGRITY_COUNT
};

/* "none", "checksum", "seal". comm_integrity_parse returns -1 if the word is unknown. */
const char *comm_integrity_name(enum comm_integrity integrity);
int comm_integrity_parse(const char *word);

struct comm_options {
	/* This rank's host. Ranks with equal names use shared memory. NULL or "": "localhost". */
	const char *host;
	/* Network interface for TCP: its first IPv4 address, otherwise its first IPv6 address. NULL
	 * or "": the address of `address_hint`. It is an error only if there are ranks on other
	 * hosts. */
	const char *interface;
	/* Name or address of this host, IPv4 or IPv6. NULL: 127.0.0.1. */
	const char *address_hint;
	/* Limit of an operation, counted from when it first sleeps for another rank. 0 or less, or
	 * more than 1e9: no limit. A host that does not answer over the network at all is lost
	 * after half of it, and after one minute at most. */
	double timeout_s;
	/* NULL or "auto"; "shm": refused if there are several hosts; "tcp": also within a host, for
	 * tests. */
	const char *backend;
	/* NULL or "": chosen by the table; otherwise a name of comm_algorithms, used wherever it
	 * can run. comm_open refuses if this or `backend` differs between ranks. */
	const char *algorithm;
	/* TCP connections per pair of ranks and group, 1 to COMM_SOCKETS_MAX, equal on all ranks.
	 * 0: the default, 1. Between two hosts on one machine, where the processor is the limit, 1,
	 * 2 and 4 are equally fast. */
	int sockets;
	/* Protection of TCP connections beyond TCP's own 16-bit checksum, equal on all ranks;
	 * tcp/records.h says what each mode detects. A broken record fails the operation. Shared
	 * memory is never checked. */
	enum comm_integrity integrity;
	/* Folder for the flight recorder's dump when an operation fails. NULL: no dump. */
	const char *dump_dir;
	/* Called by comm_open before it waits for the other ranks, other than in the fence, with a
	 * handle that comm_abort takes until the world is closed: it ends that wait. Called with NULL
	 * before a world that could not be opened is freed. NULL: none. */
	void (*joining)(void *arg, struct comm *world);
	void *joining_arg;
};

enum { COMM_SOCKETS_MAX = 16 };

/* The names of all algorithms, each once. The list ends with NULL. */
const char *const *comm_algorithms(void);
/* The algorithm that an all-reduce of so many bytes uses in memory that is not comm_alloc's. */
const char *comm_all_reduce_algorithm(const struct comm *c, size_t bytes);

/* Collective over all ranks of the bootstrap. On return the bootstrap is no longer needed. Shared
 * memory has no name in any file system, so a killed rank leaves nothing behind. */
int comm_open(const struct comm_bootstrap *boot, const struct comm_options *opt,
	      struct comm **world, struct err *e);
/* Closes a group; closing the world closes all its groups. Takes NULL. Not collective; never waits
 * for another rank. If a request is still open, the whole world ends; the request must not be used
 * afterwards. */
void comm_close(struct comm *c);

/* Collective over `c`. Ranks with the same color (>= 0) form a group, ordered by key, then by rank.
 * color < 0: no group, *out = NULL. The name, such as "tp", appears in errors; it is copied. */
int comm_split(struct comm *c, int color, int key, const char *name, struct comm **out,
	       struct err *e);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
const char *comm_name(const struct comm *c);
/* "shm", "tcp" or "hybrid" (shm within hosts, tcp between them). A device group: "staged", or the
 * name of its library, "nccl". */
const char *comm_backend(const struct comm *c);

/* Ends every operation of c's world in all threads of this process, now and in the future. Each
 * returns ERR_ABORTED with `reason` (may be NULL), or the error that came earlier. The other ranks'
 * operations fail with ERR_PEER and the same text. */
void comm_abort(struct comm *c, const char *reason);

/* Writes the flight recorder of every group of c's world to `path`, as one JSON object: the last
 * operations of each group, with state and times (format: flight/recorder.h). From any thread, also
 * while operations are in progress. The file is either complete or absent. */
int comm_dump(struct comm *c, const char *path, struct err *e);

enum { COMM_TAPE_OPS = 1 << 18 /* operations of each group that a tape holds */ };

/* From now on every operation that ends is kept, in all groups of c's world that are open now, until
 * comm_tape_stop(): to look at a few steps closely. An operation costs about 500 bytes meanwhile. Any
 * thread. */
void comm_tape_start(struct comm *c);
/* Stops, and takes the operations away, without making their text: this holds up no operation for
 * longer than a few pointers take. *out is valid as long as the world. Any thread. */
struct comm_tape;
int comm_tape_stop(struct comm *c, struct comm_tape **out, struct err *e);
/* Appends the operations in the format of comm_dump(). Any thread; operations go on meanwhile. */
int comm_tape_write(const struct comm_tape *t, struct buf *out, struct err *e);
/* Operations that have begun so far, in all groups of c's world that are open now. Any thread. */
int64_t comm_ops_begun(struct comm *c);
/* Operations that ended while the tape had no room (COMM_TAPE_OPS). */
int64_t comm_tape_lost(const struct comm_tape *t);
/* Takes NULL. */
void comm_tape_free(struct comm_tape *t);

/* What has been sent to another rank over the network, in one group: sums since its connections
 * were made. */
struct comm_link {
	char group[32];
	int peer; /* its world rank */
	double bytes;
	/* seconds in which bytes were on their way, and no full buffer at either end was the
	 * reason: the mean of its connections */
	double busy_s;
	double segments, resent;
};
/* Fills out[most] with the links of all groups of c's world that have a connection. Returns their
 * number. From any thread; it asks the kernel once per connection. */
int comm_links(struct comm *c, struct comm_link *out, int most);

/* Memory that the ranks of this host can access directly. An operation whose buffers all lie in
 * such memory makes no extra copies. Page-aligned, zeroed, with all pages allocated; not
 * collective; from any thread; freed by comm_free or with the world. All groups of the world can
 * use it. Any other memory works too, with copies. comm_free takes NULL. It may not be called while
 * an operation uses the memory. */
int comm_alloc(struct comm *c, size_t bytes, void **out, struct err *e);
void comm_free(struct comm *c, void *memory);

/* out[count] = reduction over ranks of in[count]. */
int comm_all_reduce(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    enum comm_op op, struct err *e);
/* Only root's out is set; other ranks may pass NULL. */
int comm_reduce(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		enum comm_op op, int root, struct err *e);
int comm_broadcast(struct comm *c, void *data, size_t count, enum comm_type type, int root,
		   struct err *e);
/* out[size][count]; in may be out + rank * count. */
int comm_all_gather(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    struct err *e);
/* Rank r contributes counts[r] elements; out is their concatenation. */
int comm_all_gatherv(struct comm *c, const void *in, void *out, const size_t *counts,
		     enum comm_type type, struct err *e);
/* in[size][count]; out[count] = the reduction of all ranks' block `rank`; out may be in + rank *
 * count. */
int comm_reduce_scatter(struct comm *c, const void *in, void *out, size_t count,
			enum comm_type type, enum comm_op op, struct err *e);
int comm_reduce_scatterv(struct comm *c, const void *in, void *out, const size_t *counts,
			 enum comm_type type, enum comm_op op, struct err *e);
/* in[size][count] to out[size][count]; block r of in goes to rank r. With counts: this rank sends
 * in_counts[r] elements to r and receives out_counts[r] from r. in != out. */
int comm_all_to_all(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		    struct err *e);
int comm_all_to_allv(struct comm *c, const void *in, const size_t *in_counts, void *out,
		     const size_t *out_counts, enum comm_type type, struct err *e);
/* Block r of root's out is rank r's in, of count or counts[r] elements. */
int comm_gather(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		int root, struct err *e);
int comm_gatherv(struct comm *c, const void *in, void *out, const size_t *counts,
		 enum comm_type type, int root, struct err *e);
/* Rank r receives block r of root's in. */
int comm_scatter(struct comm *c, const void *in, void *out, size_t count, enum comm_type type,
		 int root, struct err *e);
/* Rank r receives counts[r] elements of root's in, the concatenation of all blocks. */
int comm_scatterv(struct comm *c, const void *in, void *out, const size_t *counts,
		  enum comm_type type, int root, struct err *e);
int comm_barrier(struct comm *c, struct err *e);

/* Messages between two ranks are matched in order, per group. A send returns once the data has left
 * the buffer, at the latest when the receiver has taken it. The receiver must expect as many bytes
 * as are sent. A message to oneself needs comm_batch_send_recv, with its send and its receive in
 * one call. */
int comm_send(struct comm *c, const void *data, size_t count, enum comm_type type, int to,
	      struct err *e);
int comm_recv(struct comm *c, void *data, size_t count, enum comm_type type, int from,
	      struct err *e);

/* Several sends and receives at once: none waits for another one to complete. */
struct comm_p2p {
	bool send;
	union {
		void *data;
		const void *source; /* the same pointer; a send only reads it */
	};
	size_t count;
	enum comm_type type;
	int peer;
};
int comm_batch_send_recv(struct comm *c, const struct comm_p2p *ops, int n, struct err *e);

/* Asynchronous forms. They run in the order of their starts on the group's own thread.
 * Operations on device memory that the device's library runs ("nccl") are queued by the
 * caller's thread instead: so those of all groups reach the library in the program's order.
 * There must be one order of all operations, of all groups, that contains each rank's order; a
 * message counts as one operation of two ranks. Otherwise operations that wait for each other
 * may fill the devices. A start may wait for the other ranks of the operation when a group uses
 * a connection for the first time. Buffers belong to the operation until comm_wait; lists of
 * counts are copied. Blocking operations of the group may not be called while a request is
 * open. */
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
int comm_batch_send_recv_start(struct comm *c, const struct comm_p2p *ops, int n,
			       struct comm_request **req, struct err *e);
/* Several operations of one kind that are one request: all_reduce, reduce_scatter or all_gather of
 * each part by itself, with the buffers of the single call. Their results are those of single
 * calls, except that a device's library may sum in another order if they run together. n = 0 does
 * nothing. parts is copied, the data is not. */
struct comm_part {
	const void *in;
	void *out;
	size_t count;
};
int comm_all_reduce_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
				    enum comm_type type, enum comm_op op, struct comm_request **req,
				    struct err *e);
int comm_reduce_scatter_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
					enum comm_type type, enum comm_op op,
					struct comm_request **req, struct err *e);
int comm_all_gather_coalesced_start(struct comm *c, const struct comm_part *parts, int n,
				    enum comm_type type, struct comm_request **req, struct err *e);
/* Whether a device's library launches the operations of such a request together, which costs about
 * as much as one. Elsewhere they run one after the other, and one request for all only makes the
 * caller wait for more than it needs. */
bool comm_coalesces(const struct comm *c);
/* 1: done; 0: not yet. comm_wait must still free the request. NULL counts as done. */
int comm_test(struct comm_request *req);
/* Waits, frees the request and returns the operation's result. NULL counts as done. */
int comm_wait(struct comm_request *req, struct err *e);

/*
 * Device memory. comm_on_device makes a group of the same ranks whose buffers are all in the memory
 * of a device; groups split from it work on the same device. The original group continues to use
 * host memory. Each rank passes a device; ranks may share one. Two backends run the operations:
 *
 *     the device's library   "nccl": needs one device per rank that the library can use.
 *                            Reductions have the library's order: the same bits for the same
 *                            group, size and inputs on the same machines, but not the bits of
 *                            the other backends.
 *     "staged"               through host memory and the host's backends: works everywhere,
 *                            with the same bits as there.
 *
 * Operations follow a stream of the device. An operation, blocking or not, reads and writes its
 * buffers after the work that was queued on the group's stream before the call. Work that is queued
 * on the stream after a blocking call or comm_wait has returned runs after the operation: it sees
 * the results and may overwrite the inputs. Neither call waits longer than necessary: the library's
 * operations may still be running when the call returns, or may not have begun. The host itself and
 * other streams must call comm_sync first. comm_test says whether comm_wait would return at once.
 * comm_barrier is an operation on the stream too.
 *
 * An error that shows later, such as a rank that does not join an operation of the library, is
 * returned by the next call or by comm_sync. The time-out runs from when the operation's inputs are
 * ready. comm_split first waits for the group's operations. comm_close of a group over the library
 * waits up to one second for the ranks of this host that also close it, because it holds memory
 * that they may still read.
 */
struct comm_device; /* device/device.h; libmuster-cuda.so has one */

struct comm_device_options {
	const struct comm_device *device;
	int index; /* among the devices that this process sees */
	/* NULL or "auto"; "staged"; or the library's name: ERR_UNSUPPORTED if it cannot be used */
	const char *backend;
	int processors; /* as for comm_processors, of this group itself */
};

/* Collective. *out is closed like a split group. */
int comm_on_device(struct comm *c, const struct comm_device_options *opt, const char *name,
		   struct comm **out, struct err *e);
/* Sets the stream for the calls that follow. NULL: the device's default stream, which is the
 * initial one. A split group inherits its parent's. Not collective. */
void comm_stream(struct comm *c, void *stream);
/* The groups that are split from c from now on take at most so many of the device's processors
 * in an operation, and leave the others to computation. 0, the initial value: the library chooses.
 * Equal on all ranks; only a device's library follows it. */
void comm_processors(struct comm *c, int most);
/* Memory of the device: one allocation, and the whole of it, because libraries map allocations to
 * equal offsets on all ranks. reachable: its library allocated it (device_collectives.alloc). */
struct comm_memory {
	void *at;
	size_t bytes;
	bool reachable;
};

/* Collective: all ranks pass equally many. Lets the device's library read and write this memory
 * without copies of its own, in operations of c and until c is closed; the memory must remain until
 * then. The library needs all ranks to register the same memory or none, so they agree: 1, all have;
 * 0, none has, because a rank has memory that is not reachable, or its library refused (then *e has
 * its reason on that rank), or the library runs no operations of c; -1: a failure, like an
 * operation's. Operations work in the first two cases. */
int comm_register(struct comm *c, const struct comm_memory *list, int n, struct err *e);
/* Waits until all operations of the group that were called and waited for are complete. On host
 * memory they always are. */
int comm_sync(struct comm *c, struct err *e);

/*
 * Graphs. A device can record what a thread queues on a stream, and run it again and again
 * (backend_graph_begin in kernels/ops.h). Operations of the device's library can be part of that:
 *
 *     comm_graph_begin    the device records from here; this thread's operations are recorded
 *     comm_graph_end      then the device stops recording
 *     comm_graph_repeat   before a launch, except the first: from here on, calls of this thread
 *                         that were recorded do nothing and return no request, so that their
 *                         caller can keep its books as it did while recording
 *     comm_graph_launch   before each launch of the device's graph. No communicator of the library
 *                         ends while the caller launches
 *     comm_graph_launched after it, soon
 *     comm_graph_free     before any of its groups is closed, and after the device's graph
 *
 * Operations are numbered, watched and noted in the flight recorder at each launch. All ranks of a
 * group must record and launch the same graphs in the same order, and have no other operation of
 * the group open then. Requests that are still open at comm_graph_end are complete when the graph
 * is; comm_wait frees them. A request from before comm_graph_begin may be waited for while the graph
 * is recorded if comm_graph_awaits says so: then the graph waits for that operation, and each
 * repetition waits for one that takes its place. NCCL asks for the same: whether a call is captured
 * is "a collective property of that operation" (user guide, "Using NCCL with CUDA Graphs"). Graphs
 * and other operations of one communicator never run at the same time here, which is where that
 * guide warns of deadlocks.
 *
 * All calls are of one thread. They fail like an operation: the world ends with them.
 */
struct comm_graph;

/* Whether the group's operations can be recorded: the device's library runs them, in the caller's
 * thread. NULL counts as a group of one rank: it can. */
bool comm_graph_fits(const struct comm *c);
/* Lets graphs wait for operations of the group that are under way, if the device can do that.
 * Before any comm_graph_begin. */
int comm_graph_prepare(struct comm *c, struct err *e);
bool comm_graph_awaits(const struct comm *c);
int comm_graph_begin(struct comm_graph **out, struct err *e);
int comm_graph_end(struct comm_graph *g, struct err *e);
int comm_graph_repeat(struct comm_graph *g, struct err *e);
/* Ends a repetition that failed, instead of a launch. */
void comm_graph_give_up(struct comm_graph *g);
int comm_graph_launch(struct comm_graph *g, struct err *e);
int comm_graph_launched(struct comm_graph *g, struct err *e);
/* Takes NULL. Also ends a recording. */
void comm_graph_free(struct comm_graph *g);

/* The bytes that this rank has sent in this group's operations, for reports. */
uint64_t comm_bytes(const struct comm *c);

#endif
