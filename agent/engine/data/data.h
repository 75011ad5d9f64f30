/*
 * data — the samples of a run: packed token files, and the sample that each step reads.
 *
 * data.path names one source or a weighted blend of sources (blend.h). A source is Megatron's
 * PREFIX.bin and PREFIX.idx, or a file of llm.c (source.h). Sample i of a source is its tokens
 * [i*seq, (i+1)*seq]: seq inputs and, shifted by one, seq targets. The last `validation` share of
 * each source's samples (at least one sample if it is not 0) is held out.
 *
 * Order: sample k of the training split is sample j of a source (data_blend_place: a function of k
 * and the weights). Each source has its own epochs, j = epoch * n + place, and the place is
 * permuted by a key of (seed, source, epoch) in O(1) memory (permute.h). So sample k is a function
 * of (seed, k) that depends neither on the run's length nor on the layout; a source repeats no
 * sample within one of its epochs; and any prefix of the run has the shares of the weights, to
 * within two samples per source. The position in the data is the number of samples consumed and
 * skipped (feed.h, ledger.h). The validation split is blended in the same way, but each source's
 * held-out samples come in file order, from the first, and wrap around: every evaluation reads the
 * same samples.
 *
 * Documents: the start of a token is the first position of its sample that belongs to the same
 * document, so that attention can stop at a document's edge. Megatron's index lists the edges. In
 * llm.c's files a document begins with 50256 (GPT-2's <|endoftext|>) or 128000 (LLaMA 3's
 * <|begin_of_text|>), which belongs to it. The target of a document's last token is the first token
 * of the next one, as in both formats.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_DATA_H
#define MUSTER_AGENT_ENGINE_DATA_DATA_H

#include "agent/engine/data/blend.h"
#include "base/err.h"

#include <stdint.h>

enum data_split { DATA_TRAIN, DATA_VALIDATION };

struct dataset; /* read-only once open; any thread may read */

/* words: data.path. The error names the words that are not a blend, or the file that is truncated,
 * inconsistent or of another format. A token type that can hold ids >= vocab is accepted; such an
 * id is an error when it is read. */
int dataset_open(const char *words, int64_t seq, double validation, struct dataset **out,
		 struct err *e);
/* Opens the sources of a list. */
int dataset_open_list(const struct blend_source *list, int n, int64_t seq, double validation,
		      struct dataset **out, struct err *e);
void dataset_close(struct dataset *d);
int64_t dataset_seq(const struct dataset *d);
double dataset_validation(const struct dataset *d);
/* The sum over all sources. */
int64_t dataset_tokens(const struct dataset *d);
int64_t dataset_samples(const struct dataset *d, enum data_split split);

/* A source; the strings belong to the dataset. */
struct dataset_source {
	const char *path;          /* as in data.path */
	const char *format, *type; /* "Megatron", "llm.c"; "u8", "u16", … */
	double weight, share;
	int64_t tokens, samples[2]; /* by split */
};
int dataset_sources(const struct dataset *d);
struct dataset_source dataset_source(const struct dataset *d, int i);
int dataset_documents(const struct dataset *d, int i, int64_t *out, struct err *e);
/* The number of the first `position` samples that come from the source, in either split. */
int64_t dataset_count(const struct dataset *d, int i, int64_t position);

/* The origin of the sample at `position`: its source, the epoch of that
 * source, and the index among the split's samples of that source. The split must not be empty. */
struct data_place {
	int source;
	int64_t epoch, sample;
};
struct data_place dataset_place(const struct dataset *d, enum data_split split, uint64_t seed,
				int64_t position);

/* Reads `count` samples, beginning at `position`: inputs and targets, [count, seq] each, and starts
 * (see above), [count, seq], or NULL. ERR_CORRUPT names the first token >= vocab with its file and
 * offset. */
int dataset_read(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position,
		 int64_t count, int64_t vocab, int32_t *inputs, int32_t *targets, int32_t *starts,
		 struct err *e);

#endif
