/*
 * tfevents — the records of TensorBoard's event files.
 *
 * A record is
 *
 *     u64  length of the data
 *     u32  masked CRC-32C of these 8 bytes (crc32c.h)
 *     u8[] the data: a message Event of TensorFlow's event.proto
 *     u32  masked CRC-32C of the data
 *
 * in little-endian order. The first record of a file names the format, "brain.Event:2".
 *
 * Each function appends whole records to `out`; if memory is short, `out` has failed. `time` is in
 * seconds since 1970.
 *
 * When a run continues from an earlier step, exports_tf_restart() makes TensorBoard drop what the
 * folder's files have of that step and of later ones: a repeated step appears once.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_TFEVENTS_H
#define MUSTER_LAUNCHER_EXPORTS_TFEVENTS_H

#include "base/buf.h"

#include <stdint.h>

struct exports_scalar {
	char tag[48];
	double value;
};

/* The first record of a file. */
void exports_tf_version(struct buf *out, double time);
/* The steps from this one on are trained again. */
void exports_tf_restart(struct buf *out, double time, int64_t step);
/* One record for all numbers of the step. */
void exports_tf_scalars(struct buf *out, double time, int64_t step, const struct exports_scalar *s,
			int n);
/* Text for TensorBoard's page of texts, in a fixed-width font. */
void exports_tf_text(struct buf *out, double time, int64_t step, const char *tag, const char *text);

/* A value at step 0 for one of TensorBoard's plugins, which reads `content`. Frees it. */
void exports_tf_plugin(struct buf *out, double time, const char *tag, const char *plugin,
		       struct buf *content);

#endif
