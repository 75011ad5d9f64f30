#include "libcomm/shm/shared_buffer.h"

#include "base/meminfo.h"
#include "libcomm/group.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096, HUGE = 2 << 20 };

struct shared_buffer {
	struct shared_buffer *next;
	char *base;
	size_t size; /* of the data, in whole pages */
	uint64_t inode;
	uint32_t number;
	int fd; /* -1: ordinary memory */
};

struct tail { /* stored after the data */
	_Atomic uint32_t freed;
};

static struct tail *tail_of(const char *base, size_t size)
{
	return (struct tail *)(void *)(uintptr_t)(base + size);
}

/* Maps a shared buffer at an address where huge pages fit. */
static char *map_file(int fd, size_t size)
{
	size_t room = size + PAGE + HUGE;
	char *hole = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			  0);
	if (hole == MAP_FAILED)
		return NULL;
	char *at = (char *)(((uintptr_t)hole + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
	if (mmap(at, size + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED) {
		munmap(hole, room);
		return NULL;
	}
	if (at > hole)
		munmap(hole, (size_t)(at - hole));
	if (at < hole + HUGE)
		munmap(at + size + PAGE, (size_t)(hole + HUGE - at));
	if (size >= HUGE)
		madvise(at, size, MADV_HUGEPAGE); /* best effort */
	return at;
}

void comm_shared_buffer_unmap(char *base, size_t size)
{
	munmap(base, size + PAGE);
}

bool comm_shared_buffer_is_freed(const char *base, size_t size)
{
	return atomic_load(&tail_of(base, size)->freed) != 0;
}

char *comm_shared_buffer_map(pid_t pid, const struct remote_buffer *s)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, s->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	char *base = NULL;
	errno = ENOENT; /* unless the mapping fails */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == s->inode &&
	    s->size % PAGE == 0 && s->offset <= s->size && st.st_size >= 0 &&
	    (uint64_t)st.st_size == s->size + PAGE)
		base = map_file(fd, s->size);
	int why = errno;
	close(fd);
	errno = why;
	return base;
}

/* --- Making and freeing --- */

/* The bytes that the kernel could allocate without killing a process; SIZE_MAX if unknown. */
static size_t available_memory(void)
{
	double bytes = meminfo_read("MemAvailable");
	return bytes > 0 ? (size_t)bytes : SIZE_MAX;
}

static int report_no_memory(size_t size, struct err *e)
{
	return err_set(e, ERR_NOMEM,
		       "no memory for a shared buffer of %zu MiB (the kernel has %zu MiB left)",
		       (size + (1 << 20) - 1) >> 20, available_memory() >> 20);
}

/* Allocates all pages now. A later access could only fail by SIGBUS. */
static int populate_pages(char *base, size_t size, int fd)
{
	if (madvise(base, size, MADV_POPULATE_WRITE) == 0)
		return 0;
	return errno == EINVAL ? fallocate(fd, 0, 0, (off_t)size) : -1; /* before Linux 5.14 */
}

static int make_shared(struct shared_buffer *w, struct err *e)
{
	struct stat st;
	w->fd = memfd_create("muster-shared-buffer", MFD_CLOEXEC);
	if (w->fd < 0)
		return err_errno(e, ERR_NOMEM, "cannot create shared memory");
	if (ftruncate(w->fd, (off_t)(w->size + PAGE)) == 0 && fstat(w->fd, &st) == 0)
		w->base = map_file(w->fd, w->size);
	if (w->base && populate_pages(w->base, w->size + PAGE, w->fd) == 0) {
		w->inode = st.st_ino;
		return 0;
	}
	if (w->base)
		comm_shared_buffer_unmap(w->base, w->size);
	close(w->fd);
	return report_no_memory(w->size, e);
}

static int make_plain(struct shared_buffer *w, struct err *e)
{
	w->fd = -1;
	w->base = mmap(NULL, w->size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	return w->base == MAP_FAILED ? report_no_memory(w->size, e) : 0;
}

static bool has_neighbours(const struct world *w)
{
	for (int r = 0; r < w->size && !w->force_tcp; r++)
		if (r != w->rank && w->peers[r].host_id == w->peers[w->rank].host_id)
			return true;
	return false;
}

int comm_alloc(struct comm *c, size_t bytes, void **out, struct err *e)
{
	struct world *w = c->world;
	size_t unit = bytes >= HUGE ? HUGE : PAGE;
	if (bytes > SIZE_MAX / 2 || bytes > available_memory())
		return report_no_memory(bytes, e);
	struct shared_buffer *new = calloc(1, sizeof *new);
	if (!new)
		return err_set(e, ERR_NOMEM, "no memory for a shared buffer");
	new->size = bytes ? (bytes + unit - 1) & ~(unit - 1) : PAGE;
	if ((has_neighbours(w) ? make_shared : make_plain)(new, e) < 0) {
		free(new);
		return -1;
	}
	pthread_mutex_lock(&w->lock);
	new->number = ++w->shared_buffer_count;
	new->next = w->shared_buffers;
	w->shared_buffers = new;
	atomic_fetch_add(&w->shared_buffers_live, 1);
	pthread_mutex_unlock(&w->lock);
	*out = new->base;
	return 0;
}

static void free_shared_buffer(struct shared_buffer *x)
{
	if (x->fd >= 0) {
		atomic_store(&tail_of(x->base, x->size)->freed, 1);
		/* Peers may have it mapped. This frees the pages now; the file goes with its last
		 * user. */
		fallocate(x->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)x->size);
		close(x->fd);
	}
	comm_shared_buffer_unmap(x->base, x->size);
	free(x);
}

void comm_free(struct comm *c, void *memory)
{
	struct world *w = c->world;
	struct shared_buffer *x = NULL;
	pthread_mutex_lock(&w->lock);
	for (struct shared_buffer **p = &w->shared_buffers; *p && !x;)
		if ((*p)->base == memory) {
			x = *p;
			*p = x->next;
			atomic_fetch_sub(&w->shared_buffers_live, 1);
		} else {
			p = &(*p)->next;
		}
	pthread_mutex_unlock(&w->lock);
	if (x)
		free_shared_buffer(x);
}

void comm_shared_buffers_free(struct world *w)
{
	for (struct shared_buffer *x = w->shared_buffers, *next; x; x = next) {
		next = x->next;
		free_shared_buffer(x);
	}
	w->shared_buffers = NULL;
}

struct remote_buffer comm_shared_buffer_describe(struct world *w, const void *data, size_t bytes)
{
	const char *at = data;
	struct remote_buffer s = { .address = (uintptr_t)data };
	if (!shared_buffers_live(w))
		return s;
	pthread_mutex_lock(&w->lock);
	for (const struct shared_buffer *x = w->shared_buffers; x; x = x->next) {
		if (x->fd < 0 || at < x->base || at > x->base + x->size ||
		    bytes > (size_t)(x->base + x->size - at))
			continue;
		s = (struct remote_buffer){ .address = s.address,
					    .offset = (uint64_t)(at - x->base),
					    .size = x->size,
					    .inode = x->inode,
					    .shared_buffer = x->number,
					    .fd = x->fd };
		break;
	}
	pthread_mutex_unlock(&w->lock);
	return s;
}
