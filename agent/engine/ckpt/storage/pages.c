#include "agent/engine/ckpt/storage/pages.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

void *ckpt_pages_alloc(size_t bytes)
{
	if (bytes < HUGE_PAGE)
		return malloc(bytes);
	size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	void *p = aligned_alloc(HUGE_PAGE, whole);
	if (p)
		madvise(p, whole, MADV_HUGEPAGE); /* advice: without it there are small pages */
	return p;
}

void ckpt_pages_touch(void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		((volatile char *)p)[at] = 0;
}
