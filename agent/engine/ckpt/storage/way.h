/*
 * way — how the large files of a file system are written fastest: past the page cache (O_DIRECT) or
 * through it.
 *
 * Which one is faster depends on the disk, the file system, the kernel's write-back and the load, so
 * it is measured, on files that are written anyway (behind.h): the first of a file system, and later
 * every 16th, begin with one piece in each way, synced, and the rest is written in the better one.
 * The rates are averages over these trials. Direct writing is preferred unless the page cache is
 * clearly faster, because it leaves the cache to the training data and costs no copy. It is not
 * used where the file system refuses it.
 *
 * The table belongs to the process. Every function may be called from any thread.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_WAY_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_WAY_H

#include <stdbool.h>
#include <stdint.h>

enum ckpt_way { CKPT_WAY_DIRECT, CKPT_WAY_BUFFERED, CKPT_WAYS };

/* The way to write the next file of this device (st_dev). */
enum ckpt_way ckpt_way_choose(uint64_t device);
/* Counts a file. Whether it is one that tries both ways. */
bool ckpt_way_tries(uint64_t device);
/* The result of a trial. */
void ckpt_way_learn(uint64_t device, enum ckpt_way way, double bytes_per_s);
/* The file system does not write directly. */
void ckpt_way_refuse(uint64_t device);

#endif
