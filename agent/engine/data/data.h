/*
 * data — the samples of a run: packed token files, and which sample a step reads.
 *
 * data.path names one source or a blend of them with weights (blend.h); a source is Megatron's
 * PREFIX.bin and PREFIX.idx or a file of llm.c (source.h). Sample i of a source is its tokens
 * [i*seq, (i+1)*seq]: seq inputs and, shifted by one, seq targets. The last `validation` share of
 * each source's samples (at least one when it is not 0) is held out.
 *
 * Order: sample k of the training split is sample j of a source (data_blend_place: a function of k
 * and the weights); each source is walked through its own epochs, j = epoch * n + place, and the
 * place is permuted by a key of (seed, source, epoch) in O(1) memory (permute.h). So sample k is a
 * function of (seed, k) that depends neither on the run's length nor on the layout, no sample of a
 * source comes twice in one of its epochs, and any prefix of the run has the shares that the
 * weights say, to within two samples a source. Position in the data = samples consumed. The
 * validation split is blended alike, but each source's held-out samples come in the order of its
 * file, from the first, wrapping: every evaluation reads the same.
 *
 * Documents: a token's start is the first position of its sample that lies in the same document, so
 * that attention need not look over a document's edge. Megatron's index lists the edges; in llm.c's
 * files a document begins with 50256 (GPT-2's <|endoftext|>) or 128000 (LLaMA 3's
 * <|begin_of_text|>), which belongs to it. The target of a document's last token is the next one's
 * first, as in both.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_DATA_H
#define MUSTER_AGENT_ENGINE_DATA_DATA_H

#include "agent/engine/data/blend.h"
#include "base/err.h"

#include <stdint.h>

enum data_split { DATA_TRAIN, DATA_VALIDATION };

struct dataset; /* read-only once open; any thread may read */

/* words: data.path. Refuses, by name and cause, words that are no blend, and files that are cut,
 * inconsistent, or of another kind; token types that can hold ids >= vocab only when such an id is
 * met. */
int dataset_open(const char *words, int64_t seq, double validation, struct dataset **out,
		 struct err *e);
/* The same of a list. */
int dataset_open_list(const struct blend_source *list, int n, int64_t seq, double validation,
		      struct dataset **out, struct err *e);
void dataset_close(struct dataset *d);
int64_t dataset_seq(const struct dataset *d);
double dataset_validation(const struct dataset *d);
/* Over all sources. */
int64_t dataset_tokens(const struct dataset *d);
int64_t dataset_samples(const struct dataset *d, enum data_split split);

/* A source; the strings live as long as the dataset. */
struct dataset_source {
	const char *path;          /* as data.path has it */
	const char *format, *type; /* "Megatron", "llm.c"; "u8", "u16", … */
	double weight, share;
	int64_t tokens, samples[2]; /* by split */
};
int dataset_sources(const struct dataset *d);
struct dataset_source dataset_source(const struct dataset *d, int i);
int dataset_documents(const struct dataset *d, int i, int64_t *out, struct err *e);
/* How many of the first `position` samples come from the source, in either split. */
int64_t dataset_count(const struct dataset *d, int i, int64_t position);

/* Where the sample at `position` (samples consumed before it) lies: its source, the epoch of that
 * source, and which of the split's samples of that source it is. The split must not be empty. */
struct data_place {
	int source;
	int64_t epoch, sample;
};
struct data_place dataset_place(const struct dataset *d, enum data_split split, uint64_t seed,
				int64_t position);

/* Reads `count` samples from `position` on: inputs and targets, [count, seq] each, and starts (see
 * above), [count, seq], or NULL. ERR_CORRUPT names the first token >= vocab with its file and
 * offset. */
int dataset_read(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position,
		 int64_t count, int64_t vocab, int32_t *inputs, int32_t *targets, int32_t *starts,
		 struct err *e);

#endif
