/* timelines — writes the measured timeline of a rank's last step, for `muster plan --measured`. */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_TIMELINES_H
#define MUSTER_AGENT_ENGINE_TRAIN_TIMELINES_H

#include "base/err.h"
#include "plan/spec/schedule/timeline.h"

#include <stdint.h>

/* Writes RUN_DIR/trace/gen-<generation>/timeline-<rank>.json. */
int train_timelines_save(const struct timeline *t, const char *run_dir, uint32_t generation,
			 int rank, struct err *e);

#endif
