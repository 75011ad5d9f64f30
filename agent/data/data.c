#include "agent/data/data.h"

#include "agent/data/idx.h"
#include "agent/data/permute.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct dataset {
	char bin[PATH_MAX];
	struct idx idx;
	int fd;
	size_t bytes;
	const unsigned char *map;
	int64_t seq;
	int64_t samples[2]; /* by split */
};

/* A file's bytes, mapped: all ranks of a node share them. *fd is the caller's, also after a failure; an empty file has no map. */
static int map_file(const char *path, int *fd, size_t *bytes, const unsigned char **map, struct err *e)
{
	struct stat st;
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open", path);
	if (fstat(*fd, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_USAGE, "%s: is no regular file; data.path is the prefix of .bin and .idx", path);
	*bytes = (size_t)st.st_size;
	if (!st.st_size)
		return 0;
	void *at = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, *fd, 0);
	if (at == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "%s: cannot map %zu bytes", path, *bytes);
	*map = at;
	return 0;
}

static int read_idx(struct dataset *d, const char *prefix, struct err *e)
{
	char path[PATH_MAX];
	int fd;
	size_t bytes = 0;
	const unsigned char *map = NULL;
	if (snprintf(d->bin, sizeof d->bin, "%s.bin", prefix) >= (int)sizeof d->bin)
		return err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter one", prefix);
	snprintf(path, sizeof path, "%s.idx", prefix);
	int rc = map_file(path, &fd, &bytes, &map, e);
	if (rc && e && e->code == ERR_NOTFOUND)
		err_set(e, ERR_NOTFOUND, "%s: no such file; data.path is the prefix of .bin and .idx, "
			"made by `muster data pack FILES -o %s`", path, prefix);
	if (!rc)
		rc = idx_parse(map, bytes, path, &d->idx, e);
	if (map)
		munmap((void *)map, bytes);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int map_bin(struct dataset *d, struct err *e)
{
	int64_t want = d->idx.tokens * (int64_t)token_size(d->idx.type);
	if (map_file(d->bin, &d->fd, &d->bytes, &d->map, e))
		return -1;
	if ((int64_t)d->bytes != want)
		return err_set(e, ERR_CORRUPT, "%s: %lld bytes, its index describes %lld: the file was cut or belongs "
			       "to another index; pack the data again", d->bin, (long long)d->bytes, (long long)want);
	return 0;
}

static int cut_splits(struct dataset *d, double validation, struct err *e)
{
	int64_t all = d->idx.tokens > 0 ? (d->idx.tokens - 1) / d->seq : 0;
	int64_t held = (int64_t)((double)all * validation + 0.5);
	if (validation > 0 && held == 0)
		held = 1;
	if (all - held < 1)
		return err_set(e, ERR_USAGE, "%s: %lld tokens make %lld samples of %lld, %lld of them held out: none is left "
			       "to train on; pack more text, or lower model.seq or data.validation", d->bin,
			       (long long)d->idx.tokens, (long long)all, (long long)d->seq, (long long)held);
	d->samples[DATA_TRAIN] = all - held;
	d->samples[DATA_VALIDATION] = held;
	return 0;
}

int dataset_open(const char *prefix, int64_t seq, double validation, struct dataset **out, struct err *e)
{
	if (seq < 1 || !(validation >= 0 && validation < 1))
		return err_set(e, ERR_USAGE, "%s: cannot cut samples of %lld tokens with a share of %g held out; "
			       "model.seq is at least 1, data.validation below 1", prefix, (long long)seq, validation);
	struct dataset *d = calloc(1, sizeof *d);
	if (!d)
		return err_set(e, ERR_NOMEM, "%s: no memory for a dataset", prefix);
	d->fd = -1;
	d->seq = seq;
	if (read_idx(d, prefix, e) || map_bin(d, e) || cut_splits(d, validation, e)) {
		dataset_close(d);
		return -1;
	}
	*out = d;
	return 0;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	if (d->map)
		munmap((void *)d->map, d->bytes);
	if (d->fd >= 0)
		close(d->fd);
	free(d);
}

int64_t dataset_tokens(const struct dataset *d)
{
	return d->idx.tokens;
}

int64_t dataset_documents(const struct dataset *d)
{
	return d->idx.documents;
}

const char *dataset_type(const struct dataset *d)
{
	return token_word(d->idx.type);
}

int64_t dataset_samples(const struct dataset *d, enum data_split split)
{
	return d->samples[split];
}

int64_t dataset_index(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position)
{
	int64_t n = d->samples[split];
	if (split == DATA_VALIDATION)
		return position % n;
	struct philox_key key = philox_key(seed, PHILOX_SHUFFLE, (uint64_t)(position / n));
	return (int64_t)permute(key, (uint64_t)n, (uint64_t)(position % n));
}

static int64_t token_at(const struct dataset *d, int64_t i)
{
	const unsigned char *at = d->map + (size_t)i * token_size(d->idx.type);
	uint64_t v64;
	uint32_t v32;
	uint16_t v16;
	switch (d->idx.type) {
	case TOKEN_U8:
		return *at;
	case TOKEN_I8:
		return (int8_t)*at;
	case TOKEN_U16:
		memcpy(&v16, at, sizeof v16);
		return le16toh(v16);
	case TOKEN_I16:
		memcpy(&v16, at, sizeof v16);
		return (int16_t)le16toh(v16);
	case TOKEN_I32:
		memcpy(&v32, at, sizeof v32);
		return (int32_t)le32toh(v32);
	case TOKEN_I64:
		memcpy(&v64, at, sizeof v64);
		return (int64_t)le64toh(v64);
	}
	return -1;
}

static int read_sample(const struct dataset *d, int64_t sample, int64_t vocab, int32_t *inputs, int32_t *targets,
		       struct err *e)
{
	int64_t first = sample * d->seq;
	for (int64_t i = 0; i <= d->seq; i++) {
		int64_t t = token_at(d, first + i);
		if (t < 0 || t >= vocab)
			return err_set(e, ERR_CORRUPT, "%s: token %lld at byte %lld is outside the vocabulary of %lld; "
				       "set model.vocab to what the data was packed with", d->bin, (long long)t,
				       (long long)((first + i) * (int64_t)token_size(d->idx.type)), (long long)vocab);
		if (i < d->seq)
			inputs[i] = (int32_t)t;
		if (i > 0)
			targets[i - 1] = (int32_t)t;
	}
	return 0;
}

int dataset_read(const struct dataset *d, enum data_split split, uint64_t seed, int64_t position, int64_t count,
		 int64_t vocab, int32_t *inputs, int32_t *targets, struct err *e)
{
	struct stat st;
	if (position < 0 || (count > 0 && d->samples[split] == 0))
		return err_set(e, ERR_USAGE, "%s: no %s sample at position %lld; data.validation holds out %lld", d->bin,
			       split == DATA_TRAIN ? "training" : "validation", (long long)position,
			       (long long)d->samples[DATA_VALIDATION]);
	/* Touching mapped bytes that the file has lost would kill the process. */
	if (fstat(d->fd, &st) || (size_t)st.st_size < d->bytes)
		return err_set(e, ERR_CORRUPT, "%s: the file shrank while it was read; it must stay as it is during a run", d->bin);
	int64_t base = split == DATA_VALIDATION ? d->samples[DATA_TRAIN] : 0;
	for (int64_t i = 0; i < count; i++) {
		int64_t sample = base + dataset_index(d, split, seed, position + i);
		if (read_sample(d, sample, vocab, inputs + i * d->seq, targets + i * d->seq, e))
			return -1;
	}
	return 0;
}
