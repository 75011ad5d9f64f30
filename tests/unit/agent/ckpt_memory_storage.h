/* ckpt_memory_storage — a checkpoint storage that works like an object store. It has keys and whole
 * objects in this process's memory, and no folders, renames or file descriptors. */
#ifndef MUSTER_TESTS_UNIT_AGENT_CKPT_MEMORY_STORAGE_H
#define MUSTER_TESTS_UNIT_AGENT_CKPT_MEMORY_STORAGE_H

#include "agent/engine/ckpt/storage/storage.h"

#define MEMORY_SCHEME "memory://"

extern const struct ckpt_storage ckpt_memory_storage;

/* Removes all objects. */
void ckpt_memory_storage_clear(void);

#endif
