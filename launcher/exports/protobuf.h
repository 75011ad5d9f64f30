/*
 * protobuf — writes the fields of Protocol Buffers messages: varints, floating-point numbers, bytes
 * and nested messages.
 *
 * A nested message is built in a buf of its own and then put as bytes. The buf's failure state is
 * the error: callers ask buf_failed() once at the end. Fields whose value is the default of their
 * type are written, too.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_PROTOBUF_H
#define MUSTER_LAUNCHER_EXPORTS_PROTOBUF_H

#include "base/buf.h"

#include <stdint.h>

void exports_pb_int(struct buf *b, int field, int64_t value);
void exports_pb_float(struct buf *b, int field, float value);
void exports_pb_double(struct buf *b, int field, double value);
void exports_pb_bytes(struct buf *b, int field, const void *data, size_t n);
void exports_pb_text(struct buf *b, int field, const char *text);
/* Puts the message and frees it. A message that has failed makes `b` fail. */
void exports_pb_message(struct buf *b, int field, struct buf *message);

#endif
