/* guard_step — the job step that runs a guard (launcher/slurm/guard.h). */
#ifndef MUSTER_LAUNCHER_SLURM_GUARD_STEP_H
#define MUSTER_LAUNCHER_SLURM_GUARD_STEP_H

#include "launcher/launch.h"

/* The operations own_node and guard of launch_slurm. */
const char *slurm_own_node(void);
int slurm_guard_start(uv_loop_t *loop, const struct guard_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e);

#endif
