/*
 * data — packed token files, and which sample a step reads.
 *
 * Files are Megatron's: PREFIX.idx ("MMIDIDX\0\0", u64 version 1, u8 type code,
 * u64 sequences, u64 documents, int32 lengths, int64 byte pointers, int64 document
 * boundaries) and PREFIX.bin (the raw tokens). The file is mapped; the tokens
 * count as one stream of documents. Sample i is the tokens [i*seq, (i+1)*seq]: seq inputs and, shifted by
 * one, seq targets. The last `validation` share of the samples (at least one when it is not 0) is held out.
 * A file that is cut short while it is mapped is refused at the next read; it must not change during a run.
 *
 * Order: sample k of epoch e of the training split is a keyed permutation of (seed, e, k) in O(1)
 * memory (a Feistel network over the split's size, cycle-walked, keyed by Philox): it depends
 * neither on the run's length nor on the layout. Position in the data = samples consumed.
 */
#ifndef MUSTER_AGENT_DATA_DATA_H
#define MUSTER_AGENT_DATA_DATA_H

#include "base/err.h"

#include <stdint.h>

enum data_split { DATA_TRAIN, DATA_VALIDATION };

struct dataset; /* read-only once open; any thread may read */

/* Refuses, by name and cause, files that are cut, inconsistent, or of another kind, and token types
 * that can hold ids >= vocab only when such an id is met. */
int dataset_open(const char *prefix, int64_t seq, double validation, struct dataset **out, struct err *e);
void dataset_close(struct dataset *d);
int64_t dataset_tokens(const struct dataset *d);
int64_t dataset_documents(const struct dataset *d);
const char *dataset_type(const struct dataset *d); /* "u8", "u16", … */
int64_t dataset_samples(const struct dataset *d, enum data_split split);

/* The place within the split of the sample at `position` (samples consumed before it). The validation split is read in
 * order from 0, wrapping. It must not be empty. */
int64_t dataset_index(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position);

/* Reads `count` samples from `position` on: inputs and targets, [count, seq] each. ERR_CORRUPT names the first
 * token >= vocab with its file and offset. */
int dataset_read(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position, int64_t count,
		 int64_t vocab, int32_t *inputs, int32_t *targets, struct err *e);

#endif
