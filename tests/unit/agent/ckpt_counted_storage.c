#include "tests/unit/agent/ckpt_counted_storage.h"

#include "tests/unit/agent/ckpt_storages.h"

#include "tests/unit/agent/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct counted_file {
	struct ckpt_file file;
	struct ckpt_file *real;
	int shard;
};

static struct counted *counts;
static struct {
	enum counted_fault what;
	int at, reads;
	int shard;
	int64_t byte;
} fault = { .byte = -1 };

static const char *real_path(const char *path)
{
	return path + strlen(COUNTED_SCHEME);
}

static int shard_of(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	int shard;
	return sscanf(name, "shard-%d", &shard) == 1 && shard < COUNTED_FILES - 1
		       ? shard
		       : COUNTED_FILES - 1;
}

static int counted_list(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
			void *arg, struct err *e)
{
	(void)s;
	return ckpt_storage_posix.ops->list(&ckpt_storage_posix, real_path(path), visit, arg, e);
}

static int counted_size(const struct ckpt_storage *s, const char *path, int64_t *size,
			struct err *e)
{
	(void)s;
	return ckpt_storage_posix.ops->size(&ckpt_storage_posix, real_path(path), size, e);
}

static int counted_open_file(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
			     struct err *e)
{
	struct counted_file *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", path);
	if (ckpt_storage_posix.ops->open(&ckpt_storage_posix, real_path(path), &f->real, e)) {
		free(f);
		return -1;
	}
	f->file = (struct ckpt_file){ s, f->real->size };
	f->shard = shard_of(path);
	*out = &f->file;
	return 0;
}

static void counted_close_file(struct ckpt_file *file)
{
	struct counted_file *f = (struct counted_file *)file;
	ckpt_storage_posix.ops->close(f->real);
	free(f);
}

static int counted_read(struct ckpt_file *file, int64_t at, void *data, size_t n, struct err *e)
{
	struct counted_file *f = (struct counted_file *)file;
	bool hit = ++fault.reads == fault.at;
	if (hit && fault.what == COUNTED_DIE)
		_exit(9);
	if (hit && fault.what == COUNTED_FAIL)
		return err_set(e, ERR_IO, "shard-%05d: cannot read: Input/output error", f->shard);
	if (ckpt_storage_posix.ops->read(f->real, at, data, n, e))
		return -1;
	__atomic_add_fetch(&counts->bytes, (long long)n, __ATOMIC_RELAXED);
	for (int64_t i = at; i < at + (int64_t)n && i < COUNTED_BYTES; i++)
		__atomic_add_fetch(&counts->shards[f->shard][i], 1, __ATOMIC_RELAXED);
	if (f->shard == fault.shard && fault.byte >= at && fault.byte < at + (int64_t)n)
		((unsigned char *)data)[fault.byte - at] ^= 1;
	return 0;
}

static const struct ckpt_storage_ops counted_ops = {
	.name = "counted",
	.scheme = COUNTED_SCHEME,
	.list = counted_list,
	.size = counted_size,
	.open = counted_open_file,
	.read = counted_read,
	.close = counted_close_file,
};

static const struct ckpt_storage counted_storage = { &counted_ops, NULL };

struct counted *counted_open(void)
{
	counts = world_shared(sizeof *counts);
	if (counts)
		ckpt_storages_add(&counted_storage);
	return counts;
}

void counted_close(struct counted *c)
{
	ckpt_storages_drop(&counted_storage);
	world_unshared(c, sizeof *c);
}

void counted_fault(enum counted_fault what, int at)
{
	fault.what = what;
	fault.at = at;
	fault.reads = 0;
}

int counted_reads(void)
{
	return fault.reads;
}

void counted_flip(int shard, int64_t byte)
{
	fault.shard = shard;
	fault.byte = byte;
}
