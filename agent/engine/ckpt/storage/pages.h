/* pages — large host memory that is filled at each checkpoint. Huge pages, where the system has
 * them: the first copy into ordinary pages takes several times as long as each later one, because
 * the kernel then provides and clears each page. */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_PAGES_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_PAGES_H

#include <stddef.h>

/* 2 MiB or more are aligned to 2 MiB. NULL: no memory. The caller frees it with free(). */
void *ckpt_pages_alloc(size_t bytes);
/* Makes the pages of new memory present. It changes its bytes. */
void ckpt_pages_touch(void *p, size_t bytes);

#endif
