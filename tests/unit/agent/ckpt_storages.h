/* ckpt_storages — storages that a test adds to those of the product.
 *
 * The tests of agents are linked with --wrap=ckpt_storage_of (Makefile). A search for the storage of
 * a path comes here first, and goes on in the product if no added storage has the path's scheme. */
#ifndef MUSTER_TESTS_UNIT_AGENT_CKPT_STORAGES_H
#define MUSTER_TESTS_UNIT_AGENT_CKPT_STORAGES_H

#include "agent/engine/ckpt/storage/storage.h"

/* Adds a storage, which is borrowed, for the paths of its scheme. Both are called while no other
 * thread uses checkpoints. */
void ckpt_storages_add(const struct ckpt_storage *s);
void ckpt_storages_drop(const struct ckpt_storage *s);

#endif
