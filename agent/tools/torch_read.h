/*
 * torch_read — a dump of PyTorch's flight recorder as JSON.
 *
 * PyTorch writes pickles. They are read as data and never executed (agent/engine/dcp/pickle.h):
 * only opcodes that build plain values, and the names in torch.jit._pickle with which PyTorch marks
 * typed lists, are accepted. PyTorch can also write JSON, with the same members.
 *
 * A pickle may hold a value several times, so it can stand for far more values than it has bytes.
 * At most TORCH_VALUES are made, at most TORCH_DEPTH deep. The members "frames" are left out.
 */
#ifndef MUSTER_AGENT_TOOLS_TORCH_READ_H
#define MUSTER_AGENT_TOOLS_TORCH_READ_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

enum { TORCH_FILE = 64 << 20, TORCH_VALUES = 1 << 22, TORCH_DEPTH = 8 };

/* *out is a new reference to an object. name: the file's name, for errors. ERR_CORRUPT or
 * ERR_UNSUPPORTED: it is not a dump that muster can read. */
int tool_torch_read(const void *data, size_t n, const char *name, json_t **out, struct err *e);

#endif
