/* ckpt_saver — a rank that saves. A test can make its system calls fail, write short, or end the
 * process. */
#ifndef MUSTER_TESTS_UNIT_AGENT_CKPT_SAVER_H
#define MUSTER_TESTS_UNIT_AGENT_CKPT_SAVER_H

#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/world.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* --- calls that fail, write short, or end the process --- */

enum what { NOTHING, FAIL, SHORT, DIE_BEFORE, DIE_AFTER };

static struct {
	enum what what;
	int at;    /* the call it hits, from 1 */
	int error; /* its errno */
	int count;
	char trace[256]; /* a letter per call */
} fault;

static inline bool hit(enum what what)
{
	return fault.what == what && fault.count == fault.at;
}

static inline bool begin(char letter)
{
	if (fault.count < (int)sizeof fault.trace - 1)
		fault.trace[fault.count] = letter;
	fault.count++;
	if (hit(DIE_BEFORE))
		_exit(42);
	errno = fault.error;
	return hit(FAIL);
}

static inline int end(int rc)
{
	int saved = errno;
	if (hit(DIE_AFTER))
		_exit(42);
	errno = saved;
	return rc;
}

static inline int f_mkdir(const char *path, mode_t mode)
{
	return begin('m') ? -1 : end(mkdir(path, mode));
}

static inline int f_create(const char *path)
{
	return begin('c') ? -1 : end(ckpt_io_system.create(path));
}

static inline ssize_t f_write(int fd, const void *data, size_t n)
{
	if (begin('w'))
		return -1;
	ssize_t put = write(fd, data, hit(SHORT) && n > 1 ? n / 2 : n);
	end(0);
	return put;
}

static inline int f_fsync(int fd)
{
	return begin('f') ? -1 : end(fsync(fd));
}

static inline int f_close(int fd)
{
	int failed = begin('x');
	return close(fd) || failed ? -1 : end(0);
}

static inline int f_rename(const char *from, const char *to)
{
	return begin('r') ? -1 : end(rename(from, to));
}

static inline int f_unlink(const char *path)
{
	return begin('u') ? -1 : end(unlink(path));
}

static inline int f_rmdir(const char *path)
{
	return begin('d') ? -1 : end(rmdir(path));
}

static inline int f_link(const char *from, const char *to)
{
	return begin('l') ? -1 : end(link(from, to));
}

static inline int f_direct(int fd, bool on)
{
	return ckpt_io_system.direct(fd, on);
}

/* Small files need no other calls; test_ckpt_behind.c lets those of large ones fail. */
static const struct ckpt_io faulty_io = { .mkdir = f_mkdir,
					  .create = f_create,
					  .write = f_write,
					  .fsync = f_fsync,
					  .close = f_close,
					  .rename = f_rename,
					  .unlink = f_unlink,
					  .rmdir = f_rmdir,
					  .link = f_link,
					  .pwrite = pwrite,
					  .direct = f_direct,
					  .allocate = fallocate,
					  .truncate = ftruncate };

static inline const struct ckpt_storage *storage_with(const struct ckpt_io *io)
{
	static struct ckpt_storage s;
	s = (struct ckpt_storage){ ckpt_storage_posix.ops, io };
	return &s;
}

#define FAULTY storage_with(&faulty_io)

static inline void set_fault(enum what what, int at, int error)
{
	fault.what = what;
	fault.at = at;
	fault.error = error;
	fault.count = 0;
	memset(fault.trace, 0, sizeof fault.trace);
}

/* --- one rank that saves --- */

static const struct fix_layout whole = { 1, 1, 0 };

struct saver {
	struct comm *world;
	struct ckpt_writer *writer;
	json_t *model, *layout;
};

static inline int saver_open(struct saver *s, struct comm *world,
			     const struct ckpt_storage *storage, int64_t keep, struct err *e)
{
	*s = (struct saver){ .world = world,
			     .model = fix_model(),
			     .layout = json_pack("{s:i}", "tp", 1) };
	struct ckpt_options opt = { .dir = fix_dir,
				    .keep = keep,
				    .generation = 3,
				    .model = s->model,
				    .layout = s->layout,
				    .storage = storage };
	return ckpt_writer_open(world, &opt, &s->writer, e);
}

static inline void saver_close(struct saver *s)
{
	ckpt_writer_close(s->writer);
	json_decref(s->model);
	json_decref(s->layout);
}

static inline int save_rank(struct saver *s, const struct fix_layout *l, int rank, int64_t step,
			    struct err *e)
{
	struct ckpt_tensor tensors[FIX_TENSORS];
	struct ckpt_state state = fix_state(step);
	int n = fix_rank(l, rank, step, false, tensors);
	int rc = ckpt_save(s->writer, &state, tensors, n, e) || ckpt_wait(s->writer, e);
	fix_free(tensors, n);
	return rc ? -1 : 0;
}

static inline int save(struct saver *s, int64_t step, struct err *e)
{
	return save_rank(s, &whole, 0, step, e);
}

static inline void verify(int64_t step)
{
	struct err e = ERR_INIT;
	if (ckpt_verify(fix_path(step, NULL), &e))
		fail_msg("%s", e.text);
}

#endif
