/*
 * msg — the frames of the control channel between the supervisor and the agents.
 *
 * A frame on the wire:
 *
 *     u32 length      bytes that follow, little-endian, at most MSG_MAX
 *     u8[length]      sealed body (base/auth.h): ciphertext and tag
 *
 * The body after it is opened:
 *
 *     u16 type        enum msg_type, little-endian
 *     u16 zero
 *     u32 generation  the launch it belongs to
 *     u8[]            JSON object, UTF-8, without NUL; base/messages.h lists the fields
 *
 * A reader trusts nothing: it checks lengths, types, generations and fields. An unknown type is a
 * protocol error and closes the connection. A message of another generation is stale.
 */
#ifndef MUSTER_BASE_MSG_H
#define MUSTER_BASE_MSG_H

#include "base/buf.h"
#include "base/err.h"
#include "base/messages.h"

#include <jansson.h>
#include <stdint.h>

enum { MSG_MAX = 1 << 20 };

struct msg {
	enum msg_type type;
	uint32_t generation;
	json_t *body; /* an object; owned by the msg */
};

void msg_fini(struct msg *m);

/* Appends a message's body, not yet sealed, to `out`. Borrows `body`; NULL stands for {}. */
int msg_pack(enum msg_type type, uint32_t generation, json_t *body, struct buf *out, struct err *e);

/* Reads an opened body; the caller calls msg_fini(). ERR_PROTO: it is malformed. ERR_STALE: it is
 * well-formed, but of another generation; *m is set. */
int msg_unpack(const void *data, size_t len, uint32_t generation, struct msg *m, struct err *e);

#endif
