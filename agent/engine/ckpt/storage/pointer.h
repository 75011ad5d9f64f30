/*
 * pointer — the small object under a checkpoint's name in an object store, which names the attempt
 * that holds its files:
 *
 *     {"muster-checkpoint": 1, "attempt": ".attempt-00000400-2-…", "writer": "node3.1234"}
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_POINTER_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_POINTER_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>

enum { CKPT_POINTER_NAME = 128, CKPT_POINTER_MOST = 4096 };

struct ckpt_pointer {
	char attempt[CKPT_POINTER_NAME], writer[CKPT_POINTER_NAME];
};

/* A pointer of this process to the attempt. ERR_NOMEM. */
int ckpt_pointer_write(const char *attempt, struct buf *out, struct err *e);
/* False: the text is no pointer. */
bool ckpt_pointer_parse(const char *text, size_t n, struct ckpt_pointer *out);

#endif
