/*
 * launchers — how muster and other launchers behave after a fault: their limits, and what they keep. All start
 * the same training: the same step, the same checkpoints, communicators that take as long.
 *
 *     muster             what the job file says
 *     torchrun           its defaults: --max-restarts 0, so that a person begins the run again
 *     torchrun-restarts  with as many restarts as are needed, and spare nodes that wait in the rendezvous
 *     nvrx               ft_launcher of the NVIDIA Resiliency Extension, its defaults: --max-restarts 0
 *     nvrx-restarts      with restarts, spare nodes, a limit for hangs, and copies of checkpoints that the
 *                        nodes keep
 *     nvrx-in-process    its restart inside the process, with the same copies
 *
 * None of the others looks for slow nodes in order to leave them. Wrong numbers are found as by muster, although
 * none of the others looks for them either. Each has its own time to see a fault and to start; the costs of
 * checkpoints, of communicators and of people are those of the setup, as are spares, requeueing and patience.
 * torchrun can also shrink (--nnodes=MIN:MAX), which is not simulated. Restarts without progress, and faults of one
 * node, are counted under muster only.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_LAUNCHERS_H
#define MUSTER_LAUNCHER_GOODPUT_LAUNCHERS_H

#include "launcher/deployment.h"
#include "launcher/goodput/run.h"

enum { GOODPUT_LAUNCHERS = 6 };

const char *goodput_launcher_name(int i); /* 0: muster */
const char *goodput_launcher_doc(int i);

/* The run of a job that muster launches, with slurm.spares nodes in addition to those of its layout. faults:
 * borrowed. */
void goodput_setup_of(const struct deployment *d, const struct goodput_faults *faults,
		      struct goodput_setup *out);
/* The same run under another launcher: 1 to GOODPUT_LAUNCHERS - 1. */
void goodput_launch_by(int launcher, struct goodput_setup *s);

#endif
