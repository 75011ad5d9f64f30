/*
 * torch_ops — an entry of PyTorch's flight recorder as an operation of a muster dump
 * (libcomm/flight/recorder.h). Only the files agent/tools/torch_*.c include it.
 */
#ifndef MUSTER_AGENT_TOOLS_TORCH_OPS_H
#define MUSTER_AGENT_TOOLS_TORCH_OPS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* A coalesced operation of PyTorch: the entries before it with the same number belong to it. */
bool tool_torch_is_coalesced(const json_t *entry);

/* A new object, without the list "peers" of a message. messages: if the entry is a coalesced
 * operation, its parts are messages. NULL without an error: the entry has no
 * number. NULL with one: ERR_CORRUPT. */
json_t *tool_torch_op(const json_t *entry, bool messages, struct err *e);

/* The peer in a message's name, such as 1 in "nccl:send 0->1". False: there is none, or it is not
 * below `ranks`. */
bool tool_torch_peer(const json_t *entry, int ranks, bool *send, int *peer);

#endif
