/* A block's shared memory: the emulator's use of libraries and pages. */
#include "tests/gpu/emulator/block.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 256 << 10, PAGE = 4096, ALIGN = 128, BEFORE = 256, POISON = 0xff };

/* room: a guard page, MOST bytes, another guard page */
static char *room, *dynamic;
static size_t dynamic_bytes, pad;

static char *statics;
static const void *last_function;
static pthread_t last_thread; /* each has its own thread-local memory */

static void make_room(void)
{
	room = mmap(NULL, MOST + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED || mprotect(room + PAGE, MOST, PROT_READ | PROT_WRITE) < 0)
		abort();
}

struct search {
	const char *anchor;
	const char *low, *high; /* of the library */
	char *at;
	size_t bytes;
};

static int find_statics(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum && info->dlpi_tls_data; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		char *at = info->dlpi_tls_data;
		if (p->p_type == PT_TLS && s->anchor >= at && s->anchor < at + p->p_memsz) {
			s->at = at;
			s->bytes = p->p_memsz;
		}
	}
	for (int i = 0; i < info->dlpi_phnum && s->at; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const char *from = (const char *)info->dlpi_addr + p->p_vaddr;
		if (p->p_type != PT_LOAD)
			continue;
		s->low = !s->low || from < s->low ? from : s->low;
		s->high = from + p->p_memsz > s->high ? from + p->p_memsz : s->high;
	}
	return s->at != NULL;
}

/* A block's shared memory ends at the guard page, up to the bytes that align its start. */
void shared_begin(const struct emulated_kernel *k, size_t bytes)
{
	if (!room)
		make_room();
	if (last_function != k->function || !pthread_equal(last_thread, pthread_self())) {
		struct search s = { .anchor = k->statics() };
		dl_iterate_phdr(find_statics, &s);
		emulated_block.statics = (struct span){ s.at, s.bytes };
		emulated_block.library = (struct span){ s.low, (size_t)(s.high - s.low) };
		statics = s.at;
		last_function = k->function;
		last_thread = pthread_self();
	}
	dynamic_bytes = bytes;
	pad = (ALIGN - bytes % ALIGN) % ALIGN;
	dynamic = room + PAGE + MOST - pad - bytes;
	memset(dynamic - BEFORE, POISON, BEFORE + bytes + pad);
	memset(statics, POISON, emulated_block.statics.bytes);
	emulated_block.dynamic = (struct span){ dynamic, bytes };
}

void *emulated_dynamic_shared(void)
{
	return dynamic;
}

static void check_untouched(const char *from, size_t bytes, const char *where)
{
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)from[i] != POISON)
			emulated_misuse("this block has written %s the %zu bytes of its dynamic "
					"shared memory",
					where, dynamic_bytes);
}

void shared_check(void)
{
	check_untouched(dynamic + dynamic_bytes, pad, "behind");
	check_untouched(dynamic - BEFORE, BEFORE, "before");
}

bool shared_beyond(const void *at)
{
	const char *p = at;
	return room && p >= room && p < room + 2 * PAGE + MOST;
}
