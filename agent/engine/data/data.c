#include "agent/engine/data/data.h"

#include "agent/engine/data/permute.h"
#include "agent/engine/data/source.h"

#include <stdlib.h>
#include <string.h>

struct part {
	struct source *source;
	int64_t samples[2]; /* per split */
};

struct dataset {
	struct blend blend;
	struct part *parts; /* [blend.n] */
	int64_t seq;
	double validation;
};

static int cut_splits(struct part *p, const struct dataset *d, struct err *e)
{
	int64_t tokens = data_source_tokens(p->source),
		all = tokens > 0 ? (tokens - 1) / d->seq : 0;
	int64_t held = (int64_t)((double)all * d->validation + 0.5);
	if (d->validation > 0 && held == 0)
		held = 1;
	if (all - held < 1)
		return err_set(e, ERR_USAGE,
			       "%s: %lld tokens make %lld samples of %lld, %lld of them held out: "
			       "none is left "
			       "to train on; pack more text, or lower model.seq or data.validation",
			       data_source_file(p->source), (long long)tokens, (long long)all,
			       (long long)d->seq, (long long)held);
	p->samples[DATA_TRAIN] = all - held;
	p->samples[DATA_VALIDATION] = held;
	return 0;
}

static int open_parts(struct dataset *d, struct err *e)
{
	d->parts = calloc((size_t)d->blend.n, sizeof *d->parts);
	if (!d->parts)
		return err_set(e, ERR_NOMEM, "data.path: no memory for %d sources", d->blend.n);
	for (int i = 0; i < d->blend.n; i++)
		if (data_source_open(d->blend.sources[i].path, &d->parts[i].source, e) ||
		    cut_splits(&d->parts[i], d, e))
			return -1;
	return 0;
}

/* Opens the blend of `words`, or of the list if words is NULL. */
static int open_any(const char *words, const struct blend_source *list, int n, int64_t seq,
		    double validation, struct dataset **out, struct err *e)
{
	if (seq < 1 || seq > INT32_MAX || !(validation >= 0 && validation < 1))
		return err_set(
			e, ERR_USAGE,
			"data: cannot make samples of %lld tokens with a share of %g held out; "
			"model.seq is at least 1, data.validation below 1",
			(long long)seq, validation);
	struct dataset *d = calloc(1, sizeof *d);
	if (!d)
		return err_set(e, ERR_NOMEM, "data: no memory for a dataset");
	d->seq = seq;
	d->validation = validation;
	if ((words ? data_blend_open(words, &d->blend, e) : data_blend_of(list, n, &d->blend, e)) ||
	    open_parts(d, e)) {
		dataset_close(d);
		return -1;
	}
	*out = d;
	return 0;
}

int dataset_open(const char *words, int64_t seq, double validation, struct dataset **out,
		 struct err *e)
{
	return open_any(words, NULL, 0, seq, validation, out, e);
}

int dataset_open_list(const struct blend_source *list, int n, int64_t seq, double validation,
		      struct dataset **out, struct err *e)
{
	return open_any(NULL, list, n, seq, validation, out, e);
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	for (int i = 0; d->parts && i < d->blend.n; i++)
		data_source_close(d->parts[i].source);
	free(d->parts);
	data_blend_fini(&d->blend);
	free(d);
}

int64_t dataset_seq(const struct dataset *d)
{
	return d->seq;
}

double dataset_validation(const struct dataset *d)
{
	return d->validation;
}

int64_t dataset_tokens(const struct dataset *d)
{
	int64_t n = 0;
	for (int i = 0; i < d->blend.n; i++)
		n += data_source_tokens(d->parts[i].source);
	return n;
}

int64_t dataset_samples(const struct dataset *d, enum data_split split)
{
	int64_t n = 0;
	for (int i = 0; i < d->blend.n; i++)
		n += d->parts[i].samples[split];
	return n;
}

int dataset_sources(const struct dataset *d)
{
	return d->blend.n;
}

struct dataset_source dataset_source(const struct dataset *d, int i)
{
	const struct blend_source *b = &d->blend.sources[i];
	const struct part *p = &d->parts[i];
	return (struct dataset_source){
		.path = b->path,
		.format = data_source_format(p->source),
		.type = data_source_type(p->source),
		.weight = b->weight,
		.share = b->share,
		.tokens = data_source_tokens(p->source),
		.samples = { p->samples[DATA_TRAIN], p->samples[DATA_VALIDATION] },
	};
}

int dataset_documents(const struct dataset *d, int i, int64_t *out, struct err *e)
{
	return data_source_documents(d->parts[i].source, out, e);
}

int64_t dataset_count(const struct dataset *d, int i, int64_t position)
{
	return data_blend_count(&d->blend, position, i);
}

struct data_place dataset_place(const struct dataset *d, enum data_split split, uint64_t seed,
				int64_t position)
{
	struct data_place at;
	int64_t j;
	data_blend_place(&d->blend, position, &at.source, &j);
	int64_t n = d->parts[at.source].samples[split];
	at.epoch = j / n;
	at.sample = j % n;
	if (split == DATA_TRAIN) {
		struct philox_key key = philox_key(seed, PHILOX_SHUFFLE,
						   (uint64_t)at.source << 48 | (uint64_t)at.epoch);
		at.sample = (int64_t)data_permute(key, (uint64_t)n, (uint64_t)at.sample);
	}
	return at;
}

/* row: memory for seq + 1 tokens. */
static int read_sample(const struct dataset *d, enum data_split split, struct data_place at,
		       int64_t vocab, int32_t *row, int32_t *starts, struct err *e)
{
	const struct part *p = &d->parts[at.source];
	int64_t first = (at.sample + (split == DATA_VALIDATION ? p->samples[DATA_TRAIN] : 0)) *
			d->seq;
	if (data_source_read(p->source, first, d->seq + 1, vocab, row, e))
		return -1;
	return starts ? data_source_starts(p->source, first, d->seq, starts, e) : 0;
}

int dataset_read(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position,
		 int64_t count, int64_t vocab, int32_t *inputs, int32_t *targets, int32_t *starts,
		 struct err *e)
{
	if (position < 0 || (count > 0 && d->parts[0].samples[split] == 0))
		return err_set(
			e, ERR_USAGE,
			"data: no %s sample at position %lld; data.validation holds out %lld",
			split == DATA_TRAIN ? "training" : "validation", (long long)position,
			(long long)dataset_samples(d, DATA_VALIDATION));
	size_t bytes = (size_t)d->seq * sizeof *inputs;
	int32_t *row = malloc(bytes + sizeof *row);
	if (!row)
		return err_set(e, ERR_NOMEM, "data: no memory for a sample of %lld tokens",
			       (long long)d->seq);
	int rc = 0;
	for (int64_t i = 0; i < count && !rc; i++) {
		rc = read_sample(d, split, dataset_place(d, split, seed, position + i), vocab, row,
				 starts ? starts + i * d->seq : NULL, e);
		if (!rc) {
			memcpy(inputs + i * d->seq, row, bytes);
			memcpy(targets + i * d->seq, row + 1, bytes);
		}
	}
	free(row);
	return rc;
}
