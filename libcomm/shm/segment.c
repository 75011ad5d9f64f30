#include "libcomm/shm/segment.h"

#include "base/process.h"
#include "libcomm/shm/futex.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char magic[8] = "muster1";

/* The fields that a peer checks before it trusts the rest. */
struct proof {
	char magic[8];
	unsigned char nonce[SEG_NONCE];
};

int comm_segment_offer(int *fd, unsigned char nonce[SEG_NONCE], struct err *e)
{
	int m = memfd_create("muster", MFD_CLOEXEC);
	if (m < 0)
		return err_errno(e, ERR_NOMEM, "cannot create shared memory");
	struct proof p;
	memcpy(p.magic, magic, sizeof p.magic);
	randombytes_buf(p.nonce, sizeof p.nonce);
	if (pwrite(m, &p, sizeof p, 0) != (ssize_t)sizeof p) {
		err_errno(e, ERR_NOMEM, "cannot write to shared memory");
		close(m);
		return -1;
	}
	memcpy(nonce, p.nonce, SEG_NONCE);
	*fd = m;
	return 0;
}

static size_t round_page(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

static void plan_layout(struct segment *s, int n, size_t at[6])
{
	size_t ranks = (size_t)n;
	s->n = n;
	s->ring_bytes = n <= 16 ? 256 << 10 : 32 << 10; /* a power of two */
	at[0] = round_page(sizeof(struct seg_head));
	at[1] = at[0] + round_page(ranks * sizeof(struct seg_line));
	at[2] = at[1] + round_page(2 * ranks * sizeof(struct seg_cell));
	at[3] = at[2] + 2 * ranks * SEG_SLOT_MAX;
	at[4] = at[3] + 2 * SEG_SLOT_MAX;
	at[5] = at[4] + round_page(ranks * ranks * (sizeof(struct ring) + s->ring_bytes));
	s->size = at[5];
}

int comm_segment_open_offer(pid_t pid, int fd, const unsigned char nonce[SEG_NONCE], struct err *e)
{
	char path[64];
	struct proof p;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
	int m = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (m < 0 && errno == ENOENT)
		return err_set(
			e, ERR_PEER,
			"the shared memory %s does not exist: process %d has died, or is another "
			"one "
			"(ranks of one host must share their process numbers; [network] backend = "
			"tcp does without)",
			path, (int)pid);
	if (m < 0)
		return err_errno(
			e, ERR_UNSUPPORTED,
			"cannot open the shared memory %s (ranks of one host must see each "
			"other's processes; [network] backend = tcp does without)",
			path);
	if (pread(m, &p, sizeof p, 0) == (ssize_t)sizeof p &&
	    !memcmp(p.magic, magic, sizeof magic) && !sodium_memcmp(p.nonce, nonce, SEG_NONCE))
		return m;
	close(m);
	return err_set(e, ERR_PEER,
		       "%s is not the shared memory that was offered: process %d is another one "
		       "(ranks of one host must share their process numbers; [network] backend = "
		       "tcp does without)",
		       path, (int)pid);
}

/* Memory that a limit forbids is not available after a restart either. */
static void cannot_map(size_t size, struct err *e)
{
	const char *remedy = process_write_remedy(errno);
	char text[128];
	enum err_code code = errno == EFBIG ? ERR_UNSUPPORTED : ERR_NOMEM;
	err_set(e, code, "cannot map %zu MiB of shared memory: %s%s", size >> 20,
		strerror_r(errno, text, sizeof text), remedy);
}

int comm_segment_attach(struct segment *s, pid_t pid, int fd, const unsigned char nonce[SEG_NONCE],
			int n, struct err *e)
{
	size_t at[6];
	struct segment new = { 0 };
	plan_layout(&new, n, at);
	int m = comm_segment_open_offer(pid, fd, nonce, e);
	if (m < 0)
		return -1;
	/* The first rank that opens it sets the length. */
	char *base = MAP_FAILED;
	if (ftruncate(m, (off_t) new.size) == 0)
		base = mmap(NULL, new.size, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
	if (base == MAP_FAILED) {
		cannot_map(new.size, e);
		close(m);
		return -1;
	}
	close(m);
	new.head = (struct seg_head *)(void *)base;
	new.line = (struct seg_line *)(void *)(base + at[0]);
	new.cells = (struct seg_cell *)(void *)(base + at[1]);
	new.slots = base + at[2];
	new.results = base + at[3];
	new.rings = base + at[4];
	*s = new;
	return 0;
}

void comm_segment_detach(struct segment *s)
{
	if (s->head)
		munmap(s->head, s->size);
	s->head = NULL;
}

void comm_segment_wake(struct segment *s)
{
	atomic_fetch_add(&s->head->wakes, 1);
	futex_wake_all(&s->head->wakes);
}
