/* s3_active — of the files that a thread reads from an object store, only the last one keeps what
 * was read ahead: a loader may have a thousand files open. */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_S3_ACTIVE_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_S3_ACTIVE_H

#include "base/s3/download.h"

/* This thread reads from d now. */
void ckpt_s3_active_set(struct s3_download *d);
/* d is closed. */
void ckpt_s3_active_drop(struct s3_download *d);

#endif
