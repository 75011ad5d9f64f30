/*
 * memory_library — what NCCL takes of a GPU's memory for the groups of
 * agent/engine/parallel/groups.h.
 *
 * The engine does not allocate it, so that it is not part of a rank's bytes: it lowers the limit of
 * what a rank may use (plan/search/fit.h). The sizes are the defaults of NCCL's source, version
 * 2.30 (src/init.cc, src/transport/p2p.cc, net.cc and nvls.cc):
 *
 *     channel     a ring, with buffers of its own. As many as a group's processors
 *                 (plan/spec/processors.h); published logs show 16 or fewer for a group whose ranks
 *                 are on several nodes
 *     connection  to a neighbor, in both directions. Inside a node the sender has a page of 2 MiB,
 *                 and the receiver 4 MiB (NCCL_BUFFSIZE) for protocol Simple, 4.69 MiB for LL128
 *                 and 0.5 MiB for LL, rounded up to pages: 12 MiB. By GPUDirect RDMA each side of
 *                 both directions has Simple's and LL128's: 17.4 MiB
 *     NVLS        with NVLink SHARP, two buffers of 8 chunks of 128 KiB for each of 16 channels and
 *                 each rank of the group in the node: 32 MiB a rank
 *     peers       a table of each of the group's ranks in each channel
 *
 * A ring has two neighbors, and trees use these in the other direction. Groups share nothing
 * (libcomm/device/cuda/nccl.c), so each has its own connections. An all-to-all exchange connects all
 * ranks of a node with each other; those of other nodes share two pools of 16 chunks of 128 KiB per
 * channel. Connections of messages are not those of rings. A node is assumed to have 8 GPUs, and tp
 * to stay inside it.
 *
 * It is an estimate, mostly from above: groups connect at their first operation, and only for the
 * algorithms that NCCL chooses for it.
 */
#ifndef MUSTER_PLAN_MEMORY_LIBRARY_H
#define MUSTER_PLAN_MEMORY_LIBRARY_H

#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

/* The bytes of NCCL on the rank that has the most. 0 for one rank, on a CPU, and for another
 * program than muster (plan.engine), which is not known well enough. */
double plan_memory_library(const struct job *job, const struct model_shape *m,
			   const struct layout *l);

#endif
