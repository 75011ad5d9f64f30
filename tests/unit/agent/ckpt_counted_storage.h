/* ckpt_counted_storage — folders whose reads are counted byte by byte over all processes. A read can
 * be made to fail, to flip a bit, or to end its process. */
#ifndef MUSTER_TESTS_UNIT_AGENT_CKPT_COUNTED_STORAGE_H
#define MUSTER_TESTS_UNIT_AGENT_CKPT_COUNTED_STORAGE_H

#include "agent/engine/ckpt/storage/storage.h"

#define COUNTED_SCHEME "counted://" /* followed by the folder's path */

enum { COUNTED_FILES = 16, COUNTED_BYTES = 1 << 16 };

enum counted_fault { COUNTED_NONE, COUNTED_FAIL, COUNTED_DIE };

/* In memory that all ranks share. */
struct counted {
	/* How often each byte of shard-0000N was read; the last row is of the other files. Bytes
	 * beyond COUNTED_BYTES are not counted. */
	unsigned char shards[COUNTED_FILES][COUNTED_BYTES];
	long long bytes; /* of all reads */
};

/* Opens the storage before the ranks are forked, and closes it. */
struct counted *counted_open(void);
void counted_close(struct counted *c);

/* In this process: the read number `at`, from 1 on, has the fault. at 0: none has. */
void counted_fault(enum counted_fault what, int at);
int counted_reads(void); /* of this process, since counted_fault */
/* In this process: reads of the byte of shard-0000N get its first bit flipped. byte -1: none. */
void counted_flip(int shard, int64_t byte);

#endif
