/* pace — limits the speed of a copy. A token bucket: it fills with `bytes_per_s`, and holds at most
 * a quarter of a second's bytes, so that a pause is not made up for by a burst. */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_PACE_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_PACE_H

#include "base/err.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_pace {
	double rate;    /* bytes per second; 0: no limit */
	double allowed; /* bytes in the bucket; negative: they were sent in advance */
	double at;      /* clock_s() of `allowed` */
};

void ckpt_pace_start(struct ckpt_pace *p, int64_t bytes_per_s);
/* The most bytes to send at once, up to `most`: a quarter of a second's, so that connections are not
 * left alone for long. */
int64_t ckpt_pace_piece(const struct ckpt_pace *p, int64_t most);
/* Seconds to wait after n more bytes were sent at the time `now`. */
double ckpt_pace_take(struct ckpt_pace *p, size_t n, double now);
/* Takes n bytes and waits. ERR_ABORTED once *cancel, which may be NULL, is set. */
int ckpt_pace_wait(struct ckpt_pace *p, size_t n, const atomic_bool *cancel, struct err *e);

#endif
