/*
 * feed — a rank's share of the steps to come, read ahead of the training thread.
 *
 * A step's global batch is the samples [position, position + global) of the run; a rank reads the
 * run of positions [position + offset, + share) of each. Replicas may have unequal shares; together
 * they tile the batch.
 *
 * A reader thread fills a ring of ahead + 1 buffers; data_feed_next hands the oldest out without
 * copying and takes back the one that it gave before. ahead = 0: there is no thread, data_feed_next
 * reads itself. The thread sleeps while the ring is full, data_feed_next while it is empty. What
 * fails to be read is told by the data_feed_next of that step, not before, and by every one after
 * it. data_feed_close does not wait for the rest of a share that is being read: at most for one
 * sample.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_FEED_H
#define MUSTER_AGENT_ENGINE_DATA_FEED_H

#include "agent/engine/ckpt/digest.h"
#include "agent/engine/data/data.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct feed; /* one thread calls its functions */

struct feed_options {
	const struct dataset *data; /* borrowed */
	enum data_split split;
	uint64_t seed;
	int64_t vocab;
	int64_t position;      /* of the first step */
	int64_t global;        /* samples of a step, over all ranks */
	int64_t offset, share; /* this rank's part of them */
	/* how many there are to read; data_feed_next is not called more often */
	int64_t steps;
	int64_t ahead; /* steps read ahead, 0: none */
	bool starts;   /* whether a document's start is wanted */
	/* on whichever thread reads, with each sample, while data_feed_next waits; NULL: nobody */
	void (*moved)(void *arg);
	void *moved_arg;
};

/* rank's share of a step: [share, seq] each; good until the next data_feed_next */
struct feed_batch {
	const int32_t *inputs, *targets, *starts; /* starts: NULL when not wanted */
	int64_t position, count;                  /* of the share's first sample; samples */
	struct digest digest; /* of the share: of each sample's position, inputs and targets */
};

int data_feed_open(const struct feed_options *opt, struct feed **out, struct err *e);
void data_feed_close(struct feed *f); /* takes NULL */
int data_feed_next(struct feed *f, struct feed_batch *out, struct err *e);

/* The digest that a share has, computed from the data anew: tokens is room for 2 seq of them. */
int data_feed_digest(const struct dataset *data, enum data_split split, uint64_t seed,
		     int64_t vocab, int64_t position, int64_t count, int32_t *tokens,
		     struct digest *out, struct err *e);

#endif
