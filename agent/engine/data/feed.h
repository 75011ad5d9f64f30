/*
 * feed — reads a rank's share of the coming steps ahead of the training thread.
 *
 * The global batch of a step is the next `global` samples of the run from its position on, without
 * those that the run skips (`skips`). Sample i of a batch is read by the rank with offset <= i <
 * offset + share. Replicas may have unequal shares; together they tile the batch.
 *
 * A reader thread fills a ring of ahead + 1 buffers. data_feed_next returns the oldest one without
 * copying and takes back the one that it returned before. With ahead = 0 there is no thread, and
 * data_feed_next reads itself. The thread sleeps while the ring is full, data_feed_next while it is
 * empty. A read error is returned by the data_feed_next of its step, not before, and by every later
 * one. data_feed_close waits for at most one sample of a share that is being read.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_FEED_H
#define MUSTER_AGENT_ENGINE_DATA_FEED_H

#include "agent/engine/ckpt/format/digest.h"
#include "agent/engine/data/data.h"
#include "base/err.h"
#include "base/ranges.h"

#include <stdbool.h>
#include <stdint.h>

struct feed; /* one thread calls its functions */

struct feed_options {
	const struct dataset *data; /* borrowed */
	enum data_split split;
	uint64_t seed;
	int64_t vocab;
	int64_t position;           /* in the order, of the first step */
	int64_t skipped;            /* how many samples before `position` were skipped */
	const struct ranges *skips; /* positions that are not read; borrowed; NULL: none */
	int64_t global;             /* samples of a step, over all ranks */
	int64_t offset, share;      /* this rank's part of them */
	/* steps to read; data_feed_next may be called at most this many times */
	int64_t steps;
	int64_t ahead; /* steps read ahead, 0: none */
	bool starts;   /* whether `starts` is read */
	/* called for each sample, on the thread that reads, while data_feed_next waits; NULL:
	 * none */
	void (*moved)(void *arg);
	void *moved_arg;
};

/* A rank's share of a step: [share, seq] each; valid until the next data_feed_next. */
struct feed_batch {
	const int32_t *inputs, *targets, *starts; /* starts: NULL if not read */
	int64_t position, count; /* of the share's first sample in the order; samples */
	int64_t sample;          /* samples that the run consumed before the share's first one */
	struct digest digest;    /* of the share: of each sample's position, inputs and targets */
};

int data_feed_open(const struct feed_options *opt, struct feed **out, struct err *e);
void data_feed_close(struct feed *f); /* takes NULL */
int data_feed_next(struct feed *f, struct feed_batch *out, struct err *e);

/* A share: of the samples from `position` on that are not in `skips`, `count` after the first
 * `before` ones. */
struct feed_share {
	const struct ranges *skips; /* NULL: none */
	int64_t position, before, count;
};

/* Computes the digest of a share from the data. tokens: scratch space for 2 seq tokens. */
int data_feed_digest(const struct dataset *data, enum data_split split, uint64_t seed,
		     int64_t vocab, const struct feed_share *share, int32_t *tokens,
		     struct digest *out, struct err *e);

#endif
